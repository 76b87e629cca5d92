//! Exiting processes. Ended, but their memory is not free yet, so a request that fails now may succeed soon.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tranche_domain::slice::ProcessId;

use tranche_linux::clock::monotonic_ns;
use tranche_linux::process;

use super::{Accounting, SliceRuntime};

/// Longest time for which the driver usually lists a process after its end or an `execve`.
pub const MAX_LISTED_TIME: Duration = Duration::from_secs(3);

/// Exit of an attached process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    /// Time until which its memory may become free at any moment, in nanoseconds of CLOCK_MONOTONIC.
    until_ns: u64,
    /// The driver listed it after its end.
    listed: bool,
}

/// Prospect of memory that ended processes of the slice hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// No process has ended, or each that has stays listed for longer than [`MAX_LISTED_TIME`].
    None,
    /// The driver lists a process that has ended, and may release its memory at any moment.
    Listed,
    /// A process has ended, and the driver has not been queried since.
    Unchecked,
}

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
        let usually = u64::try_from(MAX_LISTED_TIME.as_nanos()).unwrap_or(u64::MAX);
        let exit = || Exit { until_ns: monotonic_ns().saturating_add(usually), listed: false };
        accounting.exiting.entry(id).or_insert_with(exit);
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
        let departures = ended_processes.iter().map(|id| match accounting.exiting.get(id) {
            None | Some(Exit { listed: false, .. }) => Departure::Unchecked,
            Some(exit) if now_ns < exit.until_ns => Departure::Listed,
            Some(_) => Departure::None,
        });
        departures.max().unwrap_or(Departure::None)
    }

    /// Attached processes that have ended and whose memory is not free yet. One without a handle ended while no
    /// daemon was running.
    pub fn ended_processes(&self) -> BTreeSet<ProcessId> {
        let accounting = self.accounting();
        let members = accounting.life.occupants().into_iter().flat_map(|here| here.members.values());
        let (mut ended, mut handles) = (BTreeSet::new(), Vec::new());
        for id in members {
            match accounting.handles.get(id) {
                Some(handle) => handles.push(Arc::clone(handle)),
                None => drop(ended.insert(*id)),
            }
        }
        drop(accounting);
        let polled = handles.iter().zip(process::ended(&handles));
        ended.extend(polled.filter(|(_, ended)| *ended).map(|(handle, _)| handle.id));
        ended
    }
}
