//! The thread that looks after tenants: their sockets, what they ask, and their end.
//!
//! All of that takes microseconds, and hundreds of processes may begin and end in the same moment. On one thread nobody
//! has to be woken to pass them on to, and no call of the operator's stands in their way. What may take longer, such as
//! the driver and the disk, is left to other threads.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long work that was left to other threads may take to end. A look at a GPU that hangs must not keep us from ending.
const LAST_WORK: Duration = Duration::from_secs(1);

/// The thread; it ends, with all that runs on it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Attendant {
    work: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Attendant {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let work = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("attendant".into()).spawn(move || {
            let _ = runtime.block_on(stopped); // or whoever would have said so is gone
            runtime.shutdown_timeout(LAST_WORK);
        })?;
        Ok(Self { work, stop: Some(stop), thread: Some(thread) })
    }

    /// Where its work is given to it.
    pub(crate) fn work(&self) -> Handle {
        self.work.clone()
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what panicked there has been reported
        }
    }
}
