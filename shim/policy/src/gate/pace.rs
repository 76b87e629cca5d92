//! Outstanding work: counted launches, placed marks, and the time since when there are any.

use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::fence;

use tranche_shm::DeviceSlot;
use tranche_shm::compute::{CompletionMark, MARKS, Tally};
use tranche_shm::lease::Lease;

use super::measure::CompletionGlance;
use super::room::ProcessWork;
use super::state::{About, DeviceWord, SEVERAL, bump};
use super::unmarked::Unmarked;
use super::{
    Gate, Grant, Host, Launch, LaunchTarget, MARKS_IN_DEPTH, MOST_GRANTED, Pass, SPACING_NS, Spent, Work,
};

/// Time without a launch after which nothing is outstanding, in nanoseconds.
///
/// It counts beyond twice the length of the earlier launches.
const GAP_NS: u64 = 2_000_000;
/// A kernel that takes less is too brief to have a mark of its own.
const BRIEF_NS: u64 = 100_000;
/// Consecutive marks in one stream after which the others count as left.
const SURELY_ONE: u64 = 256;

impl Gate<'_> {
    /// Launches that a thread made by itself.
    pub(super) fn count(&self, spent: Spent) {
        let launches = spent.launches;
        if let Some(device) = spent.device
            && launches > 0
        {
            bump(self.record.tally(Tally::Launches), launches.into());
            self.state.add(device, DeviceWord::Unmarked, launches.into());
            self.state.add(device, DeviceWord::Entered, launches.into());
            let estimate = u64::from(launches).saturating_mul(self.kernel_ns());
            self.state.add(device, DeviceWord::Stretch, estimate);
        }
    }

    /// A launch is about to be made.
    pub(super) fn begin(
        &self,
        place: LaunchTarget,
        word: u64,
        watched: bool,
        seen: &ProcessWork,
        now: u64,
    ) -> Pass {
        let device = place.device;
        let fresh = self.record.busy_since_ns(device).load(Relaxed) == 0;
        if fresh {
            self.record.busy_since_ns(device).store(now.max(1), Release);
            self.state.set(device, DeviceWord::Stretch, 0);
        }
        self.state.add(device, DeviceWord::Entering, 1);
        let streams = if seen.own == 0 { seen.streams + 1 } else { 0 };
        Pass { word, fresh, watched, now, streams }
    }

    /// A turn of the lease under which nothing was launched yet: who had the GPU before may be on it still.
    pub(super) fn note_turn(&self, device: DeviceSlot, word: u64, now: u64) {
        let turn = u64::from(Lease::turn(word)) + 1;
        if self.state.get(device, DeviceWord::Turn) != turn {
            self.end_turn(device);
            self.collect(device, CompletionGlance::at(now));
            self.state.set(device, DeviceWord::Turn, turn);
            self.begin_turn(device);
        }
    }

    /// A program that never waits for its work is found to have had none for a while only now.
    pub(super) fn close_gap(&self, device: DeviceSlot, now: u64, seen: &mut ProcessWork) {
        let since = self.record.busy_since_ns(device).load(Relaxed);
        let stretch = self.state.get(device, DeviceWord::Stretch);
        let mostly_idle = now.saturating_sub(since) > stretch.saturating_mul(2).saturating_add(GAP_NS);
        let gone = seen.marks == 0 && seen.entering == 0 && (seen.launches == 0 || mostly_idle);
        if since != 0 && gone {
            self.take_unmarked(device);
            (seen.launches, seen.estimate_ns, seen.unknown) = (0, 0, false);
            self.stamp_idle(device, now, false);
        }
    }

    /// Enters that nothing is outstanding on a device.
    ///
    /// Without an `exact` end, the estimate of the launches is charged and not the time that passed until this was seen.
    pub(super) fn stamp_idle(&self, device: DeviceSlot, now: u64, exact: bool) {
        let since = self.record.busy_since_ns(device).swap(0, Release);
        let elapsed = now.saturating_sub(since);
        let likely = self.state.get(device, DeviceWord::Stretch).saturating_add(SPACING_NS);
        // At the check before, there was work still.
        let least = elapsed.saturating_sub(self.state.get(device, DeviceWord::Glance));
        let busy = if exact || elapsed <= likely.saturating_mul(2) { elapsed } else { likely.max(least) };
        if since != 0 {
            self.record.busy_ns(device).fetch_add(busy, Release);
        }
    }

    /// A launch that was let through failed. If it was the first after an idle time, there is nothing after all.
    pub(super) fn fail(&self, place: LaunchTarget, pass: Pass, host: &impl Host) {
        let guard = self.state.turn();
        self.taken(place.device);
        let now = host.now_ns();
        let idle = pass.fresh && self.look(place, CompletionGlance::at(now)).is_idle();
        if idle {
            self.stamp_idle(place.device, now, true);
        }
        drop(guard);
        if idle && self.control.lease().bell {
            host.ring();
        }
    }

    /// A launch that was let through is with the driver, or refused.
    fn taken(&self, device: DeviceSlot) {
        let entering = self.state.get(device, DeviceWord::Entering);
        self.state.set(device, DeviceWord::Entering, entering.saturating_sub(1));
    }

    /// Enters a launch that the driver has taken, and marks it if that is due.
    ///
    /// Returns true beside the grant if the daemon may take the process for idle otherwise.
    pub(super) fn enter(
        &self,
        place: LaunchTarget,
        work: Work,
        pass: Pass,
        launch: &impl Launch,
    ) -> (Grant, bool) {
        let lease = Lease::decode(pass.word);
        let guard = self.state.turn();
        let spacing = self.spacing_ns(place.device, lease, pass);
        self.taken(place.device);
        let learnt = self.is_learnt(work);
        let cost = self.add(place.device, work);
        let so_far = self.unmarked_ns(place.device);
        let due = pass.fresh || pass.watched || !learnt || so_far >= spacing;
        let placed =
            if due { self.place_mark(place, work, so_far.saturating_add(cost), Some(pass)) } else { None };
        drop(guard);
        self.submit(placed, launch);
        // While the driver took it, all else may have ended. What the daemon saw before the mark was there is seen here.
        fence(SeqCst);
        let reached = |own| self.pending_marks().all(|other| other == own || self.is_reached(other));
        let is_alone = placed.is_some_and(reached);
        let behind = if placed.is_some() { 0 } else { so_far };
        let every = pass.watched || due && placed.is_none();
        let grant = self.grant(place.device, pass.word, spacing.saturating_sub(behind), every);
        (grant, pass.fresh || is_alone)
    }

    /// GPU time between two marks, in nanoseconds.
    ///
    /// A thread that waits for room sees a mark reached while there is still work behind it. If the lease requests no
    /// signals, no other slice wants the GPU, and few marks suffice. A mark does not cover work in other
    /// streams, so that with several streams each launch that is not too brief is marked.
    fn spacing_ns(&self, device: DeviceSlot, lease: Lease, pass: Pass) -> u64 {
        let depth_ns = u64::from(lease.depth_us) * 1000;
        if !lease.bell {
            return (depth_ns / (MARKS_IN_DEPTH / 2)).max(SPACING_NS.min(depth_ns / 2));
        }
        let several = pass.streams > 1 || self.state.get(device, DeviceWord::Streams) > 1;
        let kernel = self.kernel_ns();
        // Of streams that run side by side, a kernel is charged a part of its length only.
        let length = if self.is_wide(device) { kernel.max(self.alone_ns(device)) } else { kernel };
        if several && length >= BRIEF_NS {
            return kernel;
        }
        (depth_ns / MARKS_IN_DEPTH).max(SPACING_NS.min(depth_ns / 2))
    }

    fn submit(&self, placed: Option<u32>, launch: &impl Launch) {
        let Some(sequence) = placed else { return };
        if launch.mark(sequence) {
            self.state.mark(sequence as usize % MARKS, About::Taken).store(sequence.into(), Relaxed);
        } else {
            self.record.marks().finish(sequence);
        }
    }

    /// A thread is about to wait: what no mark stands behind would never be found done meanwhile.
    pub(super) fn mark_tail(&self, place: LaunchTarget, spent: Spent, launch: &impl Launch) {
        let guard = self.state.turn();
        self.count(spent);
        let any = self.unmarked(place.device) > 0;
        let estimate = self.unmarked_ns(place.device);
        let placed = if any { self.place_mark(place, Work::Kernel, estimate, None) } else { None };
        drop(guard);
        self.submit(placed, launch);
    }

    /// Writes a mark down behind all that has none; nothing if the ring is full.
    fn place_mark(
        &self,
        place: LaunchTarget,
        work: Work,
        estimate_ns: u64,
        pass: Option<Pass>,
    ) -> Option<u32> {
        let sequence = self.free_sequence()?;
        let at = sequence as usize % MARKS;
        let Unmarked { kernels, moved, like } = self.take_unmarked(place.device);
        let (graph, graphs) = match work {
            Work::Graph(graph) => (if moved > 0 { SEVERAL } else { graph }, moved + 1),
            _ => (like, moved),
        };
        let set = |about, value| self.state.mark(at, about).store(value, Relaxed);
        set(About::Sequence, sequence.into());
        set(About::Device, place.device.index() as u64);
        set(About::Context, place.context);
        set(About::Kernels, kernels);
        set(About::Graph, graph);
        set(About::Graphs, graphs);
        set(About::Estimate, estimate_ns);
        self.date_mark(at, place, pass);
        self.note_stream(place);
        let estimate_us = u32::try_from(estimate_ns / 1000).unwrap_or(u32::MAX);
        self.record.marks().submit(CompletionMark { sequence, device: place.device, estimate_us });
        self.state.sequence().store(sequence.into(), Relaxed);
        self.state.set_pending(at, true);
        Some(sequence)
    }

    /// Counts marks since one stood in another stream than the mark before it.
    fn note_stream(&self, place: LaunchTarget) {
        let (before, stream) =
            (self.state.get(place.device, DeviceWord::LastStream), place.stream.wrapping_add(1).max(1));
        self.state.set(place.device, DeviceWord::LastStream, stream);
        let alike = match before {
            0 => SURELY_ONE,
            _ if before == stream => self.state.get(place.device, DeviceWord::Alike) + 1,
            _ => 0,
        };
        self.state.set(place.device, DeviceWord::Alike, alike.min(SURELY_ONE));
        let streams = if alike >= SURELY_ONE { 1 } else { 2 };
        self.record.tally(Tally::Streams).store(streams, Relaxed);
    }

    /// Tests if no place is left for a mark.
    pub(super) fn is_ring_full(&self) -> bool {
        self.free_sequence().is_none()
    }

    /// The next number whose place in the ring is free.
    ///
    /// Marks of streams that run side by side are not reached in order, so that the place of the next number may be taken
    /// where most others are free.
    fn free_sequence(&self) -> Option<u32> {
        let (last, pending) =
            (self.state.sequence().load(Relaxed) as u32, self.state.pending().load(Relaxed));
        let mut next = (1..=MARKS as u32).map(|more| last.wrapping_add(more));
        next.find(|sequence| pending >> (*sequence as usize % MARKS) & 1 == 0)
    }

    /// Time at which a mark's stream came to it, as far as that is known.
    fn date_mark(&self, at: usize, place: LaunchTarget, pass: Option<Pass>) {
        let of = |of| self.state.get(place.device, of);
        let before = self
            .state
            .pending_on(place.device)
            .find(|other| *other != at && self.state.about(*other, About::Stream) == place.stream);
        let (start, foreign) = match before {
            Some(other) => (self.state.about(other, About::Start), self.state.about(other, About::Foreign)),
            None => {
                self.state.add(place.device, DeviceWord::Streams, 1);
                (of(DeviceWord::Clock), of(DeviceWord::Foreign))
            }
        };
        let set = |about, value| self.state.mark(at, about).store(value, Relaxed);
        set(About::Stream, place.stream);
        set(About::Start, start);
        set(About::Foreign, foreign);
        let came = pass.filter(|pass| pass.streams > 0);
        self.spare(place.device, came.map_or(0, |pass| pass.streams));
        set(About::Came, came.map_or(0, |pass| pass.now));
        set(About::Streams, came.map_or(0, |pass| pass.streams));
        set(About::Entered, of(DeviceWord::Entered));
    }

    /// Launches of a thread until the next mark is due.
    fn grant(&self, device: DeviceSlot, word: u64, left_ns: u64, full: bool) -> Grant {
        let kernel = self.kernel_ns();
        if full || kernel == 0 || !super::passes(Lease::decode(word)) {
            return Grant::NONE;
        }
        // One less: the launch that makes the mark due comes here.
        let launches = (left_ns.div_ceil(kernel)).saturating_sub(1).min(MOST_GRANTED);
        Grant { turn: Lease::turn(word), launches: launches as u32, device: Some(device) }
    }
}
