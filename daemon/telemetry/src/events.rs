//! Event history: in memory for queries and followers, in the log, and in a file for the next daemon.
//!
//! Recording never blocks. A failure of the file delays nothing on the node, and an event that the file lacks is
//! still delivered to followers.

mod file;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::watch;
use tranche_domain::event::{
    Event, EventHistory, EventKind, Happening, Severity, Throttle, ThrottleDecision,
};
use tranche_domain::id::SliceName;

use file::Copy;
use tranche_linux::clock::now_unix_ms;

/// Number of events retained of the more severe ones, and of the others.
const RETAINED: usize = 2048;

/// Event history of the node.
#[derive(Debug)]
pub struct Events {
    state: Mutex<EventsState>,
    since: Instant,
    /// Number of the last event; `None` once the daemon is ending.
    last_event: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct EventsState {
    history: EventHistory,
    throttle: Throttle,
    copy: Copy,
}

impl Events {
    /// Opens the history with the events that an earlier daemon left in the state directory.
    pub fn open(state: &Path) -> Self {
        let mut history = EventHistory::keeping(RETAINED);
        let (copy, earlier) = Copy::open(state);
        earlier.into_iter().for_each(|event| history.recall(event));
        let last_event = watch::Sender::new(Some(history.last()));
        let state = EventsState { history, throttle: Throttle::default(), copy };
        Self { state: Mutex::new(state), since: Instant::now(), last_event }
    }

    fn state(&self) -> MutexGuard<'_, EventsState> {
        self.state.lock().expect("nothing panics while it holds the book of events")
    }

    /// Records an event at the present time, unless its kind is being throttled.
    pub fn record(&self, draft: Happening) {
        let mut state = self.state();
        state.history.count(&draft);
        let slice = draft.slice.as_ref();
        let ThrottleDecision::Heard { held_back } =
            state.throttle.pass(&draft.kind, slice, self.since.elapsed())
        else {
            return;
        };
        state.enter(with_suppressed_count(draft, held_back));
        if let Some(trouble) = state.copy.trouble() {
            state.enter(Happening::new(EventKind::HistoryIncomplete, trouble));
        }
        let last = state.history.last();
        drop(state);
        self.last_event.send_if_modified(|last_event| {
            last_event.as_mut().map(|last_event| *last_event = last).is_some()
        });
    }

    /// Retained events with numbers greater than `seq`.
    pub fn after(&self, seq: u64) -> Vec<Event> {
        self.state().history.after(seq)
    }

    /// Number of events of each kind since the daemon started, by slice; without those of deleted slices.
    pub fn counts(&self) -> BTreeMap<(EventKind, Option<SliceName>), u64> {
        self.state().history.counts().clone()
    }

    /// Drops the counts of a deleted slice.
    pub fn forget(&self, slice: &SliceName) {
        self.state().history.forget_counts(slice);
    }

    /// Receiver that changes with each event.
    pub fn subscribe(&self) -> watch::Receiver<Option<u64>> {
        self.last_event.subscribe()
    }

    /// Ends all followers' streams.
    pub fn end_followers(&self) {
        self.last_event.send_replace(None);
    }

    /// Flushes the file and closes it; later events are not written to it.
    pub fn stop(&self) {
        self.state().copy.close();
    }
}

impl EventsState {
    fn enter(&mut self, draft: Happening) {
        let event = self.history.enter(draft, now_unix_ms());
        log(event);
        self.copy.write(event);
    }
}

fn with_suppressed_count(draft: Happening, held_back: u64) -> Happening {
    if held_back == 0 {
        return draft;
    }
    let evidence = format!("{} (and {held_back} more like it before)", draft.evidence);
    Happening { evidence, ..draft }
}

/// Logs an event with the fields that it has in the history.
fn log(event: &Event) {
    let Event { seq, kind, slice, gpu, pid, actor, cause, evidence, .. } = event;
    let actor = actor.as_ref().map(tracing::field::display);
    let cause = cause.as_ref().map(tracing::field::display);
    let slice = slice.as_ref().map(tracing::field::display);
    let (gpu, pid) = (gpu.map(tracing::field::display), pid.map(tracing::field::display));
    macro_rules! log_at {
        ($level:ident) => { tracing::$level!(event = %kind, seq, slice, gpu, pid, actor, cause, "{evidence}") };
    }
    match event.severity {
        Severity::Info => log_at!(info),
        Severity::Warning => log_at!(warn),
        Severity::Error => log_at!(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_persist_across_daemons() {
        let state = tempfile::tempdir().unwrap();
        let name = "a".parse().unwrap();
        let events = Events::open(state.path());
        events.record(Happening::new(EventKind::DaemonStarted, "first"));
        events.record(Happening::new(EventKind::SliceCreated, "half a GPU").of(&name));
        let seen = events.after(0);
        drop(events); // writes what is left to write
        let events = Events::open(state.path());
        assert_eq!(events.after(0), seen);
        events.record(Happening::new(EventKind::DaemonStarted, "second"));
        assert_eq!(events.after(2)[0].seq, 3);
        assert_eq!(events.counts().len(), 1, "what an earlier daemon saw is not counted");
    }

    #[test]
    fn follower_receives_each_event_and_the_end() {
        let state = tempfile::tempdir().unwrap();
        let events = Events::open(state.path());
        let mut turns = events.subscribe();
        events.record(Happening::new(EventKind::DaemonStarted, ""));
        assert!(turns.has_changed().unwrap() && *turns.borrow_and_update() == Some(1));
        events.end_followers();
        assert_eq!(*turns.borrow_and_update(), None);
    }

    #[test]
    fn unwritable_file_is_reported_once() {
        let state = tempfile::tempdir().unwrap();
        std::fs::create_dir(state.path().join("events.jsonl")).unwrap();
        let events = Events::open(state.path());
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        let incomplete = || {
            let events = events.after(0);
            events.into_iter().filter(|event| event.kind == EventKind::HistoryIncomplete).count()
        };
        while incomplete() == 0 && Instant::now() < deadline {
            events.record(Happening::new(EventKind::DaemonStarted, ""));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        events.record(Happening::new(EventKind::DaemonStopped, ""));
        std::thread::sleep(std::time::Duration::from_millis(50));
        events.record(Happening::new(EventKind::SliceDeleted, ""));
        assert_eq!(incomplete(), 1);
        assert!(events.after(0).iter().any(|event| event.kind == EventKind::SliceDeleted));
    }
}
