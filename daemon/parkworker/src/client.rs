//! Client side of the protocol, in the daemon's main process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tranche_privileged::packets;

use crate::protocol::{DriverState, ParkCall, REPLY, WorkerReply};

/// Outcome of a request.
type Replied<T> = Result<T, WorkerError>;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum WorkerError {
    #[error("the driver returns {0} ({name})", name = name_of(*.0))]
    Driver(u32),
    #[error("the process has ended, or does not belong to a slice by the kernel's evidence")]
    NotOfASlice,
    #[error("the driver has no checkpoint calls, which come with driver 570 (CUDA 12.8)")]
    Unsupported,
    #[error("the driver has not returned from too many requests of the park worker")]
    Busy,
    #[error("the driver has not returned within {} s", .0.as_secs())]
    Hangs(Duration),
    #[error("the park worker does not answer: {0}")]
    Gone(io::Error),
}

/// Name of a result code that these calls are known to return.
const fn name_of(code: u32) -> &'static str {
    match code {
        1 => "invalid value",
        2 => "out of memory",
        304 => "operating system error",
        401 => "illegal state",
        600 => "not ready: work did not end in time",
        801 => "not supported",
        _ => "see the CUDA driver API",
    }
}

/// Requests without a reply so far, by sequence number; `None` once the worker is gone.
type Pending = Arc<Mutex<Option<BTreeMap<u32, SyncSender<WorkerReply>>>>>;

/// A running worker. Dropping it closes its socket, so that it exits.
#[derive(Debug)]
pub struct ParkWorker {
    socket: Arc<OwnedFd>,
    last: Mutex<u32>,
    pending: Pending,
}

impl ParkWorker {
    /// Serves the daemon's end of a worker's socket.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn over(socket: OwnedFd) -> io::Result<Self> {
        let (socket, pending) = (Arc::new(socket), Pending::new(Mutex::new(Some(BTreeMap::new()))));
        let (reading, replies) = (Arc::clone(&socket), Arc::clone(&pending));
        thread::Builder::new().name("park-worker".into()).spawn(move || read(&reading, &replies))?;
        Ok(Self { socket, last: Mutex::default(), pending })
    }

    /// Tests if the worker still has its end of the socket.
    pub fn is_alive(&self) -> bool {
        locked(&self.pending).is_some()
    }

    /// State of the process of a pidfd in the driver. Blocks until the reply, for at most `patience`.
    ///
    /// # Errors
    /// See [`WorkerError`].
    pub fn state(&self, process: BorrowedFd<'_>, patience: Duration) -> Replied<DriverState> {
        match self.reply(ParkCall::State, process, patience)? {
            WorkerReply::State(state) => Ok(state),
            _ => Err(WorkerError::Gone(io::Error::other("it replies with no state"))),
        }
    }

    /// Carries out a request. Blocks until the reply, for at most `patience`; after that the request may still be
    /// carried out, and the process's state shows how far.
    ///
    /// # Errors
    /// See [`WorkerError`].
    pub fn call(&self, verb: ParkCall, process: BorrowedFd<'_>, patience: Duration) -> Replied<()> {
        self.reply(verb, process, patience).map(drop)
    }

    fn reply(&self, verb: ParkCall, process: BorrowedFd<'_>, patience: Duration) -> Replied<WorkerReply> {
        let process = process.try_clone_to_owned().map_err(WorkerError::Gone)?;
        let gone = || WorkerError::Gone(io::Error::other("it has ended"));
        let (sender, receiver) = sync_channel(1);
        let sequence = {
            let mut last = locked(&self.last);
            *last = last.wrapping_add(1);
            *last
        };
        locked(&self.pending).as_mut().ok_or_else(gone)?.insert(sequence, sender);
        let received = packets::send(&self.socket, &verb.encode(sequence), Some(&process))
            .map_err(WorkerError::Gone)
            .and_then(|()| match receiver.recv_timeout(patience) {
                Ok(reply) => Ok(reply),
                Err(RecvTimeoutError::Timeout) => Err(WorkerError::Hangs(patience)),
                Err(RecvTimeoutError::Disconnected) => Err(gone()),
            });
        if let Some(pending) = locked(&self.pending).as_mut() {
            pending.remove(&sequence);
        }
        match received? {
            reply @ (WorkerReply::Done | WorkerReply::State(_)) => Ok(reply),
            WorkerReply::Driver(code) => Err(WorkerError::Driver(code)),
            WorkerReply::NotOfASlice => Err(WorkerError::NotOfASlice),
            WorkerReply::Unsupported => Err(WorkerError::Unsupported),
            WorkerReply::Busy => Err(WorkerError::Busy),
            WorkerReply::Malformed => {
                Err(WorkerError::Gone(io::Error::other("it does not know the request")))
            }
        }
    }
}

impl Drop for ParkWorker {
    fn drop(&mut self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both); // it has ended already
    }
}

/// Passes replies on until the worker closes its end.
fn read(socket: &OwnedFd, pending: &Pending) {
    let mut buffer = [0; REPLY + 1];
    while let Ok(Some((length, _))) = packets::receive(socket.as_fd(), &mut buffer) {
        let Some((sequence, reply)) = WorkerReply::decode(buffer.get(..length).unwrap_or_default()) else {
            break;
        };
        let waiting = locked(pending).as_mut().and_then(|pending| pending.remove(&sequence));
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply); // the request has timed out
        }
    }
    *locked(pending) = None;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap names its line
mod tests {
    use super::*;
    use crate::protocol::REQUEST;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::fs::File;
    use std::time::Instant;

    fn pair() -> (ParkWorker, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        (ParkWorker::over(ours).unwrap(), theirs)
    }

    fn next(theirs: &OwnedFd) -> (u32, ParkCall) {
        let mut buffer = [0; REQUEST + 1];
        let (length, descriptors) = packets::receive(theirs.as_fd(), &mut buffer).unwrap().unwrap();
        assert_eq!(descriptors.len(), 1);
        let (sequence, verb) = ParkCall::decode(&buffer[..length]);
        (sequence, verb.unwrap())
    }

    #[test]
    fn replies_reach_their_requests_in_any_order() {
        let (worker, theirs) = pair();
        let process = File::open("/dev/null").unwrap();
        let patience = Duration::from_secs(30);
        thread::scope(|scope| {
            let checkpoint = scope.spawn(|| worker.call(ParkCall::Checkpoint, process.as_fd(), patience));
            let first = next(&theirs);
            let state = scope.spawn(|| worker.state(process.as_fd(), patience));
            let second = next(&theirs);
            assert_eq!((first.1, second.1), (ParkCall::Checkpoint, ParkCall::State));
            let reply = WorkerReply::State(DriverState::Locked);
            packets::send(&theirs, &reply.encode(second.0), None).unwrap();
            assert_eq!(state.join().unwrap().unwrap(), DriverState::Locked);
            packets::send(&theirs, &WorkerReply::Driver(801).encode(first.0), None).unwrap();
            assert!(matches!(checkpoint.join().unwrap(), Err(WorkerError::Driver(801))));
        });
    }

    #[test]
    fn hanging_request_times_out_and_delays_no_other() {
        let (worker, theirs) = pair();
        let process = File::open("/dev/null").unwrap();
        let hangs = worker.call(ParkCall::Checkpoint, process.as_fd(), Duration::from_millis(50));
        assert!(matches!(hangs, Err(WorkerError::Hangs(_))));
        next(&theirs);
        thread::scope(|scope| {
            let unlock =
                scope.spawn(|| worker.call(ParkCall::Unlock, process.as_fd(), Duration::from_secs(30)));
            let (sequence, _) = next(&theirs);
            packets::send(&theirs, &WorkerReply::Done.encode(sequence), None).unwrap();
            assert!(unlock.join().unwrap().is_ok());
        });
    }

    #[test]
    fn end_of_the_worker_ends_every_request() {
        let (worker, theirs) = pair();
        let process = File::open("/dev/null").unwrap();
        thread::scope(|scope| {
            let call =
                scope.spawn(|| worker.call(ParkCall::Restore, process.as_fd(), Duration::from_secs(60)));
            next(&theirs);
            let begun = Instant::now();
            drop(theirs);
            assert!(matches!(call.join().unwrap(), Err(WorkerError::Gone(_))));
            assert!(begun.elapsed() < Duration::from_secs(30));
        });
        assert!(!worker.is_alive());
    }
}
