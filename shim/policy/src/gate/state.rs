//! State of a gate, in words that a forked child finds zeroed.

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
const _: () = assert!((DeviceWord::Alike as usize) < DEVICE_WORDS && (About::Taken as usize) < MARK_WORDS);

/// Number of places, from that of its handle's hash on, at which a graph's cost may be kept.
const PROBES: usize = 8;

/// State of a device. Order is layout.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeviceWord {
    /// Kernels that no mark stands behind yet.
    Unmarked,
    /// Launches that were let through and that the driver has not taken yet.
    Entering,
    /// Under which turn of the lease launches were let through last; one more than that.
    Turn,
    /// 1 as long as nothing of ours was seen done in this turn: another's tail may be on the GPU still.
    Foreign,
    /// Time of the last check, and its distance from the one before.
    Looked,
    Glance,
    /// Streams with marks pending.
    Streams,
    /// Busy time divided by the streams that had work in it, summed up: what runs beside others ages less.
    Clock,
    /// Completions since the last measurement: kernels, graphs and transfers, and the time that they took.
    Kernels,
    Graphs,
    Cost,
    /// Key of the graph or transfer; [`SEVERAL`] if they were not alike.
    Graph,
    /// Time at which one of them was found done in which another may have had a part; 0 if none.
    Bound,
    /// Launches done since the process began.
    Done,
    /// Launches that came to the gate since the process began, and those that threads made by themselves.
    Entered,
    /// GPU time estimated for what was launched since the device was idle last.
    Stretch,
    /// Streams that are known to run side by side.
    Width,
    /// Length of a launch alone: the least of the window before this one, and of this one.
    Alone,
    AloneNow,
    /// Launches seen alone in this window.
    Alones,
    /// Value of [`DeviceWord::Entered`] at the last launch that ran alone.
    AloneAt,
    /// 1 if the next launch is to run alone.
    Hold,
    /// Number of consecutive launches that took too long.
    Slow,
    /// Value of [`DeviceWord::Entered`] from which one more stream is tried.
    TryAt,
    /// Failures of such tries less successes.
    Failed,
    /// Transfers without a mark behind them yet: number.
    ///
    /// Then their estimated length, and their key; [`SEVERAL`] if they differ.
    Moved,
    MovedNs,
    MovedKey,
    /// Value of [`DeviceWord::Entered`] at the last launch that took too long.
    SlowAt,
    /// 1 if a mark of this measurement stood behind several launches while other streams had work.
    Shared,
    /// One more than the stream of the last mark; 0 if there was none.
    LastStream,
    /// Consecutive marks in that stream, up to a bound.
    Alike,
}

/// Graphs and transfers that are not alike.
pub(super) const SEVERAL: u64 = u64::MAX;

/// State of a pending mark. Order is layout.
#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    /// Number of the mark.
    Sequence,
    /// The device, as the slice counts.
    Device,
    /// Handle of its context.
    Context,
    /// Kernels that it stands behind.
    Kernels,
    /// The graph or the like of transfers that it stands behind, or 0; and how many of these.
    Graph,
    Graphs,
    /// Estimated GPU time of all that, in nanoseconds.
    Estimate,
    /// Number of its queue.
    Stream,
    /// Reading of the device's clock when its stream came to it.
    Start,
    /// 1 if another's tail may have been on the GPU then.
    Foreign,
    /// Time at which its launch came to an idle stream; 0 if there was work in it.
    Came,
    /// Streams that had work then, its own included.
    Streams,
    /// Value of [`DeviceWord::Entered`] then.
    Entered,
    /// Number of the mark once the driver has taken it.
    Taken,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GateState<'a> {
    words: &'a [AtomicU64; WORDS],
    pause: Pause,
}

impl<'a> GateState<'a> {
    #[inline]
    pub(super) fn over(words: &'a [AtomicU64], pause: Pause) -> Option<Self> {
        Some(Self { words: words.first_chunk()?, pause })
    }

    /// One thread at a time keeps these books.
    pub(super) fn turn(self) -> Guard<'a> {
        Lock::at(&self.words[0], self.pause).acquire()
    }

    /// Places of the ring with pending marks, a bit each.
    pub(super) fn pending(self) -> &'a AtomicU64 {
        &self.words[1]
    }

    /// The number of the last mark.
    pub(super) fn sequence(self) -> &'a AtomicU64 {
        &self.words[2]
    }

    /// Recent mean length of a kernel in nanoseconds; 0 while unknown.
    pub(super) fn kernel(self) -> &'a AtomicU64 {
        &self.words[3]
    }

    /// Last heartbeat of the daemon, and the process's time at its first sight; 0 if never.
    pub(super) fn beat(self) -> (&'a AtomicU64, &'a AtomicU64) {
        (&self.words[4], &self.words[5])
    }

    /// Heartbeat at which the daemon had ended; 0 if it was not seen to end.
    pub(super) fn last_beat(self) -> &'a AtomicU64 {
        &self.words[6]
    }

    pub(super) fn device(self, device: DeviceSlot, of: DeviceWord) -> &'a AtomicU64 {
        &self.words[HEAD + device.index() * DEVICE_WORDS + of as usize]
    }

    pub(super) fn get(self, device: DeviceSlot, of: DeviceWord) -> u64 {
        self.device(device, of).load(Relaxed)
    }

    pub(super) fn set(self, device: DeviceSlot, of: DeviceWord, value: u64) {
        self.device(device, of).store(value, Relaxed);
    }

    /// Adds to a value and returns the former one.
    ///
    /// The writer has the [turn](State::turn), so that no atomic addition is needed: those cost more than all the rest.
    pub(super) fn add(self, device: DeviceSlot, of: DeviceWord, value: u64) -> u64 {
        bump(self.device(device, of), value)
    }

    /// Returns a value and sets it to zero.
    pub(super) fn take(self, device: DeviceSlot, of: DeviceWord) -> u64 {
        let taken = self.get(device, of);
        self.set(device, of, 0);
        taken
    }

    /// Sets if a place of the ring holds a pending mark.
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

    /// Length of a graph in nanoseconds, if known.
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

/// Adds to a word that no other thread writes meanwhile, and returns the former value.
pub(super) fn bump(word: &AtomicU64, value: u64) -> u64 {
    let before = word.load(Relaxed);
    word.store(before.wrapping_add(value), Relaxed);
    before
}
