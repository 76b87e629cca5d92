//! Child processes that cannot outlive their test.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::outcome::Outcome;
use crate::wait::{PATIENCE, until};

/// A running command in a process group of its own, with pipes as its standard streams.
#[derive(Debug)]
pub struct Process {
    command: String,
    child: Child,
    /// Locked, so that threads may share it.
    lines: Mutex<Receiver<String>>,
    errors: Mutex<Receiver<String>>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a command; fails if that is impossible.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let text = format!("{command:?}");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match piped.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot start {text}: {error}"),
        };
        let lines = lines_of(child.stdout.take().expect("stdout was piped"));
        let errors = lines_of(child.stderr.take().expect("stderr was piped"));
        Self { command: text, child, lines, errors, ended: None }
    }

    /// Pid, which is also the number of its process group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input; returns false if that is closed.
    pub fn say(&mut self, line: &str) -> bool {
        let stdin = self.child.stdin.as_mut();
        stdin.is_some_and(|stdin| writeln!(stdin, "{line}").is_ok())
    }

    /// Closes its standard input.
    pub fn hang_up(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The next line of its standard output; `None` at the end of it.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        self.line_within(PATIENCE)
    }

    /// As [`Process::line`], with another limit on the wait.
    #[track_caller]
    pub fn line_within(&mut self, patience: Duration) -> Option<String> {
        match receiver(&mut self.lines).recv_timeout(patience) {
            Ok(line) => Some(line.trim_end_matches('\n').to_string()),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{}: no line on stdout for {} s", self.command, patience.as_secs())
            }
        }
    }

    /// Sends a signal to this process alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(pid(self.pid()), signal);
    }

    /// True if it has not ended yet.
    pub fn runs(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
        }
        self.ended.is_none()
    }

    /// Closes its standard input and waits for its end; returns its status and the unread output.
    #[track_caller]
    pub fn end(self) -> Outcome {
        self.end_within(PATIENCE)
    }

    /// As [`Process::end`], with another limit on the wait.
    #[track_caller]
    pub fn end_within(mut self, patience: Duration) -> Outcome {
        self.hang_up();
        let ended = until(patience, || match (self.runs(), self.ended) {
            (false, Some(ended)) => Ok(ended),
            _ => Err(String::new()),
        });
        if ended.is_err() {
            let _ = killpg(pid(self.pid()), Signal::SIGKILL);
        }
        let status = ended.clone().unwrap_or_else(|_| ExitStatus::from_raw(Signal::SIGKILL as i32));
        let (stdout, stderr) = (remaining(&mut self.lines), remaining(&mut self.errors));
        let outcome = Outcome::new(self.command.clone(), Output { status, stdout, stderr });
        assert!(ended.is_ok(), "still running after {} s\n{outcome}", patience.as_secs());
        outcome
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runs() {
            let _ = killpg(pid(self.pid()), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// The lines of a stream, which a thread of its own reads.
fn lines_of(stream: impl Read + Send + 'static) -> Mutex<Receiver<String>> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    Mutex::new(lines)
}

fn receiver(lines: &mut Mutex<Receiver<String>>) -> &mut Receiver<String> {
    lines.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Unread rest of a stream whose process has ended.
///
/// A descendant may hold it open: the rest then ends after 2 s without a line.
fn remaining(lines: &mut Mutex<Receiver<String>>) -> Vec<u8> {
    let lines = receiver(lines);
    let next = || lines.recv_timeout(Duration::from_secs(2)).ok();
    std::iter::from_fn(next).collect::<String>().into_bytes()
}

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("pids are below 2^22"))
}

/// Kills all processes whose environment or command line contains `mark`, until there is none.
///
/// Children that left their process group are found too.
pub(crate) fn sweep(mark: &str) {
    let own = std::process::id();
    let _ = until(Duration::from_secs(5), || {
        let found: Vec<u32> = processes().filter(|&other| other != own && names(other, mark)).collect();
        for &other in &found {
            let _ = kill(pid(other), Signal::SIGKILL);
        }
        if found.is_empty() { Ok(()) } else { Err(String::new()) }
    });
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// True if the environment or the command line of a process contains `mark`. A zombie has neither.
fn names(process: u32, mark: &str) -> bool {
    ["environ", "cmdline"].iter().any(|file| {
        let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_process_returns_unread_output() {
        let mut process =
            Process::start(Command::new("sh").args(["-c", "read a; echo $a; echo rest; exit 3"]));
        assert!(process.say("hello"));
        assert_eq!(process.line().as_deref(), Some("hello"));
        let outcome = process.end();
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(3), "rest\n"));
    }

    #[test]
    fn dropping_a_process_ends_its_whole_group() {
        let mut process = Process::start(Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]));
        let child: u32 = process.line().and_then(|line| line.parse().ok()).expect("the shell prints a pid");
        drop(process);
        let gone = until(PATIENCE, || if runs(child) { Err(String::new()) } else { Ok(()) });
        assert_eq!(gone, Ok(()));
    }

    #[test]
    fn a_process_that_left_its_group_is_swept_up() {
        let mark = format!("/nowhere/{}", std::process::id());
        let script = "setsid sleep 60 & echo $!";
        let mut command = Command::new("sh");
        let mut process = Process::start(command.args(["-c", script]).env("NODE", &mark));
        let child: u32 = process.line().and_then(|line| line.parse().ok()).expect("the shell prints a pid");
        // Not while it becomes another program: then it has no environment for a moment, and is not found.
        let command = || std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        let is_there = || command().trim() == "sleep" && names(child, &mark);
        let started = until(PATIENCE, || if is_there() { Ok(()) } else { Err(command()) });
        assert_eq!(started, Ok(()));
        sweep(&mark);
        let gone = until(PATIENCE, || if names(child, &mark) { Err(String::new()) } else { Ok(()) });
        assert_eq!(gone, Ok(()), "a killed process takes a moment to end");
    }

    /// True if a process exists and is no zombie.
    fn runs(process: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}
