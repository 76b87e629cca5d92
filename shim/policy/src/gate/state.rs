//! What a gate remembers, in words that a forked child finds zeroed.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_shm::compute::MARKS;
use tranche_shm::{DeviceSlot, MAX_DEVICES};

use crate::lock::{Guard, Lock, Pause};

const HEAD: usize = 16;
const DEVICE_WORDS: usize = 32;
const MARK_WORDS: usize = 16;
const GRAPHS: usize = 256;
const FIRST_MARK: usize = HEAD + MAX_DEVICES * DEVICE_WORDS;
const FIRST_GRAPH: usize = FIRST_MARK + MARKS * MARK_WORDS;
pub(super) const WORDS: usize = FIRST_GRAPH + 2 * GRAPHS;

/// Where a graph's cost may be kept, from where its handle says on.
const PROBES: usize = 8;

/// What is remembered of a device. Order is layout.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// Kernels that no mark stands behind yet.
    Unmarked,
    /// Launches that were let through and that the driver has not taken yet.
    Entering,
    /// Under which turn of the lease launches were let through last; one more than that.
    Turn,
    /// 1 as long as nothing of ours was seen done in this turn: another's tail may be on the GPU still.
    Foreign,
    /// When it was looked at last, and how long after the time before.
    Looked,
    Glance,
    /// Streams with marks pending.
    Streams,
    /// Busy time divided by the streams that had work in it, summed up: what runs beside others ages less.
    Clock,
    /// What was done since the last measurement: kernels, graphs and transfers, the time of that clock that they took.
    Kernels,
    Graphs,
    Cost,
    /// Which graph or transfer that was; [`SEVERAL`] if they were not alike.
    Graph,
    /// 1 if another may have had a part of that time.
    Bound,
    /// Launches done since the process began.
    Done,
    /// Launches that came to the gate since the process began, and those that threads made by themselves.
    Entered,
    /// GPU time estimated for what was launched since the device was idle last.
    Stretch,
    /// Streams that are known to run side by side.
    Width,
    /// What a launch takes alone: the least of the window before this one, and of this one.
    Alone,
    AloneNow,
    /// Launches seen alone in this window.
    Alones,
    /// What [`Of::Entered`] was when one was seen alone last.
    AloneAt,
    /// 1 if the next launch is to run alone.
    Hold,
    /// How many took too long, one after the other.
    Slow,
    /// What [`Of::Entered`] has to be before one more stream is tried.
    TryAt,
    /// How often that failed, less how often it did not.
    Failed,
    /// Transfers that no mark stands behind yet: how many, what they are estimated to take, and the key of their like;
    /// [`SEVERAL`] if they differ.
    Moved,
    MovedNs,
    MovedKey,
}

/// Graphs and transfers that are not alike.
pub(super) const SEVERAL: u64 = u64::MAX;

/// What is remembered of a pending mark. Order is layout.
#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    /// Its number.
    Sequence,
    /// The device, as the slice counts.
    Device,
    /// The context.
    Context,
    /// Kernels that it stands behind.
    Kernels,
    /// The graph or the like of transfers that it stands behind, or 0; and how many of these.
    Graph,
    Graphs,
    /// Estimated GPU time of all that, in nanoseconds.
    Estimate,
    /// Its stream.
    Stream,
    /// What the device's clock was when its stream came to it.
    Start,
    /// 1 if another's tail may have been on the GPU then.
    Foreign,
    /// When its launch came to an idle stream; 0 if there was work in it.
    Came,
    /// Streams that had work then, its own included.
    Streams,
    /// What [`Of::Entered`] was then.
    Entered,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct State<'a> {
    words: &'a [AtomicU64; WORDS],
    pause: Pause,
}

impl<'a> State<'a> {
    #[inline]
    pub(super) fn over(words: &'a [AtomicU64], pause: Pause) -> Option<Self> {
        Some(Self { words: words.first_chunk()?, pause })
    }

    /// One thread at a time keeps these books.
    pub(super) fn turn(self) -> Guard<'a> {
        Lock::at(&self.words[0], self.pause).acquire()
    }

    /// Which places of the ring hold pending marks, a bit each.
    pub(super) fn pending(self) -> &'a AtomicU64 {
        &self.words[1]
    }

    /// The number of the last mark.
    pub(super) fn sequence(self) -> &'a AtomicU64 {
        &self.words[2]
    }

    /// What a kernel takes on average lately, in nanoseconds; 0 while unknown.
    pub(super) fn kernel(self) -> &'a AtomicU64 {
        &self.words[3]
    }

    /// The daemon's heartbeat as it was seen last, and when it was first seen to be that, by the process's clock; 0 if
    /// never.
    pub(super) fn beat(self) -> (&'a AtomicU64, &'a AtomicU64) {
        (&self.words[4], &self.words[5])
    }

    pub(super) fn device(self, device: DeviceSlot, of: Of) -> &'a AtomicU64 {
        &self.words[HEAD + device.index() * DEVICE_WORDS + of as usize]
    }

    pub(super) fn get(self, device: DeviceSlot, of: Of) -> u64 {
        self.device(device, of).load(Relaxed)
    }

    pub(super) fn set(self, device: DeviceSlot, of: Of, value: u64) {
        self.device(device, of).store(value, Relaxed);
    }

    /// Adds to what is there, which it gives. Whoever writes has the [turn](State::turn), so that this need not be one
    /// step to the machine: those cost more than all the rest.
    pub(super) fn add(self, device: DeviceSlot, of: Of, value: u64) -> u64 {
        bump(self.device(device, of), value)
    }

    /// What is there; from now on zero.
    pub(super) fn take(self, device: DeviceSlot, of: Of) -> u64 {
        let taken = self.get(device, of);
        self.set(device, of, 0);
        taken
    }

    /// A place of the ring holds a pending mark from now on, or does no more.
    pub(super) fn set_pending(self, place: usize, pending: bool) {
        let others = self.pending().load(Relaxed) & !(1 << place);
        self.pending().store(others | u64::from(pending) << place, Relaxed);
    }

    pub(super) fn about(self, place: usize, about: About) -> u64 {
        self.mark(place, about).load(Relaxed)
    }

    /// The places of the marks that are pending on a device.
    pub(super) fn pending_on(self, device: DeviceSlot) -> impl Iterator<Item = usize> {
        let there = move |place: &usize| self.about(*place, About::Device) == device.index() as u64;
        places(self.pending().load(Relaxed)).filter(there)
    }

    pub(super) fn mark(self, place: usize, about: About) -> &'a AtomicU64 {
        &self.words[FIRST_MARK + place % MARKS * MARK_WORDS + about as usize]
    }

    /// What a graph takes, in nanoseconds, if that is known.
    pub(super) fn graph_ns(self, graph: u64) -> Option<u64> {
        let place = self.places(graph).find(|(key, _)| key.load(Relaxed) == graph)?;
        Some(place.1.load(Relaxed)).filter(|cost| *cost > 0)
    }

    /// Remembers what a graph takes, perhaps instead of another. 0 forgets it.
    pub(super) fn set_graph_ns(self, graph: u64, cost: u64) {
        let known = self.places(graph).find(|(key, _)| key.load(Relaxed) == graph);
        let free = || self.places(graph).find(|(key, _)| key.load(Relaxed) == 0);
        let Some((key, place)) = known.or_else(free).or_else(|| self.places(graph).next()) else { return };
        key.store(if cost == 0 { 0 } else { graph }, Relaxed);
        place.store(cost, Relaxed);
    }

    fn places(self, graph: u64) -> impl Iterator<Item = (&'a AtomicU64, &'a AtomicU64)> {
        let start = (graph.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
        (start..start + PROBES).map(move |at| {
            let at = FIRST_GRAPH + 2 * (at % GRAPHS);
            (&self.words[at], &self.words[at + 1])
        })
    }
}

/// The places whose bits are set.
pub(super) fn places(mut pending: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = pending.trailing_zeros() as usize;
        pending &= pending.wrapping_sub(1);
        (place < MARKS).then_some(place)
    })
}

/// Adds to a word that nobody else writes meanwhile; gives what it was.
pub(super) fn bump(word: &AtomicU64, value: u64) -> u64 {
    let before = word.load(Relaxed);
    word.store(before.wrapping_add(value), Relaxed);
    before
}
