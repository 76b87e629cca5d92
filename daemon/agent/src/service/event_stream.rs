//! Streams of events: retained ones, then new ones as they occur.

use std::sync::Arc;

use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tranche_domain::id::SliceName;
use tranche_rpc::v1;

use crate::access::Follower;
use crate::agent::Agent;

/// Events that may be buffered for a follower; a slower one delays only its own stream.
const ON_THEIR_WAY: usize = 64;

/// Selection of events by number and slice.
pub(super) struct EventSelection {
    /// Events with greater numbers.
    pub(super) since: u64,
    /// Events of this slice only.
    pub(super) slice: Option<SliceName>,
    /// Continue with new events until the daemon ends.
    pub(super) follow: bool,
}

type Told = Result<v1::Event, Status>;

/// Stream of the selected events.
pub(super) fn events(agent: &Arc<Agent>, wanted: EventSelection, follower: Follower) -> ReceiverStream<Told> {
    let (tell, told) = mpsc::channel(ON_THEIR_WAY);
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        tokio::select! {
            () = tell_all(&agent, wanted, &tell) => {}
            () = tell.closed() => {}
        }
        drop(follower);
    });
    ReceiverStream::new(told)
}

async fn tell_all(agent: &Agent, wanted: EventSelection, tell: &Sender<Told>) {
    let EventSelection { since: mut last, slice, follow } = wanted;
    let mut changes = agent.telemetry.events.subscribe();
    loop {
        // Read before the events: later ones change the value again.
        let goes_on = changes.borrow_and_update().is_some();
        for event in agent.telemetry.events.after(last) {
            last = event.seq;
            if (slice.is_none() || event.slice == slice) && tell.send(Ok(event.into())).await.is_err() {
                return;
            }
        }
        if !follow || !goes_on || changes.changed().await.is_err() {
            return;
        }
    }
}
