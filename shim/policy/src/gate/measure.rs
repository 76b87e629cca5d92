//! Lengths of launches, learnt from the times at which their marks were found reached.
//!
//! Streams run side by side, so the time between two completions is the length of neither. Each device has a
//! clock that goes slower the more streams have work: a launch is charged the time on that clock between the end of
//! the launch before it in its stream and its own. These charges add up to the time in which there was work, so that
//! the sum over outstanding launches is about the time until they are done.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use tranche_shm::DeviceSlot;
use tranche_shm::compute::Tally;

use super::Gate;
use super::state::{About, DeviceWord, SEVERAL, places};
use super::unmarked::Unmarked;

/// Completions that make a measurement, if less time passed than [`LONG_NS`].
const ENOUGH: u64 = 4;
const LONG_NS: u64 = 2_000_000;
/// Divisor of an estimate: the step by which a measurement with shared marks lowers it at most.
const SHARED_STEP: u64 = 16;

/// A moment at which completions are looked for.
#[derive(Clone, Copy)]
pub(super) struct CompletionGlance {
    pub(super) now: u64,
    /// Stream that the driver has just reported as done; 0 for none.
    pub(super) stream: u64,
    /// The time is that of a driver call, not of a later look by a thread that slept.
    pub(super) exact: bool,
    /// Launches without a mark behind them are done as well.
    pub(super) through: bool,
}

impl CompletionGlance {
    pub(super) const fn at(now: u64) -> Self {
        Self { now, stream: 0, exact: false, through: false }
    }
}

impl Gate<'_> {
    /// Length of a kernel in nanoseconds; 0 while unknown.
    pub(super) fn kernel_ns(&self) -> u64 {
        self.state.kernel().load(Relaxed)
    }

    /// Length of a launch of any kind in nanoseconds; 0 while unknown.
    pub(super) fn launch_ns(&self) -> u64 {
        self.record.tally(Tally::KernelNs).load(Relaxed)
    }

    /// Brings a device's clock up to now.
    fn advance(&self, device: DeviceSlot, now: u64) {
        let passed = now.saturating_sub(self.state.get(device, DeviceWord::Looked));
        if passed > 0 {
            let streams = self.state.get(device, DeviceWord::Streams).max(1);
            self.state.add(device, DeviceWord::Clock, passed / streams);
            self.state.set(device, DeviceWord::Looked, now);
            self.state.set(device, DeviceWord::Glance, passed);
        }
    }

    /// Takes note of all marks that were reached; gives how many streams of a device have some pending.
    pub(super) fn collect(&self, device: DeviceSlot, glance: CompletionGlance) -> u64 {
        let before = self.state.get(device, DeviceWord::Done);
        self.advance(device, glance.now);
        self.overtake();
        for place in places(self.state.pending().load(Relaxed)) {
            let sequence = self.state.about(place, About::Sequence) as u32;
            if self.is_reached(sequence)
                && let Some(there) = DeviceSlot::new(self.state.about(place, About::Device) as usize)
            {
                self.advance(there, glance.now);
                self.note_done(place, there, glance);
            }
        }
        let streams = self.state.get(device, DeviceWord::Streams);
        let unmarked = if glance.through { self.take_unmarked(device) } else { Unmarked::default() };
        if self.state.get(device, DeviceWord::Done) != before {
            if streams == 0 {
                // They are done within the time that was taken for those with marks.
                self.state.add(device, DeviceWord::Done, unmarked.kernels + unmarked.moved);
                self.state.add(device, DeviceWord::Kernels, unmarked.kernels);
                self.note_alike(device, unmarked.like, unmarked.moved);
            }
            // Who looks often sees little too late.
            let just_now =
                self.state.get(device, DeviceWord::Glance) <= self.state.get(device, DeviceWord::Cost) / 4;
            // What is learnt for each by itself is learnt before another kind comes in between.
            let alike = just_now && !matches!(self.state.get(device, DeviceWord::Graph), 0 | SEVERAL);
            self.measure(
                device,
                glance.exact || streams > 0 || just_now,
                glance.exact || streams == 0 || alike,
            );
        }
        streams
    }

    pub(super) fn is_reached(&self, sequence: u32) -> bool {
        self.record.marks().done(sequence).load(Acquire) as u32 == sequence
    }

    /// Finishes marks behind which another in their stream was reached: their own words may come later.
    fn overtake(&self) {
        let pending = self.state.pending().load(Relaxed);
        let sequence = |place| self.state.about(place, About::Sequence) as u32;
        let taken = |place: &usize| self.is_taken(*place);
        let mut reached = 0;
        places(pending)
            .filter(|place| self.is_reached(sequence(*place)))
            .for_each(|place| reached |= 1 << place);
        if reached == 0 || reached == pending {
            return;
        }
        for late in places(pending & !reached).filter(taken) {
            let stream = self.state.about(late, About::Stream);
            let passed = places(reached).filter(taken).any(|place| {
                self.state.about(place, About::Stream) == stream
                    && sequence(place).wrapping_sub(sequence(late)) < u32::MAX / 2
            });
            if passed {
                self.record.marks().finish(sequence(late));
            }
        }
    }

    /// Tests if the driver has taken a pending mark.
    ///
    /// One that it refused shows nothing of those before it, and the place of one that it may still write must not be used again.
    pub(super) fn is_taken(&self, place: usize) -> bool {
        self.state.about(place, About::Taken) == self.state.about(place, About::Sequence)
    }

    /// A mark was reached.
    fn note_done(&self, place: usize, device: DeviceSlot, glance: CompletionGlance) {
        let about = |about| self.state.about(place, about);
        let (kernels, graph, clock) =
            (about(About::Kernels), about(About::Graph), self.state.get(device, DeviceWord::Clock));
        let launches = kernels + about(About::Graphs);
        self.state.set_pending(place, false);
        self.note_bound(device, about(About::Foreign) != 0, glance.now);
        self.state.add(device, DeviceWord::Done, launches);
        self.state.add(device, DeviceWord::Kernels, kernels);
        self.state.add(device, DeviceWord::Cost, clock.saturating_sub(about(About::Start)));
        self.note_alike(device, graph, about(About::Graphs));
        if launches > 1 && self.state.get(device, DeviceWord::Streams) > 1 {
            self.state.set(device, DeviceWord::Shared, 1);
        }
        if launches == 1 && about(About::Came) != 0 {
            self.learn_width(place, device, glance);
        }
        self.state.set(device, DeviceWord::Foreign, 0);
        if !self.begin_stream(device, about(About::Stream), clock) {
            let streams = self.state.get(device, DeviceWord::Streams);
            self.state.set(device, DeviceWord::Streams, streams.saturating_sub(1));
        }
    }

    /// Begins another measurement behind launches in which another may have had a part.
    ///
    /// A turn may have a few launches alone, of which the first is such a one.
    fn note_bound(&self, device: DeviceSlot, foreign: bool, now: u64) {
        let bound = self.state.get(device, DeviceWord::Bound);
        if foreign {
            self.state.set(device, DeviceWord::Bound, now);
        } else if bound != 0 && bound != now {
            self.begin_measuring(device);
        }
    }

    /// Takes in the completion of `count` graphs or transfers of one key.
    fn note_alike(&self, device: DeviceSlot, key: u64, count: u64) {
        if count > 0 {
            let first = self.state.add(device, DeviceWord::Graphs, count) == 0;
            let same = first || self.state.get(device, DeviceWord::Graph) == key;
            self.state.set(device, DeviceWord::Graph, if same { key } else { SEVERAL });
        }
    }

    /// Begins the pending work of a stream now; returns true if there is any.
    fn begin_stream(&self, device: DeviceSlot, stream: u64, clock: u64) -> bool {
        let mut any = false;
        for place in self.state.pending_on(device) {
            if self.state.about(place, About::Stream) == stream {
                self.state.mark(place, About::Start).store(clock, Relaxed);
                self.state.mark(place, About::Foreign).store(0, Relaxed);
                any = true;
            }
        }
        any
    }

    /// Learns from what was seen done in the turn that has ended: the rest ended at unknown times.
    pub(super) fn end_turn(&self, device: DeviceSlot) {
        let of = |of| self.state.get(device, of);
        if of(DeviceWord::Bound) == 0 && of(DeviceWord::Cost) >= LONG_NS / 2 {
            self.measure(device, true, true);
        }
    }

    /// A new turn has begun: until something of ours is done, another may be on the GPU.
    pub(super) fn begin_turn(&self, device: DeviceSlot) {
        self.state.set(device, DeviceWord::Foreign, 1);
        for place in self.state.pending_on(device) {
            self.state.mark(place, About::Foreign).store(1, Relaxed);
        }
        self.begin_measuring(device);
    }

    fn begin_measuring(&self, device: DeviceSlot) {
        for of in [
            DeviceWord::Kernels,
            DeviceWord::Graphs,
            DeviceWord::Graph,
            DeviceWord::Cost,
            DeviceWord::Bound,
            DeviceWord::Shared,
        ] {
            self.state.set(device, of, 0);
        }
    }

    /// Learns from what was done since the last measurement, if that is enough or all that there will be. What is not
    /// `solid` was done at some time before now, so that it took this long at most.
    fn measure(&self, device: DeviceSlot, solid: bool, all: bool) {
        let of = |of| self.state.get(device, of);
        let (kernels, graphs, cost) = (of(DeviceWord::Kernels), of(DeviceWord::Graphs), of(DeviceWord::Cost));
        let (launches, bound) = (kernels + graphs, of(DeviceWord::Bound) != 0 && self.launch_ns() != 0);
        let enough = all || launches >= ENOUGH || cost >= LONG_NS && !bound;
        if launches == 0 || !enough {
            return;
        }
        let solid = solid && !bound;
        // A mark behind launches of several streams is reached with the last of its own stream: launches count as done
        // that are not, so that each seems to take less than it does.
        let shared = of(DeviceWord::Shared) != 0;
        let learnt = |before, sample, solid| {
            let least = if shared { before - before / SHARED_STEP } else { 0 };
            learnt(before, sample, solid).max(least)
        };
        let mean = self.record.tally(Tally::KernelNs);
        mean.store(learnt(mean.load(Relaxed), cost / launches, solid), Relaxed);
        if kernels > 0 {
            // Among others they have taken all of it at most.
            let among = if self.kernel_ns() == 0 { launches } else { kernels };
            let kernel = learnt(self.kernel_ns(), cost / among, solid && graphs == 0);
            self.state.kernel().store(kernel, Relaxed);
        }
        if graphs == 0 {
            if solid {
                self.note_length(cost / kernels, cost);
            }
        } else if of(DeviceWord::Graph) != SEVERAL {
            let theirs = cost.saturating_sub(kernels.saturating_mul(self.kernel_ns()));
            let before = self.state.graph_ns(of(DeviceWord::Graph)).unwrap_or(0);
            self.state.set_graph_ns(of(DeviceWord::Graph), learnt(before, theirs / graphs, solid));
            if solid {
                self.note_length(theirs / graphs, cost);
            }
        }
        self.begin_measuring(device);
    }

    /// One of a length was seen. The longest fades by as much as time went by, so that one that comes once is forgotten
    /// about as soon among long launches as among short ones.
    fn note_length(&self, sample: u64, cost: u64) {
        let longest = self.record.tally(Tally::LongestNs);
        let before = longest.load(Relaxed);
        let faded = before - (before / 64).saturating_mul((cost / LONG_NS).clamp(1, 32));
        longest.store(sample.max(faded), Relaxed);
    }
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
