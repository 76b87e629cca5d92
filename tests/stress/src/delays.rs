//! Waits of a thread for a processor.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nix::unistd::{Pid, gettid};

/// Waits of the thread that opened this, as the kernel counts them.
#[derive(Debug)]
pub(crate) struct Delays {
    thread: Pid,
    file: Option<File>,
}

impl Delays {
    pub(crate) fn open() -> Self {
        Self { thread: gettid(), file: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// The thread that waited.
    pub(crate) const fn thread(&self) -> Pid {
        self.thread
    }

    pub(crate) fn ns(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or_default();
        delay(std::str::from_utf8(&text[..read]).unwrap_or_default()).unwrap_or_default()
    }
}

/// True if another thread is asleep; else it runs, or waits for a processor for an unknown time.
pub(crate) fn is_asleep(thread: Pid) -> bool {
    matches!(state(thread), Some('S' | 'D'))
}

/// True if a process has ended, or is about to.
pub(crate) fn is_dead(process: Pid) -> bool {
    matches!(state(process), None | Some('Z' | 'X'))
}

fn state(thread: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Wait of another thread for a processor until it last got one.
pub(crate) fn of_thread(thread: Pid) -> Option<u64> {
    delay(&fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?)
}

fn delay(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}
