//! Exiting processes. Ended, but their memory is not free yet, so a request that fails now may succeed soon.

use std::collections::BTreeSet;
use std::sync::Arc;

use tranche_domain::slice::ProcessId;

use tranche_linux::clock::monotonic_ns;
use tranche_linux::process;

use super::exit::{Departure, Exit};
use super::{Accounting, SliceRuntime};

impl SliceRuntime {
    /// Marks a process as ended: its memory may become free at any moment for a while. Published to the slice's
    /// processes.
    pub fn mark_exiting(&self, id: ProcessId) {
        self.enter_exiting(&mut self.accounting(), id);
    }

    /// Notes that the driver lists a process that has ended.
    pub fn note_listed(&self, id: ProcessId) {
        if let Some(exit) = self.accounting().exiting.get_mut(&id) {
            exit.listed = true;
        }
    }

    pub(super) fn enter_exiting(&self, accounting: &mut Accounting, id: ProcessId) {
        accounting.exiting.entry(id).or_insert_with(|| Exit::at(monotonic_ns()));
        self.publish_exiting(accounting);
    }

    /// Unmarks a process whose memory is free.
    pub(super) fn remove_exiting(&self, accounting: &mut Accounting, id: ProcessId) {
        accounting.exiting.remove(&id);
        self.publish_exiting(accounting);
    }

    fn publish_exiting(&self, accounting: &Accounting) {
        let until_ns = accounting.exiting.values().map(|exit| exit.until_ns).max().unwrap_or_default();
        self.regions.control().set_departing_until(until_ns);
    }

    /// Prospect of the memory of all processes that have ended.
    pub fn departure(&self) -> Departure {
        let ended_processes = self.ended_processes();
        let (accounting, now_ns) = (self.accounting(), monotonic_ns());
        // A process that is not entered yet has only just ended.
        let of = |id| accounting.exiting.get(id).map_or(Departure::Unchecked, |exit| exit.departure(now_ns));
        ended_processes.iter().map(of).max().unwrap_or(Departure::None)
    }

    /// Attached processes that have ended and whose memory is not free yet. One without a handle ended while no
    /// daemon was running.
    pub fn ended_processes(&self) -> BTreeSet<ProcessId> {
        let accounting = self.accounting();
        let (mut ended, mut handles) = (BTreeSet::new(), Vec::new());
        for (_, id) in accounting.members() {
            match accounting.handles.get(&id) {
                Some(handle) => handles.push(Arc::clone(handle)),
                None => drop(ended.insert(id)),
            }
        }
        drop(accounting);
        let polled = handles.iter().zip(process::ended(&handles));
        ended.extend(polled.filter(|(_, ended)| *ended).map(|(handle, _)| handle.id));
        ended
    }
}
