//! What the daemon counts while it runs, for whoever asks for its metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use tonic::Code;
use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, SliceName};

use crate::failure::Failure;
use crate::remembered::Remembered;

/// The counts.
#[derive(Debug)]
pub(crate) struct Tally {
    books: Mutex<Books>,
    unsaved: AtomicU64,
    pub(crate) started: SystemTime,
    since: Instant,
    /// Milliseconds from `since` to the last sample.
    sampled: AtomicU64,
}

#[derive(Debug, Default)]
struct Books {
    slices: Remembered<OfSlice>,
    requests: BTreeMap<Ending, u64>,
    faults: BTreeMap<(GpuUuid, Xid), u64>,
}

/// What is counted of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfSlice {
    /// Memory that programs of earlier slices of its name were refused.
    pub(crate) refusals_before: u64,
    /// Processes that were not let in.
    pub(crate) turned_away: u64,
}

/// How a request for a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// There is a slice.
    Created,
    /// There was no room for it, or none in time.
    NoRoom,
    /// Nobody could have it, or not this caller.
    Refused,
    /// The daemon could not make it.
    Failed,
}

impl Ending {
    pub(crate) const ALL: [Self; 4] = [Self::Created, Self::NoRoom, Self::Refused, Self::Failed];

    /// Of an answer.
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

impl Default for Tally {
    fn default() -> Self {
        Self {
            books: Mutex::default(),
            unsaved: AtomicU64::new(0),
            started: SystemTime::now(),
            since: Instant::now(),
            sampled: AtomicU64::new(0),
        }
    }
}

impl Tally {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("nothing panics while it holds the counts")
    }

    /// A request for a slice ended so.
    pub(crate) fn request(&self, ending: Ending) {
        *self.books().requests.entry(ending).or_default() += 1;
    }

    pub(crate) fn turned_away(&self, slice: &SliceName) {
        if let Some(of) = self.books().slices.of(slice) {
            of.turned_away += 1;
        }
    }

    pub(crate) fn slice_began(&self, slice: &SliceName) {
        self.books().slices.begin(slice);
    }

    /// A slice ended whose programs were refused memory so often.
    pub(crate) fn slice_ended(&self, slice: &SliceName, refusals: u64) {
        let mut books = self.books();
        if let Some(of) = books.slices.of(slice) {
            of.refusals_before = of.refusals_before.saturating_add(refusals);
        }
        books.slices.end(slice);
    }

    /// The driver reported a fault.
    pub(crate) fn fault(&self, gpu: GpuUuid, xid: Xid) {
        *self.books().faults.entry((gpu, xid)).or_default() += 1;
    }

    /// The state could not be kept on disk.
    pub(crate) fn unsaved(&self) {
        self.unsaved.fetch_add(1, Ordering::Relaxed);
    }

    /// The GPUs were looked at.
    pub(crate) fn sampled(&self) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.sampled.store(passed, Ordering::Relaxed);
    }

    // What there is to see

    pub(crate) fn of_slice(&self, slice: &SliceName) -> OfSlice {
        self.books().slices.get(slice).copied().unwrap_or_default()
    }

    pub(crate) fn requests(&self, ending: Ending) -> u64 {
        self.books().requests.get(&ending).copied().unwrap_or_default()
    }

    pub(crate) fn faults(&self) -> BTreeMap<(GpuUuid, Xid), u64> {
        self.books().faults.clone()
    }

    pub(crate) fn times_unsaved(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed)
    }

    /// How long ago the GPUs were looked at; since the start, if never.
    pub(crate) fn last_sample(&self) -> Duration {
        let last = Duration::from_millis(self.sampled.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }
}
