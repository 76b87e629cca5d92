//! What happened here: kept in memory for whoever asks, told to whoever follows, written to the log, and to a file for
//! the next daemon.
//!
//! Law: recording is never waited for. Nothing that happens to the file keeps anything from happening on the node, and
//! an event that the file did not get is still told.

mod file;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::watch;
use tranche_domain::event::{Event, Happening, History, Kind, Pass, Severity, Throttle};
use tranche_domain::id::SliceName;

use crate::clock::now_unix_ms;
use file::Copy;

/// How many events are kept of those to care about, and of the others.
const KEPT: usize = 2048;

/// The history of the node.
#[derive(Debug)]
pub(crate) struct Events {
    book: Mutex<Book>,
    since: Instant,
    /// The number of the last event; nothing once the daemon is to end.
    turn: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct Book {
    history: History,
    throttle: Throttle,
    copy: Copy,
}

impl Events {
    /// With what an earlier daemon left in the state directory.
    pub(crate) fn open(state: &Path) -> Self {
        let mut history = History::keeping(KEPT);
        let (copy, earlier) = Copy::open(state);
        earlier.into_iter().for_each(|event| history.recall(event));
        let turn = watch::Sender::new(Some(history.last()));
        let book = Book { history, throttle: Throttle::default(), copy };
        Self { book: Mutex::new(book), since: Instant::now(), turn }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nothing panics while it holds the book of events")
    }

    /// Takes note of what happens now.
    pub(crate) fn record(&self, happening: Happening) {
        let mut book = self.book();
        book.history.count(&happening);
        let slice = happening.slice.as_ref();
        let Pass::Heard { held_back } = book.throttle.pass(&happening.kind, slice, self.since.elapsed())
        else {
            return;
        };
        book.enter(and_more(happening, held_back));
        if let Some(trouble) = book.copy.trouble() {
            book.enter(Happening::new(Kind::HistoryIncomplete, trouble));
        }
        let last = book.history.last();
        drop(book);
        self.turn.send_if_modified(|turn| turn.as_mut().map(|turn| *turn = last).is_some());
    }

    /// What is kept of the events after that number.
    pub(crate) fn after(&self, seq: u64) -> Vec<Event> {
        self.book().history.after(seq)
    }

    /// How often each kind of event happened since the daemon began, by slice; those of slices that are gone are not
    /// counted any more.
    pub(crate) fn counts(&self) -> BTreeMap<(Kind, Option<SliceName>), u64> {
        self.book().history.counts().clone()
    }

    /// A slice is gone.
    pub(crate) fn forget(&self, slice: &SliceName) {
        self.book().history.forget_counts(slice);
    }

    /// Tells whenever there is another event.
    pub(crate) fn turns(&self) -> watch::Receiver<Option<u64>> {
        self.turn.subscribe()
    }

    /// Tells everybody who follows that there will be no more for them.
    pub(crate) fn end_following(&self) {
        self.turn.send_replace(None);
    }

    /// Has written what is left to write; what happens from now on is not.
    pub(crate) fn stop(&self) {
        self.book().copy.close();
    }
}

impl Book {
    fn enter(&mut self, happening: Happening) {
        let event = self.history.enter(happening, now_unix_ms());
        log(event);
        self.copy.write(event);
    }
}

fn and_more(happening: Happening, held_back: u64) -> Happening {
    if held_back == 0 {
        return happening;
    }
    let evidence = format!("{} (and {held_back} more like it before)", happening.evidence);
    Happening { evidence, ..happening }
}

/// In the log, an event has the fields that it has in the history.
fn log(event: &Event) {
    let Event { seq, kind, slice, gpu, pid, actor, evidence, .. } = event;
    let actor = actor.as_ref().map(tracing::field::display);
    let slice = slice.as_ref().map(tracing::field::display);
    let (gpu, pid) = (gpu.map(tracing::field::display), pid.map(tracing::field::display));
    macro_rules! say {
        ($level:ident) => { tracing::$level!(event = %kind, seq, slice, gpu, pid, actor, "{evidence}") };
    }
    match event.severity {
        Severity::Info => say!(info),
        Severity::Warning => say!(warn),
        Severity::Error => say!(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_daemon_knows_what_this_one_saw() {
        let state = tempfile::tempdir().unwrap();
        let name = "a".parse().unwrap();
        let events = Events::open(state.path());
        events.record(Happening::new(Kind::DaemonStarted, "first"));
        events.record(Happening::new(Kind::SliceCreated, "half a GPU").of(&name));
        let seen = events.after(0);
        drop(events); // writes what is left to write
        let events = Events::open(state.path());
        assert_eq!(events.after(0), seen);
        events.record(Happening::new(Kind::DaemonStarted, "second"));
        assert_eq!(events.after(2)[0].seq, 3);
        assert_eq!(events.counts().len(), 1, "what an earlier daemon saw is not counted");
    }

    #[test]
    fn whoever_follows_is_told_of_each_event_and_of_the_end() {
        let state = tempfile::tempdir().unwrap();
        let events = Events::open(state.path());
        let mut turns = events.turns();
        events.record(Happening::new(Kind::DaemonStarted, ""));
        assert!(turns.has_changed().unwrap() && *turns.borrow_and_update() == Some(1));
        events.end_following();
        assert_eq!(*turns.borrow_and_update(), None);
    }

    #[test]
    fn what_cannot_be_written_is_told_all_the_same_and_the_trouble_once() {
        let state = tempfile::tempdir().unwrap();
        std::fs::create_dir(state.path().join("events.jsonl")).unwrap();
        let events = Events::open(state.path());
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        let incomplete = || {
            let events = events.after(0);
            events.into_iter().filter(|event| event.kind == Kind::HistoryIncomplete).count()
        };
        while incomplete() == 0 && Instant::now() < deadline {
            events.record(Happening::new(Kind::DaemonStarted, ""));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        events.record(Happening::new(Kind::DaemonStopped, ""));
        std::thread::sleep(std::time::Duration::from_millis(50));
        events.record(Happening::new(Kind::SliceDeleted, ""));
        assert_eq!(incomplete(), 1);
        assert!(events.after(0).iter().any(|event| event.kind == Kind::SliceDeleted));
    }
}
