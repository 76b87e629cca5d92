//! Reporter of node events. It never blocks the plugin: events that cannot be queued are counted and dropped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;
use tranche_adapter::LastProblem;

use crate::kubernetes::{Account, PostError};
use crate::metrics::Counters;
use crate::node_events::{EventState, Limiter, NodeEvent, RACES_EVERY};
use crate::resource_manager::ResourceManager;

/// Maximum number of queued events.
const WAITING: usize = 32;
/// Pauses before further attempts.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// An event with its time.
type Dispatch = (NodeEvent, SystemTime);

/// Reports until the task is aborted; logs once if reporting is impossible.
pub(crate) async fn report(manager: Arc<ResourceManager>) {
    if !manager.config.events {
        return;
    }
    let outbox = Account::find(&manager.config.service_account_dir).map_err(|error| error.to_string());
    let outbox =
        outbox.and_then(|account| open(account, &manager.counters).map_err(|error| error.to_string()));
    let outbox = match outbox {
        Ok(outbox) => outbox,
        Err(why) => {
            tracing::info!(
                "no events are sent to Kubernetes: {why}; `events = false` says that none should be"
            );
            return;
        }
    };
    let (mut pictures, mut races) = (manager.pictures(), manager.counters.races());
    let (begun, mut told, mut limiter) = (Instant::now(), EventState::default(), Limiter::new());
    loop {
        let (picture, lost) = (Arc::clone(&pictures.borrow_and_update()), *races.borrow_and_update());
        for news in told.news(&picture, lost, begun.elapsed()) {
            if limiter.allows(begun.elapsed()) {
                hand_over(&outbox, news, &manager.counters);
            } else {
                manager.counters.kubernetes_event("dropped");
            }
        }
        tokio::select! {
            changed = pictures.changed() => if changed.is_err() { return },
            changed = races.changed() => if changed.is_err() { return },
            // Wakes up for races that were held back.
            () = sleep(RACES_EVERY) => {}
        }
    }
}

fn hand_over(outbox: &SyncSender<Dispatch>, news: NodeEvent, counters: &Counters) {
    if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
        outbox.try_send((news, SystemTime::now()))
    {
        counters.kubernetes_event("dropped");
    }
}

/// Starts the thread that posts, so that only it waits for the API server.
fn open(account: Account, counters: &Arc<Counters>) -> std::io::Result<SyncSender<Dispatch>> {
    let (outbox, inbox) = sync_channel(WAITING);
    let counters = Arc::clone(counters);
    thread::Builder::new().name("events".into()).spawn(move || post_all(&account, &inbox, &counters))?;
    Ok(outbox)
}

fn post_all(account: &Account, inbox: &Receiver<Dispatch>, counters: &Counters) {
    let mut problem = LastProblem::default();
    while let Ok((news, at)) = inbox.recv() {
        match post_patiently(account, &news, at, &mut problem) {
            Ok(()) => counters.kubernetes_event("posted"),
            Err(error) => {
                counters.kubernetes_event("failed");
                complain(&mut problem, &error);
            }
        }
    }
}

fn post_patiently(
    account: &Account,
    news: &NodeEvent,
    at: SystemTime,
    problem: &mut LastProblem,
) -> Result<(), PostError> {
    for pause in PAUSES {
        match account.post(news, at) {
            Err(error) if error.may_pass() => complain(problem, &error),
            Err(error) => return Err(error),
            Ok(()) => {
                problem.over();
                return Ok(());
            }
        }
        thread::sleep(pause);
    }
    account.post(news, at)
}

fn complain(problem: &mut LastProblem, error: &PostError) {
    problem.complain(error, |error| tracing::warn!("an event cannot be sent to Kubernetes: {error}"));
}
