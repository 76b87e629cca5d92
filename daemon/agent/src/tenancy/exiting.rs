//! Exiting processes: ended, but their memory is not free yet, so a request that fails now may succeed soon.

use std::collections::BTreeSet;

use tranche_domain::slice::ProcessId;

use crate::clock::monotonic_ns;
use crate::reaper::LISTED_AT_MOST;

use super::{Books, Tenancy};

impl Tenancy {
    /// Marks a process as ended: its memory may become free at any moment for a while. Published to the slice's
    /// processes.
    pub(crate) fn mark_exiting(&self, id: ProcessId) {
        self.enter_exiting(&mut self.books(), id);
    }

    pub(super) fn enter_exiting(&self, books: &mut Books, id: ProcessId) {
        let usually = u64::try_from(LISTED_AT_MOST.as_nanos()).unwrap_or(u64::MAX);
        books.exiting.entry(id).or_insert_with(|| monotonic_ns().saturating_add(usually));
        self.publish_exiting(books);
    }

    /// Unmarks a process whose memory is free.
    pub(super) fn remove_exiting(&self, books: &mut Books, id: ProcessId) {
        books.exiting.remove(&id);
        self.publish_exiting(books);
    }

    fn publish_exiting(&self, books: &Books) {
        let until_ns = books.exiting.values().max().copied().unwrap_or_default();
        self.regions.control().set_departing_until(until_ns);
    }

    /// Returns true if memory of an ended process may become free at any moment. A process that stays listed for
    /// longer than [`LISTED_AT_MOST`] no longer counts.
    pub(crate) fn is_any_exiting(&self) -> bool {
        let ended_processes = self.ended_processes();
        let (books, now_ns) = (self.books(), monotonic_ns());
        ended_processes.iter().any(|id| books.exiting.get(id).is_none_or(|until_ns| now_ns < *until_ns))
    }

    /// Attached processes that have ended and whose memory is not free yet. One without a handle ended while no
    /// daemon was running.
    pub(crate) fn ended_processes(&self) -> BTreeSet<ProcessId> {
        let books = self.books();
        let members = books.life.occupants().into_iter().flat_map(|here| here.members.values());
        let known: Vec<_> = members.map(|id| (*id, books.handles.get(id).cloned())).collect();
        drop(books);
        let ended = known.into_iter().filter(|(_, handle)| handle.as_ref().is_none_or(|who| !who.is_alive()));
        ended.map(|(id, _)| id).collect()
    }
}
