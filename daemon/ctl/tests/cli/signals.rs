//! `tranche run` during its program and after: signals, and descendants that outlive the program.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::Daemon;
use crate::tranche::{Ending, ending, program, tranche};

/// Far longer than anything here takes; only a failing test waits so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// `tranche run` with a script; killed if a test fails halfway.
struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn new(daemon: &Daemon, script: &str) -> Self {
        // A shell cannot trap a signal that it finds ignored, as SIGHUP is under nohup(1).
        let script = ["env", "--default-signal", "sh", "-c", script];
        let mut command = tranche(&daemon.socket(), &[&["run", "-g", "0.5"], &script[..]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    fn complaint(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn status(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            sleep(Duration::from_millis(10));
        }
        panic!("tranche run did not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn signals_meant_for_the_program_reach_it() {
    let daemon = Daemon::new();
    let signals =
        [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];
    for signal in signals {
        let name = signal.as_str().trim_start_matches("SIG");
        let script = format!("trap 'echo got; exit 42' {name}; echo ready; while :; do sleep 0.02; done");
        let mut running = Running::new(&daemon, &script);
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        assert_eq!(running.status(), Some(42), "{name}");
        assert_eq!(running.line(), "got");
    }
}

#[test]
fn program_ended_by_a_signal_exits_above_128() {
    let daemon = Daemon::new();
    let mut running = Running::new(&daemon, "echo ready; exec sleep 60");
    running.line();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.status(), Some(143));
}

#[test]
fn slice_stays_until_descendants_of_the_program_end() {
    let daemon = Daemon::new();
    let end = daemon.folder().join("end");
    let stay = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 9", end.display());
    // One in the background, and one in a session of its own whose parents are gone.
    let script = format!("(setsid sh -c '{stay}' &); sh -c '{stay}' & exit 3");
    let mut running = Running::new(&daemon, &script);
    let complaint = running.complaint();
    assert!(complaint.contains("its slice stays until these have too: "), "{complaint}");
    assert!(complaint.matches("sh (").count() >= 2, "{complaint}");
    assert!(running.is_running());
    fs::write(&end, "").unwrap();
    assert_eq!(running.status(), Some(3), "the program's status is ours, not the last one's");
}

#[test]
fn interrupt_ends_descendants_that_outlive_the_program() {
    let daemon = Daemon::new();
    // A shell without job control has its background processes ignore interrupts.
    let mut running = Running::new(&daemon, "sleep 60 & exit 0");
    assert!(running.complaint().contains("sleep ("));
    running.signal(Signal::SIGINT);
    assert_eq!(running.status(), Some(0));
}

#[test]
fn program_without_remaining_descendants_ends_silently() {
    let daemon = Daemon::new();
    let mut running = Running::new(&daemon, "sleep 0.05 & exit 0");
    assert_eq!(running.status(), Some(0));
    let mut said = String::new();
    running.stderr.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn program_inherits_signals_as_without_tranche() {
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let plain = Command::new("sh").arg("-c").arg(script).output().unwrap();
    let daemon = Daemon::new();
    let inside = ending(&daemon.socket(), &["run", "-g", "0.5", "sh", "-c", script]).printed();
    assert_eq!(inside, String::from_utf8(plain.stdout).unwrap());
}

/// `tranche run` started by a shell that ignores `signal`.
fn ignoring(daemon: &Daemon, signal: &str, script: &str) -> Ending {
    let mut command = Command::new("sh");
    let shell = format!("trap '' {signal}; exec \"$0\" run -g 0.5 -- sh -c \"$1\"");
    command.arg("-c").arg(shell).arg(program()).arg(script);
    command.env("TRANCHE_SOCKET", daemon.socket()).env_remove("TRANCHE_SLICE_SOCKET");
    Ending::of(&mut command)
}

#[test]
fn status_survives_a_parent_that_ignores_children() {
    let daemon = Daemon::new();
    assert_eq!(ignoring(&daemon, "CHLD", "exit 9").status, Some(9));
}

#[test]
fn a_program_started_under_nohup_survives_the_hangup() {
    let daemon = Daemon::new();
    let ending = ignoring(&daemon, "HUP", "kill -HUP $PPID; kill -HUP $$; sleep 0.1; exit 5");
    assert_eq!(ending.status, Some(5), "{ending:?}");
}
