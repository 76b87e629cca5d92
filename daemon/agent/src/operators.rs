//! The operators' own way to the daemon: a socket that only its own user can open, answered on threads that no other
//! user's connections and calls run on.
//!
//! Law: whatever other users do at the daemon's sockets, an operator's call waits for the kernel's scheduler and for the
//! node's state, and for nothing else.

use std::io;
use std::os::unix::net::UnixListener as BlockingListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::agent::Agent;
use crate::guest;
use crate::jobs::JobsDoor;
use crate::serve::{GRACE, routes, server};

/// One that waits for the node's state, and one beside it.
const THREADS: usize = 2;

/// The server's thread; the server ends with the sender of `stopping`, and the thread is waited for when this is dropped.
#[derive(Debug)]
pub(crate) struct Operators(Option<JoinHandle<()>>);

impl Operators {
    /// Answers at `listener` until `stopping` says to stop.
    pub(crate) fn start(
        agent: &Arc<Agent>,
        jobs: JobsDoor,
        listener: BlockingListener,
        stopping: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("operators")
            .enable_all()
            .build()?;
        let agent = Arc::clone(agent);
        let thread = thread::Builder::new().name("operators".into()).spawn(move || {
            if let Err(error) = runtime.block_on(answer(agent, jobs, listener, stopping)) {
                tracing::error!(%error, "cannot answer at the operators' socket; they use everybody's");
            }
            runtime.shutdown_background();
        })?;
        Ok(Self(Some(thread)))
    }
}

impl Drop for Operators {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join(); // what panicked there has been reported
        }
    }
}

async fn answer(
    agent: Arc<Agent>,
    jobs: JobsDoor,
    listener: BlockingListener,
    stopping: watch::Receiver<bool>,
) -> Result<(), Box<dyn std::error::Error>> {
    let calls = guest::arriving(Arc::clone(&agent.gate), UnixListener::from_std(listener)?);
    let (mut ending, mut deadline) = (stopping.clone(), stopping);
    let stopped = async move { drop(ending.wait_for(|stop| *stop).await) };
    let server = server().add_routes(routes(&agent, jobs)).serve_with_incoming_shutdown(calls, stopped);
    tokio::select! {
        ended = server => Ok(ended?),
        () = async {
            let _ = deadline.wait_for(|stop| *stop).await; // or there is no sender any more
            tokio::time::sleep(GRACE).await;
        } => Ok(()),
    }
}
