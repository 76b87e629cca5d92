//! Counters and timestamps that the metrics report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, SliceName};

use crate::retained::Retained;

/// Counters since the daemon started.
#[derive(Debug)]
pub struct DaemonCounters {
    counts: Mutex<CounterValues>,
    unsaved: AtomicU64,
    /// Time at which the daemon started.
    pub started: SystemTime,
    since: Instant,
    /// Milliseconds from `since` to the last sample of the GPUs.
    sampled: AtomicU64,
}

#[derive(Debug, Default)]
struct CounterValues {
    slices: Retained<SliceCounts>,
    requests: BTreeMap<RequestOutcome, u64>,
    faults: BTreeMap<(GpuUuid, Xid), u64>,
}

/// Counters of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceCounts {
    /// Refused allocations in earlier slices of the same name.
    pub refusals_before: u64,
    /// Connections from processes that were rejected.
    pub rejected: u64,
    /// Stays on its GPUs that rotation gave it.
    pub stays: u64,
}

/// Outcome of a request for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestOutcome {
    /// A slice was created.
    Created,
    /// No capacity, at once or within the waiting time.
    NoRoom,
    /// Invalid, or not permitted to this client.
    Refused,
    /// Failed for a reason of the daemon's.
    Failed,
}

impl RequestOutcome {
    /// Every outcome, in the order of metrics.
    pub const ALL: [Self; 4] = [Self::Created, Self::NoRoom, Self::Refused, Self::Failed];

    /// Value of the label in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::NoRoom => "no_room",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Default for DaemonCounters {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
            unsaved: AtomicU64::new(0),
            started: SystemTime::now(),
            since: Instant::now(),
            sampled: AtomicU64::new(0),
        }
    }
}

impl DaemonCounters {
    fn counts(&self) -> MutexGuard<'_, CounterValues> {
        self.counts.lock().expect("nothing panics while it holds the counts")
    }

    /// Counts a request for a slice.
    pub fn request(&self, outcome: RequestOutcome) {
        *self.counts().requests.entry(outcome).or_default() += 1;
    }

    /// Counts a process that was rejected at a slice's socket.
    pub fn rejected(&self, slice: &SliceName) {
        if let Some(of) = self.counts().slices.of(slice) {
            of.rejected += 1;
        }
    }

    /// Counts a stay of a rotating slice.
    pub fn stay_began(&self, slice: &SliceName) {
        if let Some(of) = self.counts().slices.of(slice) {
            of.stays += 1;
        }
    }

    /// Begins a slice's counters, or continues those of an earlier slice of its name.
    pub fn slice_began(&self, slice: &SliceName) {
        self.counts().slices.begin(slice);
    }

    /// Ends a slice's counters, adding its refused allocations.
    pub fn slice_ended(&self, slice: &SliceName, refusals: u64) {
        let mut counts = self.counts();
        if let Some(of) = counts.slices.of(slice) {
            of.refusals_before = of.refusals_before.saturating_add(refusals);
        }
        counts.slices.end(slice);
    }

    /// Counts a fault that the driver reported.
    pub fn fault(&self, gpu: GpuUuid, xid: Xid) {
        *self.counts().faults.entry((gpu, xid)).or_default() += 1;
    }

    /// Counts a failure to write the state file.
    pub fn unsaved(&self) {
        self.unsaved.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the time of a sample.
    pub fn sampled(&self) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.sampled.store(passed, Ordering::Relaxed);
    }

    // Values

    /// Counters of a slice; zero for one that is not known.
    pub fn slice_counts(&self, slice: &SliceName) -> SliceCounts {
        self.counts().slices.get(slice).copied().unwrap_or_default()
    }

    /// Number of requests with this outcome.
    pub fn requests(&self, outcome: RequestOutcome) -> u64 {
        self.counts().requests.get(&outcome).copied().unwrap_or_default()
    }

    /// Number of faults that the driver reported, by GPU and Xid.
    pub fn faults(&self) -> BTreeMap<(GpuUuid, Xid), u64> {
        self.counts().faults.clone()
    }

    /// Number of failures to write the state file.
    pub fn times_unsaved(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed)
    }

    /// Time since the last sample, or since the start if there was none.
    pub fn last_sample(&self) -> Duration {
        let last = Duration::from_millis(self.sampled.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }
}
