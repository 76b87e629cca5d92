//! New connections to a daemon that was restarted while a command waited or followed.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Daemon;
use crate::errors::Failure;

/// Pause before the first attempt; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longest absence of the daemon.
const ABSENCE: Duration = Duration::from_secs(60);
/// Age below which a connection whose stream ends brought nothing.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Number of such connections in a row after which nothing more is expected.
const MOST_EMPTY: u32 = 3;

/// Connections of one command to one daemon after another.
#[derive(Debug)]
pub struct Reconnection {
    socket: PathBuf,
    connected: Instant,
    empty: u32,
}

impl Reconnection {
    /// A command that is connected now.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), connected: Instant::now(), empty: 0 }
    }

    /// Connects again after a failure.
    ///
    /// # Errors
    /// The failure, if it is none of the connection, or if the daemon stays away.
    pub fn after(&mut self, failure: Failure) -> Result<Daemon, Failure> {
        if !failure.is_of_connection() {
            return Err(failure);
        }
        report(&failure);
        self.connect(|| failure, true)
    }

    /// Connects again after the end of a stream, as which a daemon that is stopped ends it.
    ///
    /// `None` if the daemon is there and ends each stream at once.
    ///
    /// # Errors
    /// If the daemon stays away.
    pub fn after_end(&mut self, brought_any: bool) -> Result<Option<Daemon>, Failure> {
        let is_empty = !brought_any && self.connected.elapsed() < AT_ONCE;
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if self.empty >= MOST_EMPTY {
            return Ok(None);
        }
        let (socket, reason) = (self.socket.clone(), "it was stopped".to_owned());
        self.connect(|| Failure::BrokenOff { socket, reason }, false).map(Some)
    }

    fn connect(
        &mut self,
        failure: impl FnOnce() -> Failure,
        mut is_reported: bool,
    ) -> Result<Daemon, Failure> {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        while begun.elapsed() < ABSENCE {
            sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
            match Daemon::connect(&self.socket) {
                Ok(daemon) => {
                    self.connected = Instant::now();
                    return Ok(daemon);
                }
                Err(failure) if !is_reported => {
                    report(&failure);
                    is_reported = true;
                }
                Err(_) => {}
            }
        }
        Err(failure())
    }
}

fn report(failure: &Failure) {
    let reason = failure.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    eprintln!("tranche: {reason}; the daemon is tried again for {} s", ABSENCE.as_secs());
}
