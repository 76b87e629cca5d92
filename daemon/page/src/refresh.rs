//! The loops that read the daemon and other nodes, often while there are viewers and seldom without.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::board::Board;
use crate::daemon::{DaemonClient, ReadError, Reading};
use crate::gather::gather;
use crate::nodes::{NodeState, OtherNode};
use crate::render::{ShownNode, parts};
use crate::time::now_unix_ms;
use crate::usage::DayOfUse;
use crate::users::UserNames;

/// Time between two states while there are viewers.
const OFTEN: Duration = Duration::from_secs(2);
/// Time between two samples of GPUs without viewers.
const SELDOM: Duration = Duration::from_secs(15);
/// Time between two readings of another node without viewers.
const SELDOM_OTHERS: Duration = Duration::from_secs(30);
/// Least time without work, as a multiple of the time that a reading took.
///
/// Reading ten thousand jobs is work for the daemon, too.
const REST: u32 = 20;

/// State that the refresher keeps between two rounds.
#[derive(Debug, Default)]
struct Keeping {
    day: DayOfUse,
    names: UserNames,
    own: NodeState,
}

/// Publishes states of the own node and of the others until the task is aborted.
pub(crate) async fn refresh(board: Arc<Board>, socket: &Path, name: String, others: Vec<Arc<OtherNode>>) {
    let mut client = DaemonClient::new(socket);
    let keeping = Arc::new(Mutex::new(Keeping::default()));
    loop {
        let begin = Instant::now();
        if !board.is_watched() {
            if let Ok(node) = client.sample().await {
                enter(&mut held(&keeping).day, &node);
            }
            // A viewer who came meanwhile is noted there, too.
            tokio::select! { () = sleep(SELDOM) => {}, () = board.wanted() => {} }
            continue;
        }
        let reading = client.read().await;
        let took = begin.elapsed();
        let (published, kept) = (Arc::clone(&board), Arc::clone(&keeping));
        let (name, others) = (name.clone(), others.clone());
        // Names are looked up there, which may wait for a directory service.
        let work = move || publish(&published, &kept, reading, &name, &others);
        let _ = tokio::task::spawn_blocking(work).await; // a panic there is printed, and the next round tries again
        let pause = OFTEN.saturating_sub(begin.elapsed()).max(took.saturating_mul(REST).min(SELDOM));
        sleep(pause).await;
    }
}

/// Reads another node again and again until the task is aborted.
pub(crate) async fn follow(board: Arc<Board>, node: Arc<OtherNode>) {
    loop {
        let begin = Instant::now();
        let reader = Arc::clone(&node);
        let _ = tokio::task::spawn_blocking(move || reader.read()).await;
        while begin.elapsed() < if board.is_watched() { OFTEN } else { SELDOM_OTHERS } {
            sleep(Duration::from_millis(250)).await;
        }
    }
}

fn held(keeping: &Mutex<Keeping>) -> std::sync::MutexGuard<'_, Keeping> {
    // After a panic in the middle of a round the next one replaces what it left.
    keeping.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn enter(day: &mut DayOfUse, node: &tranche_domain::view::NodeView) {
    for gpu in &node.gpus {
        if let Some(percent) = gpu.utilization_percent {
            day.enter(gpu.uuid, percent, now_unix_ms());
        }
    }
}

fn publish(
    board: &Board,
    keeping: &Mutex<Keeping>,
    reading: Result<Reading, ReadError>,
    name: &str,
    others: &[Arc<OtherNode>],
) {
    let mut keeping = held(keeping);
    let Keeping { day, names, own } = &mut *keeping;
    let gathered = reading.map(|reading| {
        enter(day, &reading.node);
        gather(&reading, day, names, now_unix_ms())
    });
    own.enter(gathered.map_err(|error| error.to_string()));
    let json = match (&own.last, &own.failure) {
        (Some((overview, _)), None) => serde_json::to_string(&**overview).map_err(|error| error.to_string()),
        (_, failure) => Err(failure.clone().unwrap_or_default()),
    };
    let states: Vec<NodeState> = others.iter().map(|node| node.state()).collect();
    let own = shown(name, own);
    let rest = others.iter().zip(&states).map(|(node, state)| shown(&node.address.name, state));
    let nodes: Vec<ShownNode<'_>> = std::iter::once(own).chain(rest).collect();
    board.publish(&parts(&nodes), json);
}

fn shown<'a>(name: &'a str, state: &'a NodeState) -> ShownNode<'a> {
    let last = state.last.as_ref().map(|(overview, at)| (&**overview, at.elapsed()));
    ShownNode { name, last, failure: state.failure.as_deref() }
}
