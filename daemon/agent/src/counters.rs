//! Counters and timestamps that the metrics report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use tonic::Code;
use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, SliceName};

use crate::failure::Failure;
use crate::retained::Retained;

/// Counters since the daemon started.
#[derive(Debug)]
pub(crate) struct Counters {
    counts: Mutex<Counts>,
    unsaved: AtomicU64,
    pub(crate) started: SystemTime,
    since: Instant,
    /// Milliseconds from `since` to the last sample of the GPUs.
    sampled: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    slices: Retained<SliceCounts>,
    requests: BTreeMap<RequestOutcome, u64>,
    faults: BTreeMap<(GpuUuid, Xid), u64>,
}

/// Counters of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SliceCounts {
    /// Refused allocations in earlier slices of the same name.
    pub(crate) refusals_before: u64,
    /// Connections from processes that were rejected.
    pub(crate) rejected: u64,
}

/// Outcome of a request for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestOutcome {
    /// A slice was created.
    Created,
    /// No capacity, at once or within the waiting time.
    NoRoom,
    /// Invalid, or not permitted to this client.
    Refused,
    /// Internal error.
    Failed,
}

impl RequestOutcome {
    pub(crate) const ALL: [Self; 4] = [Self::Created, Self::NoRoom, Self::Refused, Self::Failed];

    /// Classifies the result of a request.
    pub(crate) fn of<T>(answer: &Result<T, Failure>) -> Self {
        match answer.as_ref().map_err(Failure::code) {
            Ok(_) => Self::Created,
            Err(Code::ResourceExhausted) => Self::NoRoom,
            Err(Code::Internal) => Self::Failed,
            Err(_) => Self::Refused,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::NoRoom => "no_room",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Default for Counters {
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

impl Counters {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("nothing panics while it holds the counts")
    }

    /// Counts a request for a slice.
    pub(crate) fn request(&self, outcome: RequestOutcome) {
        *self.counts().requests.entry(outcome).or_default() += 1;
    }

    pub(crate) fn rejected(&self, slice: &SliceName) {
        if let Some(of) = self.counts().slices.of(slice) {
            of.rejected += 1;
        }
    }

    pub(crate) fn slice_began(&self, slice: &SliceName) {
        self.counts().slices.begin(slice);
    }

    /// Ends a slice's counters, adding its refused allocations.
    pub(crate) fn slice_ended(&self, slice: &SliceName, refusals: u64) {
        let mut counts = self.counts();
        if let Some(of) = counts.slices.of(slice) {
            of.refusals_before = of.refusals_before.saturating_add(refusals);
        }
        counts.slices.end(slice);
    }

    /// Counts a fault that the driver reported.
    pub(crate) fn fault(&self, gpu: GpuUuid, xid: Xid) {
        *self.counts().faults.entry((gpu, xid)).or_default() += 1;
    }

    /// Counts a failure to write the state file.
    pub(crate) fn unsaved(&self) {
        self.unsaved.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the time of a sample.
    pub(crate) fn sampled(&self) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.sampled.store(passed, Ordering::Relaxed);
    }

    // Values

    pub(crate) fn slice_counts(&self, slice: &SliceName) -> SliceCounts {
        self.counts().slices.get(slice).copied().unwrap_or_default()
    }

    pub(crate) fn requests(&self, outcome: RequestOutcome) -> u64 {
        self.counts().requests.get(&outcome).copied().unwrap_or_default()
    }

    pub(crate) fn faults(&self) -> BTreeMap<(GpuUuid, Xid), u64> {
        self.counts().faults.clone()
    }

    pub(crate) fn times_unsaved(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed)
    }

    /// Time since the last sample, or since the start if there was none.
    pub(crate) fn last_sample(&self) -> Duration {
        let last = Duration::from_millis(self.sampled.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }
}
