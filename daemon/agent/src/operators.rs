//! Server for operators. A socket that only the daemon's own user can open, served by threads that no other user's
//! connections and calls run on.
//!
//! Invariant: whatever other users do at the daemon's sockets, an operator's call waits only for the kernel's
//! scheduler, for the lock of the node's state and for the state's way to the disk.

use std::io;
use std::os::unix::net::UnixListener as BlockingListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::access;
use crate::agent::Agent;
use crate::jobs::JobsService;
use crate::server::{GRACE, routes, server};

/// One thread may wait for the node's state while the other serves.
const THREADS: usize = 2;

/// Thread of the server. The server stops with the sender of `stopping`; dropping this waits for the thread.
#[derive(Debug)]
pub(crate) struct Operators(Option<JoinHandle<()>>);

impl Operators {
    /// Serves at `listener` until `stopping` changes.
    pub(crate) fn start(
        agent: &Arc<Agent>,
        jobs: JobsService,
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
                tracing::error!(%error, "cannot answer at the operators' socket; operators use the tenants' socket");
            }
            runtime.shutdown_background();
        })?;
        Ok(Self(Some(thread)))
    }
}

impl Drop for Operators {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join(); // a panic has been reported by its hook
        }
    }
}

async fn answer(
    agent: Arc<Agent>,
    jobs: JobsService,
    listener: BlockingListener,
    stopping: watch::Receiver<bool>,
) -> Result<(), Box<dyn std::error::Error>> {
    let calls = access::incoming(Arc::clone(&agent.gate), UnixListener::from_std(listener)?);
    let (mut ending, mut deadline) = (stopping.clone(), stopping);
    let stopped = async move { drop(ending.wait_for(|stop| *stop).await) };
    let server = server().add_routes(routes(&agent, jobs)).serve_with_incoming_shutdown(calls, stopped);
    tokio::select! {
        ended = server => Ok(ended?),
        () = async {
            let _ = deadline.wait_for(|stop| *stop).await; // an error means that the sender is gone
            tokio::time::sleep(GRACE).await;
        } => Ok(()),
    }
}
