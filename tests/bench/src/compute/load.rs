//! What tenants do.

/// A kernel of 50 us, and one of a millisecond.
pub(crate) const SHORT: u64 = 50_000;
/// In nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// GPU time that a saturating program keeps launched: enough to outlast the turns of two others.
const AHEAD: u64 = 4 * MS;

/// What a program does.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// Kernels of one length without end, on so many streams.
    Saturating { kernel: u64, streams: u32 },
    /// Graphs of twenty kernels of one length without end.
    Graphs { kernel: u64 },
    /// Kernels of these lengths without end.
    Mixed { trace: Vec<u64> },
    /// One kernel, waited for, and a pause between two lengths; again and again.
    Rounds { kernel: u64, gap: (u64, u64) },
    /// Nothing, until told otherwise.
    Idle,
}

impl Load {
    /// One stream of kernels of one length.
    pub(crate) const fn saturating(kernel: u64) -> Self {
        Self::Saturating { kernel, streams: 1 }
    }

    /// What its programs are told.
    pub(crate) fn order(&self) -> Option<String> {
        match self {
            Self::Saturating { kernel, streams } => Some(format!("flood {kernel} {AHEAD} 0 {streams}")),
            Self::Graphs { kernel } => Some(format!("flood {kernel} {AHEAD} 1 1")),
            Self::Mixed { .. } => Some(format!("flood 0 {AHEAD} 0 1")),
            Self::Rounds { kernel, gap: (low, high) } => Some(format!("rounds {kernel} {low} {high}")),
            Self::Idle => None,
        }
    }

    /// The longest kernel, or what takes as long as one, in nanoseconds.
    pub(crate) fn longest(&self) -> u64 {
        match self {
            Self::Saturating { kernel, .. } | Self::Rounds { kernel, .. } => *kernel,
            Self::Graphs { kernel } => 20 * kernel,
            Self::Mixed { trace } => trace.iter().copied().max().unwrap_or(0),
            Self::Idle => 0,
        }
    }
}

/// A slice, and the programs in it.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// What `tranche slice create` is told of its compute.
    pub(crate) options: Vec<String>,
    /// What each of its programs does.
    pub(crate) load: Load,
    /// Number of programs.
    pub(crate) processes: usize,
}

impl Tenant {
    /// One program in a slice of so many percent of the compute.
    pub(crate) fn new(percent: f64, load: Load) -> Self {
        Self { options: vec!["--compute".into(), format!("{percent}%")], load, processes: 1 }
    }

    /// With further options.
    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|option| (*option).to_string()));
        self
    }
}
