//! Worker threads for slices: their sockets, requests and processes' ends.
//!
//! Each slice has a thread with a runtime of its own, so that the kernel divides processor time among slices,
//! independent of the order in which messages arrive: however many requests one slice's processes send, a message of
//! another slice does not queue behind them. Handling a message takes microseconds. On the slice's own thread it
//! wakes no other thread, and no operator's call delays it. Work that may take longer, such as queries of the driver
//! and writes to disk, runs on blocking threads.
//!
//! Invariant: work that a slice's processes cause runs on that slice's threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tranche_domain::id::SliceName;

/// Time granted to blocking work when a thread stops. A hanging driver must not keep the daemon from ending.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest number of blocking threads of one slice.
const MAX_BLOCKING_THREADS: usize = 32;
/// Time for which an idle blocking thread is kept.
const IDLE_LIFETIME: Duration = Duration::from_secs(1);

/// A thread with a runtime; dropping it ends both.
#[derive(Debug)]
pub struct Worker {
    work: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread with its runtime.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_keep_alive(IDLE_LIFETIME)
            .build()?;
        let work = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let _ = runtime.block_on(stopped); // an error means that the sender is gone
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        })?;
        Ok(Self { work, stop: Some(stop), thread: Some(thread) })
    }

    /// Handle for spawning tasks on the thread.
    pub fn work(&self) -> Handle {
        self.work.clone()
    }

    /// Makes the thread end, without waiting.
    fn signal_stop(&mut self) {
        drop(self.stop.take());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has been reported by its hook
        }
    }
}

/// The threads of all slices.
#[derive(Clone, Debug, Default)]
pub struct Workers(Arc<Mutex<RunningTask>>);

#[derive(Debug, Default)]
struct RunningTask {
    next: u64,
    threads: BTreeMap<u64, Worker>,
}

/// Thread of one slice. It ends some time after this is dropped, which may happen on the thread itself.
#[derive(Debug)]
pub struct SliceThread {
    id: u64,
    work: Handle,
    all: Weak<Mutex<RunningTask>>,
}

impl Workers {
    /// Starts the thread of a slice.
    pub fn start(&self, slice: &SliceName) -> io::Result<SliceThread> {
        let worker = Worker::start(&format!("s:{slice}"))?;
        let work = worker.work();
        let mut running = running(&self.0);
        let id = running.next;
        running.next += 1;
        running.threads.insert(id, worker);
        Ok(SliceThread { id, work, all: Arc::downgrade(&self.0) })
    }

    /// Ends all threads and waits for them.
    pub fn end(&self) {
        let mut threads = std::mem::take(&mut running(&self.0).threads);
        threads.values_mut().for_each(Worker::signal_stop);
    }
}

impl SliceThread {
    /// Handle for spawning tasks on the thread.
    pub const fn work(&self) -> &Handle {
        &self.work
    }
}

impl Drop for SliceThread {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        let worker = running(&all).threads.remove(&self.id);
        if let Some(mut worker) = worker {
            worker.signal_stop();
            drop(worker.thread.take()); // not waited for: it may be this one
        }
    }
}

fn running(all: &Mutex<RunningTask>) -> MutexGuard<'_, RunningTask> {
    all.lock().expect("nothing panics while it holds the list of threads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn busy_slice_does_not_delay_another() {
        let all = Workers::default();
        let [busy, neighbour] = ["busy", "neighbour"].map(|name| all.start(&name.parse().unwrap()).unwrap());
        let (release, held) = channel::<()>();
        let (begun, has_begun) = channel();
        busy.work().spawn(async move {
            begun.send(()).unwrap();
            // Blocks the slice's thread.
            held.recv().unwrap();
        });
        has_begun.recv_timeout(PATIENCE).unwrap();
        // A thousand tasks wait behind the first; none precede the neighbour's.
        (0..1000).for_each(|_| drop(busy.work().spawn(async {})));
        let (answer, answered) = channel();
        for turn in 0..100 {
            let answer = answer.clone();
            neighbour.work().spawn(async move { answer.send(turn).unwrap() });
            assert_eq!(answered.recv_timeout(PATIENCE), Ok(turn));
        }
        release.send(()).unwrap();
        drop((busy, neighbour));
        all.end();
    }

    #[test]
    fn slice_thread_may_end_itself() {
        let all = Workers::default();
        let own = Arc::new(all.start(&"a".parse().unwrap()).unwrap());
        let (ended, has_ended) = channel();
        let last = Arc::clone(&own);
        own.work().spawn(async move {
            drop(last);
            ended.send(()).unwrap();
        });
        drop(own);
        has_ended.recv_timeout(PATIENCE).unwrap();
        assert!(running(&all.0).threads.is_empty());
    }

    #[test]
    fn end_drops_running_tasks() {
        let (all, dropped) = (Workers::default(), Arc::new(()));
        let own = Arc::new(all.start(&"a".parse().unwrap()).unwrap());
        let (kept, held) = (Arc::clone(&own), Arc::clone(&dropped));
        own.work().spawn(async move {
            std::future::pending::<()>().await;
            drop((kept, held));
        });
        all.end();
        assert_eq!(Arc::strong_count(&dropped), 1);
    }
}
