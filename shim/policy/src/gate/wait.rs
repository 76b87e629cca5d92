//! Waits of the program, after which the work waited for is no longer outstanding.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use tranche_shm::{DeviceSlot, MAX_DEVICES};

use super::measure::CompletionGlance;
use super::state::{About, DeviceWord, places};
use super::{Awaited, Gate, Host, LaunchTarget, Pending, Spent};

/// A wait that takes so long ends with what was waited for. What has ended before is waited for in no time.
const WAITED_NS: u64 = 10_000;

impl Gate<'_> {
    /// The pending work, read before the program waits.
    ///
    /// Marks reached before are excluded: the time at which they were reached is unknown.
    pub fn pending(&self, host: &impl Host) -> Pending {
        let mut pending = self.pending_marks();
        let any = pending.any(|sequence| !self.is_reached(sequence));
        Pending { any, asked: host.now_ns(), ..self.last() }
    }

    /// The last mark, read before the program queries if its work is done.
    pub fn last(&self) -> Pending {
        Pending { any: false, last: self.state.sequence().load(Acquire) as u32, asked: 0 }
    }

    /// The program has waited. `spent` is what the thread has launched by itself; `before` what was pending when
    /// the wait began.
    pub fn waited(
        &self,
        spent: Spent,
        what: Awaited,
        place: LaunchTarget,
        before: Pending,
        host: &impl Host,
    ) {
        let now = self.now(host);
        let guard = self.state.turn();
        self.count(spent);
        match what {
            Awaited::Context => self.finish_context(place.context, before.last),
            // A word may come after the driver's own, and what the daemon does not know is charged.
            Awaited::Stream => self.finish(before.last, |at| {
                self.is_taken(at) && self.state.about(at, About::Stream) == place.stream
            }),
            Awaited::Event => {}
        }
        let stream = if what == Awaited::Stream { place.stream } else { 0 };
        let through = what != Awaited::Event;
        let exact = before.any || before.asked != 0 && now.saturating_sub(before.asked) >= WAITED_NS;
        let seen = self.look(place, CompletionGlance { now, stream, exact, through });
        let idle = seen.is_idle() && self.record.busy_since_ns(place.device).load(Relaxed) != 0;
        if idle {
            self.stamp_idle(place.device, now, exact);
        }
        drop(guard);
        if idle && self.control.lease().bell {
            host.ring();
        }
    }

    /// The context is gone, and what it had outstanding with it.
    pub fn context_gone(&self, context: u64) {
        let _turn = self.state.turn();
        self.finish_context(context, self.state.sequence().load(Relaxed) as u32);
    }

    /// The stream is about to be destroyed: its work runs on, and another may have its handle.
    ///
    /// The marks of that work get a number that no stream has.
    pub fn stream_ends(&self, stream: u64) {
        let _turn = self.state.turn();
        let own = |place: &usize| self.state.about(*place, About::Stream) == stream;
        let pending = || places(self.state.pending().load(Relaxed));
        // Of a mark of its own, so that it is no other stream's.
        let Some(orphaned) = pending().find(own).map(|place| !self.state.about(place, About::Sequence))
        else {
            return;
        };
        pending()
            .filter(own)
            .for_each(|place| self.state.mark(place, About::Stream).store(orphaned, Relaxed));
        for device in (0..MAX_DEVICES).filter_map(DeviceSlot::new) {
            if self.state.get(device, DeviceWord::LastStream) == stream.wrapping_add(1) {
                self.state.set(device, DeviceWord::LastStream, orphaned);
            }
        }
    }

    /// The graph is gone; its handle may come again for another.
    pub fn graph_gone(&self, graph: u64) {
        let _turn = self.state.turn();
        if self.state.graph_ns(graph).is_some() {
            self.state.set_graph_ns(graph, 0);
        }
    }

    fn finish_context(&self, context: u64, last: u32) {
        self.finish(last, |at| self.state.about(at, About::Context) == context);
    }

    /// Ends the marks of a kind, up to the last that there was.
    fn finish(&self, last: u32, of: impl Fn(usize) -> bool) {
        for place in places(self.state.pending().load(Relaxed)) {
            let sequence = self.state.about(place, About::Sequence) as u32;
            if last.wrapping_sub(sequence) < u32::MAX / 2 && of(place) {
                self.record.marks().finish(sequence);
            }
        }
    }

    /// Numbers of the pending marks, for a host that queries each of them.
    pub fn pending_marks(&self) -> impl Iterator<Item = u32> {
        let state = self.state;
        places(state.pending().load(Relaxed))
            .map(move |place| state.mark(place, About::Sequence).load(Relaxed) as u32)
    }
}
