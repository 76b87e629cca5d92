//! Main loop of the worker: one thread for each request, until the daemon closes the socket.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use tranche_privileged::{Bounds, become_park_worker, packets, process_of_a_slice};

use crate::driver::CheckpointDriver;
use crate::protocol::{ParkCall, REQUEST, WorkerReply};

/// Largest number of requests at a time. A request of the driver that never returns takes one for good.
const MOST: usize = 256;

/// Runs the worker with the arguments after the one that selects it. Its standard input is the socket.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(bounds) = Bounds::parse(arguments) else {
        eprintln!("tranched: the park worker is started by the daemon alone");
        return ExitCode::FAILURE;
    };
    match become_park_worker().and_then(|socket| serve(socket, bounds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tranched: the park worker cannot go on: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(socket: OwnedFd, bounds: Bounds) -> io::Result<()> {
    let worker = Arc::new(ServingWorker {
        driver: CheckpointDriver::load(),
        bounds,
        socket,
        busy: AtomicUsize::new(0),
    });
    // One byte more than a request, so that longer packets are recognised.
    let mut buffer = [0; REQUEST + 1];
    loop {
        let Some((length, descriptors)) = packets::receive(worker.socket.as_fd(), &mut buffer)? else {
            // Threads whose requests have not returned end with the process.
            return Ok(());
        };
        let (sequence, verb) = ParkCall::decode(buffer.get(..length).unwrap_or_default());
        let (Some(verb), [process]) = (verb, &*descriptors) else {
            worker.reply(sequence, WorkerReply::Malformed)?;
            continue;
        };
        if worker.busy.fetch_add(1, SeqCst) >= MOST {
            worker.busy.fetch_sub(1, SeqCst);
            worker.reply(sequence, WorkerReply::Busy)?;
            continue;
        }
        let (process, serving) = (process.try_clone()?, Arc::clone(&worker));
        let spawned = thread::Builder::new().name("request".into()).spawn(move || {
            let reply = serving.call(verb, &process);
            serving.busy.fetch_sub(1, SeqCst);
            // Fails if the daemon has closed the socket; then the process is about to end.
            let _ = serving.reply(sequence, reply);
        });
        if spawned.is_err() {
            worker.busy.fetch_sub(1, SeqCst);
            worker.reply(sequence, WorkerReply::Busy)?;
        }
    }
}

struct ServingWorker {
    driver: Result<CheckpointDriver, WorkerReply>,
    bounds: Bounds,
    socket: OwnedFd,
    /// Number of requests that have not returned.
    busy: AtomicUsize,
}

impl ServingWorker {
    fn call(&self, verb: ParkCall, process: &OwnedFd) -> WorkerReply {
        let Ok(pid) = process_of_a_slice(process.as_fd(), &self.bounds) else {
            return WorkerReply::NotOfASlice;
        };
        let driver = match self.driver {
            Ok(driver) => driver,
            Err(reply) => return reply,
        };
        let reply = driver.call(verb, pid);
        // The process may have ended before the call, and another one may have its pid since: that one is not to
        // stay locked.
        let is_same = packets::pid_of(process.as_fd()) == Some(pid);
        if matches!((verb, reply), (ParkCall::Lock(_), WorkerReply::Done)) && !is_same {
            driver.call(ParkCall::Unlock, pid);
        }
        if is_same { reply } else { WorkerReply::NotOfASlice }
    }

    fn reply(&self, sequence: u32, reply: WorkerReply) -> io::Result<()> {
        packets::send(&self.socket, &reply.encode(sequence), None)
    }
}
