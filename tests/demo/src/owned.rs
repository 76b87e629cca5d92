//! Processes that end with their owner.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::DemoError;

/// Time for a process to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(3);

/// Number of last log lines in an error.
const QUOTED: usize = 5;

/// A child in a process group of its own: Ctrl-C does not reach it, and one signal reaches all of it.
#[derive(Debug)]
pub(crate) struct Owned {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Owned {
    /// Starts a program, with its standard error in `NAME.log` in the folder.
    pub(crate) fn start(command: &mut Command, name: &str, folder: &Path) -> Result<Self, DemoError> {
        use std::os::unix::process::CommandExt;
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).map_err(DemoError::io(format!("creating {}", log.display())))?;
        let child = command.process_group(0).stderr(file).spawn();
        let child = child.map_err(DemoError::io(format!("starting {}", command.get_program().display())))?;
        Ok(Self { child, name: name.to_string(), log })
    }

    /// The child, for its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Exit status, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The error for an early end, with the program's last output.
    pub(crate) fn too_early(&self) -> DemoError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let quoted: String =
            lines[lines.len().saturating_sub(QUOTED)..].iter().map(|line| format!("\n  {line}")).collect();
        let last_words = if quoted.is_empty() { String::new() } else { format!(":{quoted}") };
        DemoError::Ended { who: self.name.clone(), last_words }
    }

    /// Sends SIGTERM, waits, and kills the rest. Returns the exit status.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        drop(self.child.stdin.take());
        self.signal(Signal::SIGTERM);
        self.wait(PATIENCE).or_else(|| {
            self.signal(Signal::SIGKILL);
            self.child.wait().ok()
        })
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            let status = self.ended();
            if status.is_some() || Instant::now() >= end {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Signals the whole group; a group that has ended is ignored.
    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.end();
        }
        // Kills the rest of the child's process group.
        self.signal(Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_ends_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 60 & echo $! > pid; mv pid known; wait"]);
        command.current_dir(&folder);
        let owned = Owned::start(&mut command, "stubborn", folder.path()).unwrap();
        let known = folder.path().join("known");
        while !known.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        let grandchild: i32 = fs::read_to_string(known).unwrap().trim().parse().unwrap();
        drop(owned);
        let end = Instant::now() + PATIENCE;
        while alive(grandchild) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!alive(grandchild), "{grandchild} still runs");
    }

    /// Tests if it runs; a zombie does not.
    fn alive(pid: i32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[test]
    fn last_words_are_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such luck >&2; exit 3"]);
        let mut owned = Owned::start(&mut command, "unlucky", folder.path()).unwrap();
        owned.wait(PATIENCE).unwrap();
        assert_eq!(owned.too_early().to_string(), "unlucky ended too early:\n  no such luck");
    }
}
