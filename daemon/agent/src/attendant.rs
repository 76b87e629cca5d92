//! The threads that look after tenants: their sockets, what they ask, and their end.
//!
//! Each slice has a thread of its own, so that the kernel divides the processors among slices, and not the order in which
//! messages come: however many processes of one slice ask for something, a message of another is not behind theirs. All
//! that a message takes is microseconds. On the slice's own thread no other has to be woken for it, and no call of an
//! operator's stands in its way. What may take longer, such as the driver and the disk, is left to other threads.
//!
//! Law: what a slice's processes cause is worked on by that slice's threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tranche_domain::id::SliceName;

/// How long work that was left to other threads may take to end. A look at a GPU that hangs must not keep us from ending.
const LAST_WORK: Duration = Duration::from_secs(1);
/// Threads of one slice that wait for the driver or the disk.
const MOST_WAITING: usize = 32;
/// How long such a thread stays without work.
const KEPT: Duration = Duration::from_secs(1);

/// A thread with a runtime on it; it ends, with all that runs on it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Attendant {
    work: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Attendant {
    /// Starts it.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MOST_WAITING)
            .thread_keep_alive(KEPT)
            .build()?;
        let work = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let _ = runtime.block_on(stopped); // or the sender is gone
            runtime.shutdown_timeout(LAST_WORK);
        })?;
        Ok(Self { work, stop: Some(stop), thread: Some(thread) })
    }

    /// Where its work is given to it.
    pub(crate) fn work(&self) -> Handle {
        self.work.clone()
    }

    /// Has it end, some time.
    fn dismiss(&mut self) {
        drop(self.stop.take());
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.dismiss();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what panicked there has been reported
        }
    }
}

/// The threads of all slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attendants(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    next: u64,
    threads: BTreeMap<u64, Attendant>,
}

/// The thread of one slice; it ends some time after this is dropped, which may be done on that thread.
#[derive(Debug)]
pub(crate) struct SliceThread {
    id: u64,
    work: Handle,
    all: Weak<Mutex<Running>>,
}

impl Attendants {
    /// Starts the thread of a slice.
    pub(crate) fn start(&self, slice: &SliceName) -> io::Result<SliceThread> {
        let attendant = Attendant::start(&format!("s:{slice}"))?;
        let work = attendant.work();
        let mut running = running(&self.0);
        let id = running.next;
        running.next += 1;
        running.threads.insert(id, attendant);
        Ok(SliceThread { id, work, all: Arc::downgrade(&self.0) })
    }

    /// Ends all of them, and waits for that.
    pub(crate) fn end(&self) {
        let mut threads = std::mem::take(&mut running(&self.0).threads);
        threads.values_mut().for_each(Attendant::dismiss);
    }
}

impl SliceThread {
    /// Where its work is given to it.
    pub(crate) const fn work(&self) -> &Handle {
        &self.work
    }
}

impl Drop for SliceThread {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        let attendant = running(&all).threads.remove(&self.id);
        if let Some(mut attendant) = attendant {
            attendant.dismiss();
            drop(attendant.thread.take()); // not waited for: it may be this one
        }
    }
}

fn running(all: &Mutex<Running>) -> MutexGuard<'_, Running> {
    all.lock().expect("nothing panics while it holds the list of threads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn message_of_one_slice_waits_for_no_other_slice() {
        let all = Attendants::default();
        let [busy, neighbour] = ["busy", "neighbour"].map(|name| all.start(&name.parse().unwrap()).unwrap());
        let (release, held) = channel::<()>();
        let (begun, has_begun) = channel();
        busy.work().spawn(async move {
            begun.send(()).unwrap();
            // As long as it takes: the slice's thread is held up.
            held.recv().unwrap();
        });
        has_begun.recv_timeout(PATIENCE).unwrap();
        // Behind the first there are a thousand more, and in front of the neighbour's none.
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
    fn thread_of_a_slice_may_end_itself() {
        let all = Attendants::default();
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
    fn end_waits_for_what_runs() {
        let (all, dropped) = (Attendants::default(), Arc::new(()));
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
