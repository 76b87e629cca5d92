//! Ring buffers of the latest events.
//!
//! Warnings and errors have a buffer of their own, so frequent routine events never evict them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Event, EventKind, Happening, Severity};
use crate::id::SliceName;

/// The latest events, and counts of all.
#[derive(Clone, Debug)]
pub struct EventHistory {
    most: usize,
    next: u64,
    routine: VecDeque<Event>,
    remarkable: VecDeque<Event>,
    counts: BTreeMap<(EventKind, Option<SliceName>), u64>,
}

impl EventHistory {
    /// An empty history with room for `most` routine and `most` other events.
    pub const fn keeping(most: usize) -> Self {
        Self { most, next: 1, routine: VecDeque::new(), remarkable: VecDeque::new(), counts: BTreeMap::new() }
    }

    /// Adds an event of an earlier daemon, and continues its numbering.
    pub fn recall(&mut self, event: Event) {
        self.next = self.next.max(event.seq.saturating_add(1));
        self.keep(event);
    }

    /// Counts an event, whether or not it is entered.
    pub fn count(&mut self, happening: &Happening) {
        let count = self.counts.entry((happening.kind.clone(), happening.slice.clone())).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds an event under the next sequence number.
    pub fn enter(&mut self, happening: Happening, now_unix_ms: u64) -> &Event {
        let Happening { kind, slice, gpu, pid, actor, cause, evidence } = happening;
        let (seq, severity) = (self.next, kind.severity());
        self.next = self.next.saturating_add(1);
        let time_unix_ms = now_unix_ms;
        self.keep(Event { seq, time_unix_ms, severity, kind, slice, gpu, pid, actor, cause, evidence })
    }

    fn keep(&mut self, event: Event) -> &Event {
        let routine = event.severity == Severity::Info;
        let ring = if routine { &mut self.routine } else { &mut self.remarkable };
        if ring.len() >= self.most.max(1) {
            ring.pop_front();
        }
        ring.push_back(event);
        &ring[ring.len() - 1]
    }

    /// Sequence number of the latest event; 0 before the first.
    pub const fn last(&self) -> u64 {
        self.next - 1
    }

    /// The buffered events after `seq`, in order.
    pub fn after(&self, seq: u64) -> Vec<Event> {
        let rings = [&self.routine, &self.remarkable];
        let new = |ring: &VecDeque<Event>| ring.partition_point(|event| event.seq <= seq);
        let mut events: Vec<Event> =
            rings.into_iter().flat_map(|ring| ring.range(new(ring)..).cloned()).collect();
        events.sort_by_key(|event| event.seq);
        events
    }

    /// Number of events by kind and slice since this history was created.
    pub const fn counts(&self) -> &BTreeMap<(EventKind, Option<SliceName>), u64> {
        &self.counts
    }

    /// Drops the counts of a deleted slice, which bounds their number.
    pub fn forget_counts(&mut self, slice: &SliceName) {
        self.counts.retain(|(_, of), _| of.as_ref() != Some(slice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = EventKind> {
        proptest::sample::select(EventKind::KNOWN)
    }

    fn seqs(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.seq).collect()
    }

    proptest! {
        #[test]
        fn history_holds_latest_of_each_class_in_order(
            kinds in proptest::collection::vec(kind(), 0..60), most in 1usize..9, since in 0u64..70,
        ) {
            let mut history = EventHistory::keeping(most);
            for kind in &kinds {
                let happening = Happening::new(kind.clone(), "");
                history.count(&happening);
                history.enter(happening, 7);
            }
            prop_assert_eq!(history.last(), kinds.len() as u64);
            let numbered = || (1u64..).zip(&kinds);
            let newest = |routine: bool| {
                let sort = numbered().filter(move |(_, kind)| (kind.severity() == Severity::Info) == routine);
                let all: Vec<u64> = sort.map(|(seq, _)| seq).collect();
                all[all.len().saturating_sub(most)..].to_vec()
            };
            let mut expected = [newest(true), newest(false)].concat();
            expected.retain(|seq| *seq > since);
            expected.sort_unstable();
            prop_assert_eq!(seqs(&history.after(since)), expected);
            prop_assert_eq!(history.counts().values().sum::<u64>(), kinds.len() as u64);
        }

        #[test]
        fn recalled_events_precede_new_ones(
            kinds in proptest::collection::vec(kind(), 1..20),
        ) {
            let mut earlier = EventHistory::keeping(50);
            for kind in kinds {
                earlier.enter(Happening::new(kind, "then"), 7);
            }
            let mut history = EventHistory::keeping(50);
            for event in earlier.after(0) {
                history.recall(event);
            }
            prop_assert!(history.counts().is_empty());
            let seq = history.enter(Happening::new(EventKind::DaemonStarted, "now"), 3).seq;
            prop_assert_eq!(seq, earlier.last() + 1);
            prop_assert_eq!(&history.after(0)[..seq as usize - 1], &earlier.after(0)[..]);
        }
    }
}
