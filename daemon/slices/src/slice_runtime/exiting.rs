//! Exiting processes. Ended, but their memory is not free yet, so a request that fails now may succeed soon.

use std::collections::BTreeSet;
use std::time::Duration;

use tranche_domain::slice::ProcessId;

use tranche_linux::clock::monotonic_ns;

use super::{Accounting, SliceRuntime};

/// Longest time for which the driver usually lists a process after its end or an `execve`.
pub const MAX_LISTED_TIME: Duration = Duration::from_secs(3);

impl SliceRuntime {
    /// Marks a process as ended: its memory may become free at any moment for a while. Published to the slice's
    /// processes.
    pub fn mark_exiting(&self, id: ProcessId) {
        self.enter_exiting(&mut self.accounting(), id);
    }

    pub(super) fn enter_exiting(&self, accounting: &mut Accounting, id: ProcessId) {
        let usually = u64::try_from(MAX_LISTED_TIME.as_nanos()).unwrap_or(u64::MAX);
        accounting.exiting.entry(id).or_insert_with(|| monotonic_ns().saturating_add(usually));
        self.publish_exiting(accounting);
    }

    /// Unmarks a process whose memory is free.
    pub(super) fn remove_exiting(&self, accounting: &mut Accounting, id: ProcessId) {
        accounting.exiting.remove(&id);
        self.publish_exiting(accounting);
    }

    fn publish_exiting(&self, accounting: &Accounting) {
        let until_ns = accounting.exiting.values().max().copied().unwrap_or_default();
        self.regions.control().set_departing_until(until_ns);
    }

    /// Returns true if memory of an ended process may become free at any moment. A process that stays listed for
    /// longer than [`MAX_LISTED_TIME`] no longer counts.
    pub fn is_any_exiting(&self) -> bool {
        let ended_processes = self.ended_processes();
        let (accounting, now_ns) = (self.accounting(), monotonic_ns());
        ended_processes.iter().any(|id| accounting.exiting.get(id).is_none_or(|until_ns| now_ns < *until_ns))
    }

    /// Attached processes that have ended and whose memory is not free yet. One without a handle ended while no
    /// daemon was running.
    pub fn ended_processes(&self) -> BTreeSet<ProcessId> {
        let accounting = self.accounting();
        let members = accounting.life.occupants().into_iter().flat_map(|here| here.members.values());
        let known: Vec<_> = members.map(|id| (*id, accounting.handles.get(id).cloned())).collect();
        drop(accounting);
        let ended = known.into_iter().filter(|(_, handle)| handle.as_ref().is_none_or(|who| !who.is_alive()));
        ended.map(|(id, _)| id).collect()
    }
}
