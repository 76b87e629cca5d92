//! The processes that descend from the command, wherever they went: those whose parents ended are the shepherd's.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Between two looks at who is left.
const PAUSE: Duration = Duration::from_millis(5);

/// From here on, whoever loses its parent becomes a child of this process.
pub(crate) fn adopt() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Tells the command's process group. Who has left it is ended when the command has.
pub(crate) fn signal(group: Pid, signal: Signal) {
    // Whoever is not there any more needs not be told.
    let _ = killpg(group, signal);
}

/// Ends everybody who is left, and returns when nobody is.
pub(crate) fn sweep(group: Pid) {
    signal(group, Signal::SIGKILL);
    while reap() {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        thread::sleep(PAUSE);
    }
}

/// Takes note of those that have ended; says whether there are others.
fn reap() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<String> = lists.collect();
    pids.iter()
        .flat_map(|list| list.split_ascii_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .map(Pid::from_raw)
        .collect()
}
