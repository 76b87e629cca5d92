//! Bounds of what a node may bring to the page.

/// Maximum number of jobs, waiting requests or slices of a node in its answer.
pub(crate) const MOST_ROWS: usize = 500;
/// Maximum number of GPUs of a node.
pub(crate) const MOST_GPUS: usize = 64;
/// Maximum number of slices that are listed with a GPU.
pub(crate) const MOST_PARTS: usize = 64;
/// Maximum number of projects of a node.
pub(crate) const MOST_PROJECTS: usize = 100;
/// Maximum number of projects with a band of their own in the chart; the others share one.
pub(crate) const MOST_BANDS: usize = 24;
/// Maximum number of nodes beside the page's own.
pub(crate) const MOST_NODES: usize = 32;
/// Maximum length of a name in characters.
pub(crate) const LONGEST_NAME: usize = 64;
/// Maximum length of a reason in characters.
pub(crate) const LONGEST_REASON: usize = 200;
/// Number of columns of the chart of allocation.
pub(crate) const COLUMNS: usize = 168;
/// Number of parts of a day in the strip of a GPU, ten minutes each.
pub(crate) const BINS_OF_DAY: usize = 144;
