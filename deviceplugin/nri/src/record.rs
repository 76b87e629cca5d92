//! Slices that are being made or have to end, and the last container of each.
//!
//! A slice that is being made is not ended, and one that is being ended is not made: its name is refused meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::id::SliceName;
use tranche_domain::pod::PodUid;
use tranche_domain::view::SliceView;

use crate::name;

/// The last container of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastContainer {
    /// Uid of its pod.
    pub(crate) pod: PodUid,
    /// Id of its sandbox: a pod's sandbox may be replaced.
    pub(crate) sandbox: String,
    /// Id of the container.
    pub(crate) id: String,
    /// Time of creation in nanoseconds; `i64::MAX` for one that is just created.
    pub(crate) created_at: i64,
    /// True once it has stopped.
    pub(crate) stopped: bool,
}

/// Slices that have to end: those of a pod's sandbox, or one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ended {
    Sandbox(PodUid, String),
    Slice(SliceName),
}

/// The record, which is empty at the start and completed at each registration.
#[derive(Debug, Default)]
pub(crate) struct SliceRecord {
    made: BTreeSet<SliceName>,
    ended_now: BTreeSet<SliceName>,
    ending: BTreeSet<Ended>,
    last: BTreeMap<SliceName, LastContainer>,
    /// Slices of the containers that the runtime listed; `None` once all others have ended.
    kept: Option<BTreeSet<SliceName>>,
}

impl SliceRecord {
    /// Begins to make a slice, unless it is being ended.
    pub(crate) fn begin(&mut self, slice: &SliceName) -> bool {
        let may = !self.ended_now.contains(slice);
        if may {
            self.made.insert(slice.clone());
            // The end of an earlier sandbox of this pod no longer concerns it.
            self.last.remove(slice);
            self.ending.remove(&Ended::Slice(slice.clone()));
            if let Some(kept) = &mut self.kept {
                kept.insert(slice.clone());
            }
        }
        may
    }

    /// Ends the making, with the container that has the slice if it was made.
    pub(crate) fn done(&mut self, slice: &SliceName, container: Option<LastContainer>) {
        self.made.remove(slice);
        if let Some(container) = container {
            self.last.insert(slice.clone(), container);
        }
    }

    /// Enters a container of before, unless a later one has the slice.
    pub(crate) fn hold(&mut self, slice: SliceName, container: LastContainer) {
        if self.last.get(&slice).is_none_or(|last| last.created_at < container.created_at) {
            self.last.insert(slice, container);
        }
    }

    /// Notes that a container has stopped.
    pub(crate) fn stop(&mut self, id: &str) {
        if let Some(last) = self.last.values_mut().find(|last| last.id == id) {
            last.stopped = true;
        }
    }

    /// Slices of the pod's other containers that have stopped.
    pub(crate) fn stopped(&self, pod: &PodUid) -> Vec<SliceName> {
        let stopped = self.last.iter().filter(|(_, last)| last.stopped && last.pod == *pod);
        stopped.map(|(slice, _)| slice.clone()).collect()
    }

    /// Has the slices of a pod's sandbox ended.
    pub(crate) fn end_sandbox(&mut self, pod: PodUid, sandbox: &str) {
        self.ending.insert(Ended::Sandbox(pod, sandbox.to_owned()));
    }

    /// Has the slice of a removed container ended, unless a later one has it.
    ///
    /// The kubelet keeps the last container of each name as long as the pod.
    pub(crate) fn remove(&mut self, slice: &SliceName, id: &str) {
        if self.last.get(slice).is_some_and(|last| last.id == id) {
            self.last.remove(slice);
            self.ending.insert(Ended::Slice(slice.clone()));
        }
    }

    /// Has all slices but these ended that no process uses.
    pub(crate) fn keep(&mut self, mut kept: BTreeSet<SliceName>) {
        kept.extend(self.made.iter().cloned());
        self.kept = Some(kept);
    }

    /// Excepts a slice that a process uses.
    pub(crate) fn except(&mut self, slice: &SliceName) {
        if let Some(kept) = &mut self.kept {
            kept.insert(slice.clone());
        }
    }

    /// Slices that have to end, of those that there are, and whether with their processes. They count as being ended.
    pub(crate) fn due(&mut self, slices: &[SliceView]) -> Vec<(SliceName, bool)> {
        let ours: Vec<(&SliceName, &PodUid)> =
            slices.iter().filter_map(|slice| Some((&slice.name, name::pod(slice)?))).collect();
        let last = &self.last;
        let includes = |one: &Ended, (slice, pod): (&SliceName, &PodUid)| match one {
            Ended::Sandbox(uid, sandbox) => {
                uid == pod && last.get(slice).is_none_or(|last| last.sandbox == *sandbox)
            }
            Ended::Slice(name) => name == slice,
        };
        // What is there no longer has ended.
        self.ending.retain(|one| ours.iter().any(|slice| includes(one, *slice)));
        let unused = |slice: &SliceName| self.kept.as_ref().is_some_and(|kept| !kept.contains(slice));
        let mut due = Vec::new();
        for (slice, pod) in ours.into_iter().filter(|(slice, _)| !self.made.contains(slice)) {
            let forced = self.ending.iter().any(|one| includes(one, (slice, pod)));
            if forced || unused(slice) {
                due.push((slice.clone(), forced));
            }
        }
        if due.iter().all(|(_, forced)| *forced) {
            self.kept = None;
        }
        self.ended_now = due.iter().map(|(slice, _)| slice.clone()).collect();
        due
    }

    /// Notes that the attempt to end a slice is over.
    pub(crate) fn over(&mut self, slice: &SliceName) {
        self.ended_now.remove(slice);
    }
}

#[cfg(test)]
mod tests;
