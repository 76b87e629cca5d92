//! A model of the gate in a tenant's process: what the process knows of its own work, and how late.

use std::collections::VecDeque;

/// One launch that is not known to be done.
#[derive(Clone, Copy, Debug)]
struct Flight {
    sequence: u64,
    stream: u64,
    /// What the process thinks it takes.
    estimate: u64,
    marked: bool,
    /// It is done, which the process need not know.
    done: bool,
}

/// What a process knows of its work on one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    flights: VecDeque<Flight>,
    outstanding: u64,
    since_mark: u64,
    busy: u64,
    busy_since: Option<u64>,
}

impl Account {
    /// A launch; says whether the process was idle.
    pub(crate) fn launch(&mut self, now: u64, sequence: u64, stream: u64, estimate: u64, marks: u64) -> bool {
        let idle = self.flights.is_empty();
        self.since_mark += estimate;
        let marked = idle || self.since_mark >= marks;
        if marked {
            self.since_mark = 0;
        }
        self.flights.push_back(Flight { sequence, stream, estimate, marked, done: false });
        self.outstanding += estimate;
        self.busy_since.get_or_insert(now);
        idle
    }

    /// The GPU has done a launch; says whether it also wrote that into the record.
    pub(crate) fn done(&mut self, sequence: u64) -> bool {
        let flight = self.flights.iter_mut().find(|flight| flight.sequence == sequence);
        flight.is_some_and(|flight| {
            flight.done = true;
            flight.marked
        })
    }

    /// What is up to a mark of a stream is known to be done. Says how many launches that were.
    pub(crate) fn learn(&mut self, stream: u64, up_to: u64) -> u64 {
        let before = self.flights.len();
        self.flights.retain(|flight| flight.stream != stream || flight.sequence > up_to);
        self.outstanding = self.flights.iter().map(|flight| flight.estimate).sum();
        (before - self.flights.len()) as u64
    }

    /// A thread that is about to wait marks what it has launched last. Gives the mark if it is passed already.
    pub(crate) fn mark_tail(&mut self, stream: u64) -> Option<u64> {
        let tail = self.flights.iter_mut().rfind(|flight| flight.stream == stream)?;
        tail.marked = true;
        tail.done.then_some(tail.sequence)
    }

    /// The process finds itself idle, if it is.
    pub(crate) fn settle(&mut self, now: u64) -> bool {
        let ends = self.flights.is_empty() && self.busy_since.is_some();
        if ends {
            self.busy += self.busy_since.take().map_or(0, |since| now - since);
        }
        ends
    }

    pub(crate) fn clear(&mut self, now: u64) {
        self.flights.clear();
        self.outstanding = 0;
        self.settle(now);
    }

    pub(crate) fn busy(&self, now: u64) -> u64 {
        self.busy + self.busy_since.map_or(0, |since| now - since)
    }

    pub(crate) const fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub(crate) fn launches(&self) -> usize {
        self.flights.len()
    }
}
