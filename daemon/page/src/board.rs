//! The published state: parts of the page, ready to send, and the interest of viewers in newer ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::element::Element;

/// Time for which a request keeps the state up to date, longer than a page without script waits.
const INTEREST: Duration = Duration::from_secs(12);
/// Age at which a state is no longer handed out without waiting for a newer one.
const STALE: Duration = Duration::from_millis(2500);
/// Longest wait for a newer state.
const PATIENCE: Duration = Duration::from_secs(3);

/// A part of the page, as HTML and as JSON.
#[derive(Clone, Debug)]
pub(crate) struct PublishedPart {
    pub(crate) id: String,
    pub(crate) html: Arc<str>,
    pub(crate) json: Arc<str>,
    /// Number of the state in which it became as it is.
    pub(crate) changed: u64,
}

/// One state of everything that is served.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// Number of the state, from 0, which is empty.
    pub(crate) number: u64,
    at: Instant,
    pub(crate) parts: Vec<PublishedPart>,
    /// Overview of the own node in JSON; without it the reason.
    pub(crate) own: Result<Arc<str>, String>,
}

/// The newest state, which the refresher replaces and requests read.
#[derive(Debug)]
pub(crate) struct Board {
    newest: watch::Sender<Arc<Published>>,
    streams: AtomicUsize,
    last_request: Mutex<Option<Instant>>,
    wake: Notify,
}

/// A viewer with a stream of events, until dropped.
#[derive(Debug)]
pub(crate) struct Viewer(Arc<Board>);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Board {
    /// A board with an empty state.
    pub(crate) fn new() -> Self {
        let own = Err("nothing has been read yet".to_owned());
        let empty = Published { number: 0, at: Instant::now(), parts: Vec::new(), own };
        let newest = watch::Sender::new(Arc::new(empty));
        Self { newest, streams: AtomicUsize::new(0), last_request: Mutex::default(), wake: Notify::new() }
    }

    fn last_request(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last_request.lock().expect("nothing panics while it holds the time")
    }

    /// Replaces the state; parts that are as before keep their number.
    pub(crate) fn publish(&self, parts: &[(String, Element)], own: Result<String, String>) {
        self.newest.send_modify(|newest| {
            let number = newest.number + 1;
            let part = |(id, element): &(String, Element)| {
                let json = element.json().to_string();
                let before = newest.parts.iter().find(|part| part.id == *id && *part.json == *json);
                before.cloned().unwrap_or_else(|| PublishedPart {
                    id: id.clone(),
                    html: element.to_string().into(),
                    json: json.into(),
                    changed: number,
                })
            };
            let parts = parts.iter().map(part).collect();
            *newest = Arc::new(Published { number, at: Instant::now(), parts, own: own.map(Into::into) });
        });
    }

    /// The newest state, after a wait of at most three seconds if it is stale.
    pub(crate) async fn fresh(&self) -> Arc<Published> {
        *self.last_request() = Some(Instant::now());
        let mut newest = self.newest.subscribe();
        let is_fresh = |state: &Arc<Published>| state.number > 0 && state.at.elapsed() < STALE;
        if !is_fresh(&newest.borrow()) {
            self.wake.notify_one();
            let _ = timeout(PATIENCE, newest.wait_for(is_fresh)).await; // or the last known state
        }
        Arc::clone(&newest.borrow())
    }

    /// Counts a viewer, if there are fewer than `most`, with the states that follow.
    pub(crate) fn watch(self: &Arc<Self>, most: usize) -> Option<(Viewer, watch::Receiver<Arc<Published>>)> {
        let count = |streams: usize| (streams < most).then_some(streams + 1);
        self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).ok()?;
        let viewer = Viewer(Arc::clone(self));
        self.wake.notify_one();
        Some((viewer, self.newest.subscribe()))
    }

    /// Tests if there is a viewer or was one a moment ago.
    pub(crate) fn is_watched(&self) -> bool {
        let recent = self.last_request().is_some_and(|at| at.elapsed() < INTEREST);
        recent || self.streams.load(Ordering::Relaxed) > 0
    }

    /// Completes when a viewer wants a state that is newer than there is.
    pub(crate) async fn wanted(&self) {
        self.wake.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::element;

    #[test]
    fn parts_keep_the_number_of_their_last_change() {
        let board = Board::new();
        let parts = |text: &str| {
            ["a", "b"].map(|id| (id.to_owned(), element("p").text(if id == "a" { "x" } else { text })))
        };
        board.publish(&parts("1"), Ok("{}".into()));
        board.publish(&parts("2"), Ok("{}".into()));
        let newest = board.newest.borrow();
        assert_eq!(newest.parts.iter().map(|part| part.changed).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn streams_are_counted_while_they_last() {
        let board = Arc::new(Board::new());
        assert!(!board.is_watched());
        let first = board.watch(1);
        assert!(board.is_watched() && board.watch(1).is_none());
        drop(first);
        assert!(!board.is_watched() && board.watch(1).is_some());
    }
}
