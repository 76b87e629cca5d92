//! Descendants of the command: orphans are reparented to the runner as their subreaper.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Interval of checking for remaining descendants.
const PAUSE: Duration = Duration::from_millis(5);

/// Signals the command's process group. Processes outside the group are killed when the command has ended.
pub(crate) fn signal(group: Pid, signal: Signal) {
    // ESRCH: the group has already ended.
    let _ = killpg(group, signal);
}

/// Kills all remaining descendants and waits for their end.
pub(crate) fn sweep() {
    while reap() {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        thread::sleep(PAUSE);
    }
}

/// Reaps orphans that have ended; the command is waited for elsewhere.
///
/// podman takes the monitor of a container for alive for as long as it is a zombie.
pub(crate) fn reap_orphans(command: Pid) {
    for orphan in children().into_iter().filter(|child| *child != command) {
        let _ = waitpid(orphan, Some(WaitPidFlag::WNOHANG));
    }
}

/// Reaps ended children; returns whether others remain.
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
