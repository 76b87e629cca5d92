//! What is outstanding and how long it takes: marks placed and found reached, times learnt from both.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tranche_shm::DeviceSlot;
use tranche_shm::compute::{MARKS, Mark, Tally};
use tranche_shm::lease::Lease;

use super::state::{About, Of, SEVERAL};
use super::{
    Awaited, Gate, Grant, Host, Launch, MARKS_IN_DEPTH, MOST_GRANTED, Pending, Place, SPACING_NS,
    UNKNOWN_LAUNCHES, Work,
};

/// So many completions, or so long a time, make a measurement.
const ENOUGH: u64 = 4;
const LONG_NS: u64 = 2_000_000;

/// What a process has outstanding on a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// GPU time, as estimated.
    estimate_ns: u64,
    launches: u64,
    /// Marks that are pending.
    marks: u64,
    /// Launches done since the process began.
    pub(super) done: u64,
    /// Of some of it nobody knows yet how long it takes.
    unknown: bool,
}

impl Waiting {
    /// Whether one more launch may join.
    pub(super) fn fits(self, lease: Lease) -> bool {
        let shallow = self.estimate_ns < u64::from(lease.depth_us) * 1000;
        self.launches < u64::from(lease.least.max(1))
            || shallow && (!self.unknown || self.launches < UNKNOWN_LAUNCHES)
    }

    /// By how much it is too deep.
    pub(super) fn excess_ns(self, lease: Lease) -> u64 {
        self.estimate_ns.saturating_sub(u64::from(lease.depth_us) * 1000)
    }

    const fn is_idle(self) -> bool {
        self.marks == 0 && self.launches == 0
    }
}

impl Gate<'_> {
    fn kernel_ns(&self) -> u64 {
        self.record.tally(Tally::KernelNs).load(Relaxed)
    }

    /// Launches that a thread made by itself.
    pub(super) fn count(&self, device: DeviceSlot, launches: u32) {
        if launches > 0 {
            self.record.tally(Tally::Launches).fetch_add(launches.into(), Relaxed);
            self.state.device(device, Of::Unmarked).fetch_add(launches.into(), Relaxed);
            let estimate = u64::from(launches).saturating_mul(self.kernel_ns());
            self.state.device(device, Of::Stretch).fetch_add(estimate, Relaxed);
        }
    }

    /// What is outstanding on a device now.
    pub(super) fn look(&self, device: DeviceSlot, host: &impl Host) -> Waiting {
        host.refresh();
        let _turn = self.state.turn();
        self.look_held(device, host.now_ns(), false)
    }

    /// `exact` says that the driver has just said so: whoever sleeps and looks comes late.
    fn look_held(&self, device: DeviceSlot, now: u64, exact: bool) -> Waiting {
        let before = self.state.get(device, Of::Done);
        let kernel = self.kernel_ns();
        let unmarked = self.state.get(device, Of::Unmarked);
        let mut seen = Waiting {
            launches: unmarked,
            estimate_ns: unmarked.saturating_mul(kernel),
            unknown: unmarked > 0 && kernel == 0,
            ..Waiting::default()
        };
        for place in places(self.state.pending().load(Relaxed)) {
            self.look_at(place, device, &mut seen);
        }
        seen.done = self.state.get(device, Of::Done);
        if seen.done != before {
            self.measure(device, now, exact || seen.marks > 0, exact);
            let running = if seen.marks > 0 { now } else { 0 };
            if self.state.get(device, Of::Start) == 0 {
                self.state.set(device, Of::Start, running);
            }
        }
        seen
    }

    /// Takes note of a mark that was reached; one that was not is added to what is outstanding.
    fn look_at(&self, place: usize, device: DeviceSlot, seen: &mut Waiting) {
        let about = |about| self.state.mark(place, about).load(Relaxed);
        let (sequence, kernels, graph) =
            (about(About::Sequence) as u32, about(About::Kernels), about(About::Graph));
        let launches = kernels + u64::from(graph != 0);
        let Some(there) = DeviceSlot::new(about(About::Device) as usize) else { return };
        if self.record.marks().done(sequence).load(Acquire) as u32 == sequence {
            self.state.pending().fetch_and(!(1 << place), Relaxed);
            self.state.device(there, Of::Done).fetch_add(launches, Relaxed);
            self.state.device(there, Of::Kernels).fetch_add(kernels, Relaxed);
            if graph != 0 {
                let one = self.state.device(there, Of::Graphs).fetch_add(1, Relaxed) == 0;
                let same = one || self.state.get(there, Of::Graph) == graph;
                self.state.set(there, Of::Graph, if same { graph } else { SEVERAL });
            }
        } else if there == device {
            seen.launches += launches;
            seen.marks += 1;
            seen.estimate_ns = seen.estimate_ns.saturating_add(about(About::Estimate));
            seen.unknown |= about(About::Estimate) == 0;
        }
    }

    /// Learns from what was done since the measurement began. What is not `solid` was done at some time before now,
    /// so that it took this long at most.
    fn measure(&self, device: DeviceSlot, now: u64, solid: bool, exact: bool) {
        let of = |of| self.state.get(device, of);
        let (start, kernels, graphs) = (of(Of::Start), of(Of::Kernels), of(Of::Graphs));
        let elapsed = now.saturating_sub(start);
        let enough = exact || !solid || kernels + graphs >= ENOUGH || elapsed >= LONG_NS;
        if start != 0 && !enough {
            return;
        }
        if start != 0 && graphs == 0 && kernels > 0 {
            self.learn_kernel(elapsed / kernels, solid);
        } else if start != 0 && graphs > 0 && of(Of::Graph) != SEVERAL {
            let theirs = elapsed.saturating_sub(kernels.saturating_mul(self.kernel_ns()));
            self.learn_graph(of(Of::Graph), theirs / graphs, solid);
        }
        self.begin_measuring(device, 0);
    }

    fn begin_measuring(&self, device: DeviceSlot, start: u64) {
        self.state.set(device, Of::Start, start);
        for of in [Of::Kernels, Of::Graphs, Of::Graph] {
            self.state.set(device, of, 0);
        }
    }

    fn learn_kernel(&self, sample: u64, solid: bool) {
        let kernel = self.record.tally(Tally::KernelNs);
        kernel.store(learnt(kernel.load(Relaxed), sample, solid), Relaxed);
        self.note_length(sample);
    }

    fn note_length(&self, sample: u64) {
        let longest = self.record.tally(Tally::LongestNs);
        let before = longest.load(Relaxed);
        longest.store(sample.max(before - before / 64), Relaxed);
    }

    fn learn_graph(&self, graph: u64, sample: u64, solid: bool) {
        let cost = learnt(self.state.graph_ns(graph).unwrap_or(0), sample, solid);
        self.state.set_graph_ns(graph, cost);
        self.note_length(sample);
    }

    /// A launch is about to begin: says whether it is the first after an idle time.
    pub(super) fn begin(&self, device: DeviceSlot, word: u64, host: &impl Host) -> bool {
        let now = host.now_ns();
        let guard = self.state.turn();
        let turn = u64::from(Lease::turn(word)) + 1;
        let same_turn = self.state.get(device, Of::Turn) == turn;
        if !same_turn {
            self.state.set(device, Of::Turn, turn);
            self.begin_measuring(device, 0);
        }
        self.close_gap(device, now);
        let fresh = self.record.busy_since_ns(device).load(Relaxed) == 0;
        if fresh {
            self.record.busy_since_ns(device).store(now.max(1), Release);
            self.state.set(device, Of::Stretch, 0);
            // Whoever had the GPU before may be on it still: then the first completion is where to begin.
            let alone = same_turn || self.kernel_ns() == 0;
            self.begin_measuring(device, if alone { now } else { 0 });
        }
        drop(guard);
        if fresh && Lease::decode(word).bell {
            host.ring();
        }
        fresh
    }

    /// A program that never waits for its work is found to have had none for a while only now.
    fn close_gap(&self, device: DeviceSlot, now: u64) {
        let since = self.record.busy_since_ns(device).load(Relaxed);
        let seen = self.look_held(device, now, false);
        let stretch = self.state.get(device, Of::Stretch);
        let mostly_idle = now.saturating_sub(since) > stretch.saturating_mul(2).saturating_add(LONG_NS);
        if since != 0 && seen.marks == 0 && (seen.launches == 0 || mostly_idle) {
            self.state.set(device, Of::Unmarked, 0);
            self.stamp_idle(device, now, false);
        }
    }

    /// Nothing is outstanding on a device any more. Without an `exact` end, what was launched is charged and not
    /// the time that passed until somebody looked.
    fn stamp_idle(&self, device: DeviceSlot, now: u64, exact: bool) {
        let since = self.record.busy_since_ns(device).swap(0, Release);
        let elapsed = now.saturating_sub(since);
        let likely = self.state.get(device, Of::Stretch).saturating_add(SPACING_NS);
        let busy = if exact || elapsed <= likely.saturating_mul(2) { elapsed } else { likely };
        if since != 0 {
            self.record.busy_ns(device).fetch_add(busy, Release);
        }
        self.begin_measuring(device, 0);
    }

    /// The first launch after an idle time failed: there is nothing after all.
    pub(super) fn end(&self, device: DeviceSlot, host: &impl Host) {
        let guard = self.state.turn();
        let idle = self.look_held(device, host.now_ns(), false).is_idle();
        if idle {
            self.stamp_idle(device, host.now_ns(), true);
        }
        drop(guard);
        if idle && self.control.lease().bell {
            host.ring();
        }
    }

    /// Enters a launch that the driver has taken, and marks it if that is due.
    pub(super) fn enter(
        &self,
        place: Place,
        work: Work,
        word: u64,
        fresh: bool,
        launch: &impl Launch,
    ) -> Grant {
        let lease = Lease::decode(word);
        let depth_ns = u64::from(lease.depth_us) * 1000;
        let spacing = (depth_ns / MARKS_IN_DEPTH).max(SPACING_NS);
        let guard = self.state.turn();
        let (unmarked, cost) = self.add(place.device, work);
        let kernel = self.kernel_ns();
        let so_far = unmarked.saturating_mul(kernel);
        let due = fresh || kernel == 0 || matches!(work, Work::Graph(_)) || so_far >= spacing;
        let placed = if due { self.place_mark(place, work, so_far.saturating_add(cost)) } else { None };
        drop(guard);
        if let Some(sequence) = placed
            && !launch.mark(sequence)
        {
            self.record.marks().finish(sequence);
        }
        let behind = if placed.is_some() { 0 } else { so_far };
        self.grant(word, spacing.saturating_sub(behind), due && placed.is_none())
    }

    /// Counts a launch: gives the kernels that no mark stands behind, and what the graph takes if it is one.
    fn add(&self, device: DeviceSlot, work: Work) -> (u64, u64) {
        self.record.tally(Tally::Launches).fetch_add(1, Relaxed);
        let cost = match work {
            Work::Kernel => {
                self.state.device(device, Of::Unmarked).fetch_add(1, Relaxed);
                self.kernel_ns()
            }
            Work::Graph(graph) => {
                self.record.tally(Tally::Graphs).fetch_add(1, Relaxed);
                self.state.graph_ns(graph).unwrap_or_else(|| self.kernel_ns())
            }
        };
        self.state.device(device, Of::Stretch).fetch_add(cost, Relaxed);
        let unmarked = self.state.get(device, Of::Unmarked);
        (unmarked, if work == Work::Kernel { 0 } else { cost })
    }

    /// Writes a mark down behind all that has none; nothing if the ring is full.
    fn place_mark(&self, place: Place, work: Work, estimate_ns: u64) -> Option<u32> {
        let sequence = (self.state.sequence().load(Relaxed) as u32).wrapping_add(1);
        let at = sequence as usize % MARKS;
        if self.state.pending().load(Relaxed) >> at & 1 != 0 {
            return None;
        }
        let graph = if let Work::Graph(graph) = work { graph } else { 0 };
        let kernels = self.state.device(place.device, Of::Unmarked).swap(0, Relaxed);
        let set = |about, value| self.state.mark(at, about).store(value, Relaxed);
        set(About::Sequence, sequence.into());
        set(About::Device, place.device.index() as u64);
        set(About::Context, place.context);
        set(About::Kernels, kernels);
        set(About::Graph, graph);
        set(About::Estimate, estimate_ns);
        let estimate_us = u32::try_from(estimate_ns / 1000).unwrap_or(u32::MAX);
        self.record.marks().submit(Mark { sequence, device: place.device, estimate_us });
        self.state.sequence().store(sequence.into(), Relaxed);
        self.state.pending().fetch_or(1 << at, Relaxed);
        Some(sequence)
    }

    /// What a thread may launch until the next mark is due.
    fn grant(&self, word: u64, left_ns: u64, full: bool) -> Grant {
        let kernel = self.kernel_ns();
        if full || kernel == 0 || !super::passes(Lease::decode(word)) {
            return Grant::NONE;
        }
        // One less: the launch that makes the mark due comes here.
        let launches = (left_ns.div_ceil(kernel)).saturating_sub(1).min(MOST_GRANTED);
        Grant { turn: Lease::turn(word), launches: launches as u32 }
    }

    /// What is pending: to be asked before the program waits.
    pub fn pending(&self) -> Pending {
        let any = self.state.pending().load(Relaxed) != 0;
        Pending { any, last: self.state.sequence().load(Relaxed) as u32 }
    }

    /// The program has waited. `spent` is what the thread has launched by itself; `before` what was pending when
    /// the wait began.
    pub fn waited(&self, spent: u32, what: Awaited, place: Place, before: Pending, host: &impl Host) {
        host.refresh();
        self.count(place.device, spent);
        let now = host.now_ns();
        let guard = self.state.turn();
        if what == Awaited::Context {
            self.finish(place.context, before.last);
        }
        if what != Awaited::Event {
            self.state.set(place.device, Of::Unmarked, 0);
        }
        let idle = self.look_held(place.device, now, before.any).is_idle()
            && self.record.busy_since_ns(place.device).load(Relaxed) != 0;
        if idle {
            self.stamp_idle(place.device, now, before.any);
        }
        drop(guard);
        if idle && self.control.lease().bell {
            host.ring();
        }
    }

    /// The context is gone, and what it had outstanding with it.
    pub fn context_gone(&self, context: u64) {
        let _turn = self.state.turn();
        self.finish(context, self.state.sequence().load(Relaxed) as u32);
    }

    /// The graph is gone; its handle may come again for another.
    pub fn graph_gone(&self, graph: u64) {
        let _turn = self.state.turn();
        if self.state.graph_ns(graph).is_some() {
            self.state.set_graph_ns(graph, 0);
        }
    }

    /// Marks of a context are reached, up to the last that there was.
    fn finish(&self, context: u64, last: u32) {
        for place in places(self.state.pending().load(Relaxed)) {
            let sequence = self.state.mark(place, About::Sequence).load(Relaxed) as u32;
            let before = last.wrapping_sub(sequence) < u32::MAX / 2;
            if before && self.state.mark(place, About::Context).load(Relaxed) == context {
                self.record.marks().finish(sequence);
            }
        }
    }

    /// The numbers of marks that are pending, for a host that has to ask about each.
    pub fn pending_marks(&self) -> impl Iterator<Item = u32> {
        let state = self.state;
        places(state.pending().load(Relaxed))
            .map(move |place| state.mark(place, About::Sequence).load(Relaxed) as u32)
    }
}

/// The places whose bits are set.
fn places(pending: u64) -> impl Iterator<Item = usize> {
    (0..MARKS).filter(move |place| pending >> place & 1 != 0)
}

/// A better estimate. What took so long at most can only lower it.
fn learnt(before: u64, sample: u64, solid: bool) -> u64 {
    let after = match before {
        0 if solid => sample,
        0 => sample.min(LONG_NS),
        _ if solid && sample >= before / 4 => before - before / 4 + sample / 4,
        _ => before.min(before / 2 + sample / 2),
    };
    after.max(1)
}
