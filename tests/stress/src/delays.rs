//! How long a thread had to wait for a processor.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nix::unistd::{Pid, gettid};

/// As the kernel counts it, of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Delays {
    thread: Pid,
    file: Option<File>,
}

impl Delays {
    pub(crate) fn open() -> Self {
        Self { thread: gettid(), file: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// Whose they are.
    pub(crate) const fn thread(&self) -> Pid {
        self.thread
    }

    pub(crate) fn ns(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or_default();
        delay(std::str::from_utf8(&text[..read]).unwrap_or_default()).unwrap_or_default()
    }
}

/// How long another thread had to wait for a processor before it fell asleep; nothing if it is awake, for nobody says
/// how long it has been waiting for one since.
pub(crate) fn of_sleeper(thread: Pid) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{thread}/{file}")).ok();
    let stat = read("stat")?;
    let is_asleep = stat.rsplit(") ").next()?.starts_with(['S', 'D']);
    is_asleep.then(|| delay(&read("schedstat")?)).flatten()
}

fn delay(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}
