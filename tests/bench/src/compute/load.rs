//! Loads that tenants put on a GPU.

/// Length of a short kernel in nanoseconds: 50 us.
pub(crate) const SHORT: u64 = 50_000;
/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// Nanoseconds of GPU time that a saturating program keeps launched: more than the turns of two others.
const AHEAD: u64 = 4 * MS;

/// Kernels that a program launches. All lengths are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// Kernels of one length without end, on a number of streams.
    Saturating { kernel: u64, streams: u32 },
    /// Graphs of twenty kernels of one length without end.
    Graphs { kernel: u64 },
    /// Kernels of these lengths without end.
    Mixed { trace: Vec<u64> },
    /// One kernel, a wait for it, and a pause between two lengths; again and again.
    Rounds { kernel: u64, gap: (u64, u64) },
    /// The same with a request of several kernels.
    Requests { kernel: u64, kernels: u64, gap: (u64, u64) },
    /// Copies inside the device without end, `ahead` of them before each mark.
    Copies { bytes: u64, ahead: u64 },
    /// Kernels without end, the input of each copied from the host while the one before it runs.
    Feed { kernel: u64, bytes: u64 },
    /// No kernels until an order is sent.
    Idle,
}

impl Load {
    /// One stream of kernels of one length.
    pub(crate) const fn saturating(kernel: u64) -> Self {
        Self::Saturating { kernel, streams: 1 }
    }

    /// Order that is sent to the programs; none if they are idle.
    pub(crate) fn order(&self) -> Option<String> {
        match self {
            Self::Saturating { kernel, streams } => Some(format!("flood {kernel} {AHEAD} 0 {streams}")),
            Self::Graphs { kernel } => Some(format!("flood {kernel} {AHEAD} 1 1")),
            Self::Mixed { .. } => Some(format!("flood 0 {AHEAD} 0 1")),
            Self::Rounds { kernel, gap: (low, high) } => Some(format!("rounds {kernel} {low} {high} 1")),
            Self::Requests { kernel, kernels, gap: (low, high) } => {
                Some(format!("rounds {kernel} {low} {high} {kernels}"))
            }
            Self::Copies { bytes, ahead } => Some(format!("copies {bytes} {ahead}")),
            Self::Feed { kernel, bytes } => Some(format!("feed {kernel} {bytes}")),
            Self::Idle => None,
        }
    }

    /// Length of the longest kernel or graph, in nanoseconds.
    pub(crate) fn longest(&self) -> u64 {
        match self {
            Self::Saturating { kernel, .. }
            | Self::Rounds { kernel, .. }
            | Self::Requests { kernel, .. }
            | Self::Feed { kernel, .. } => *kernel,
            Self::Graphs { kernel } => 20 * kernel,
            Self::Mixed { trace } => trace.iter().copied().max().unwrap_or(0),
            Self::Copies { .. } | Self::Idle => 0,
        }
    }
}

/// A slice, and the programs in it.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// Options of `tranche slice create` on compute.
    pub(crate) options: Vec<String>,
    /// Load of each program of the tenant.
    pub(crate) load: Load,
    /// Number of programs, each with this load.
    pub(crate) processes: usize,
}

impl Tenant {
    /// One program in a slice with this compute request in percent.
    pub(crate) fn new(percent: f64, load: Load) -> Self {
        Self { options: vec!["--compute".into(), format!("{percent}%")], load, processes: 1 }
    }

    /// Adds options of `tranche slice create`.
    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|option| (*option).to_string()));
        self
    }
}
