//! Events as a stream: those that are kept, then each as it happens.

use std::sync::Arc;

use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tranche_domain::id::SliceName;
use tranche_rpc::v1;

use crate::access::Follower;
use crate::agent::Agent;

/// How many events may be on their way to somebody who follows. Whoever is slower than that is waited for by nobody.
const ON_THEIR_WAY: usize = 64;

/// What is to be told.
pub(super) struct Wanted {
    /// Events after that number.
    pub(super) since: u64,
    /// Of this slice alone.
    pub(super) slice: Option<SliceName>,
    /// Also those to come, until the daemon ends.
    pub(super) follow: bool,
}

type Told = Result<v1::Event, Status>;

/// The events that are wanted, for as long as they are followed.
pub(super) fn events(agent: &Arc<Agent>, wanted: Wanted, follower: Follower) -> ReceiverStream<Told> {
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

async fn tell_all(agent: &Agent, wanted: Wanted, tell: &Sender<Told>) {
    let Wanted { since: mut last, slice, follow } = wanted;
    let mut changes = agent.events.subscribe();
    loop {
        // Before the look: what happens after it is another turn.
        let goes_on = changes.borrow_and_update().is_some();
        for event in agent.events.after(last) {
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
