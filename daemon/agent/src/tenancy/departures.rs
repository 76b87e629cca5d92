//! Members that have ended and whose memory is not free yet: while there are any, a refusal may be hasty.

use std::collections::BTreeSet;

use tranche_domain::slice::ProcessId;

use crate::clock::monotonic_ns;
use crate::reaper::LISTED_AT_MOST;

use super::{Books, Tenancy};

impl Tenancy {
    /// A member was seen to have ended: its memory may come free at any moment, for a while. Its siblings are told.
    pub(crate) fn departs(&self, id: ProcessId) {
        self.enter_departure(&mut self.books(), id);
    }

    pub(super) fn enter_departure(&self, books: &mut Books, id: ProcessId) {
        let usually = u64::try_from(LISTED_AT_MOST.as_nanos()).unwrap_or(u64::MAX);
        books.departing.entry(id).or_insert_with(|| monotonic_ns().saturating_add(usually));
        self.publish_departures(books);
    }

    /// Its memory is free.
    pub(super) fn end_departure(&self, books: &mut Books, id: ProcessId) {
        books.departing.remove(&id);
        self.publish_departures(books);
    }

    fn publish_departures(&self, books: &Books) {
        let until_ns = books.departing.values().max().copied().unwrap_or_default();
        self.regions.control().set_departing_until(until_ns);
    }

    /// Whether memory of somebody who has ended may come free at any moment. Whom the driver lists for longer than
    /// that, nobody waits for.
    pub(crate) fn is_anybody_departing(&self) -> bool {
        let leaving = self.leaving();
        let (books, now_ns) = (self.books(), monotonic_ns());
        leaving.iter().any(|id| books.departing.get(id).is_none_or(|until_ns| now_ns < *until_ns))
    }

    /// The members that have ended and whose memory is not free yet. One without a handle ended while no daemon was
    /// there.
    pub(crate) fn leaving(&self) -> BTreeSet<ProcessId> {
        let books = self.books();
        let members = books.life.occupants().into_iter().flat_map(|here| here.members.values());
        let known: Vec<_> = members.map(|id| (*id, books.handles.get(id).cloned())).collect();
        drop(books);
        let ended = known.into_iter().filter(|(_, handle)| handle.as_ref().is_none_or(|who| !who.is_alive()));
        ended.map(|(id, _)| id).collect()
    }
}
