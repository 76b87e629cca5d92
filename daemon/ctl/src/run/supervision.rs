//! Supervision of a child and its descendants: start, signals, exit status.
//!
//! Signals are read from a signalfd, not handled: they are blocked before the child is created, so that none
//! is lost, and the child starts with the mask and dispositions of this process's parent.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::SignalKind;

use super::descendants::{Descendant, living};
use super::error::RunError;
use super::stop;

/// Signals that are passed on to the program.
const FORWARDED: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// Time for which descendants may outlive the program before a message is printed.
const GRACE: Duration = Duration::from_millis(500);

/// Runs `command` in `environment` until it and all its descendants have ended.
/// Returns its exit status, or 128 plus the number of the signal that ended it. `terminated` is called once, after the
/// first SIGTERM was passed on.
pub(super) fn supervise(
    command: &[OsString],
    environment: &BTreeMap<OsString, OsString>,
    terminated: impl FnOnce(),
) -> Result<u8, RunError> {
    keep_exit_statuses()?;
    let mut mask = SigSet::from_iter(FORWARDED);
    mask.add(Signal::SIGCHLD);
    let mask_before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(kernel("block signals"))?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(kernel("listen for signals"))?;
    let program = spawn(command, environment, &mask_before)?;
    Family { program, ended: None, announced: false }.await_all(&signals, terminated)
}

fn kernel(attempt: &'static str) -> impl Fn(Errno) -> RunError {
    move |cause| RunError::Kernel { attempt, cause }
}

/// Installs a handler for SIGCHLD, so that the kernel keeps exit statuses.
/// It discards them if the parent ignored the signal, which survives exec.
fn keep_exit_statuses() -> Result<(), RunError> {
    let failed = |error: std::io::Error| RunError::Kernel {
        attempt: "listen for the end of children",
        cause: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let _inside = runtime.enter();
    tokio::signal::unix::signal(SignalKind::child()).map(drop).map_err(failed)
}

fn spawn(
    command: &[OsString],
    environment: &BTreeMap<OsString, OsString>,
    mask: &SigSet,
) -> Result<Pid, RunError> {
    let arguments = command.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()?;
    let variables =
        environment.iter().map(|(name, value)| variable(name, value)).collect::<Result<Vec<_>, _>>()?;
    let program = arguments.first().expect("the command line requires a command");
    let actions = PosixSpawnFileActions::init().map_err(kernel("prepare a process"))?;
    let attributes = attributes(mask).map_err(kernel("prepare a process"))?;
    let spawned = match posix_spawnp(program, &actions, &attributes, &arguments, &variables) {
        // A script without an interpreter line is run by the shell, as in exec(3).
        Err(Errno::ENOEXEC) => {
            let shell: Vec<_> = [c"sh".to_owned()].into_iter().chain(arguments.iter().cloned()).collect();
            posix_spawnp(c"/bin/sh", &actions, &attributes, &shell, &variables)
        }
        answer => answer,
    };
    spawned.map_err(|cause| RunError::Spawn { program: command[0].display().to_string(), cause })
}

/// Restores the original signal mask, and the disposition of SIGPIPE, which Rust's runtime ignores.
fn attributes(mask: &SigSet) -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    attributes.set_sigmask(mask)?;
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    Ok(attributes)
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, RunError> {
    let mut line = name.to_owned();
    line.push("=");
    line.push(value);
    c_string(&line)
}

fn c_string(text: &OsStr) -> Result<CString, RunError> {
    CString::new(text.as_bytes()).map_err(|_| RunError::Nul(text.display().to_string()))
}

/// The program and its descendants.
struct Family {
    program: Pid,
    /// Time and exit status of the program's end.
    ended: Option<(Instant, u8)>,
    announced: bool,
}

impl Family {
    fn await_all(mut self, signals: &SignalFd, terminated: impl FnOnce()) -> Result<u8, RunError> {
        let mut terminated = Some(terminated);
        while !self.reap()? {
            self.announce();
            self.sleep(signals)?;
            while let Some(signal) = signals.read_signal().map_err(kernel("read a signal"))? {
                self.pass_on(&signal);
                if Signal::SIGTERM as u32 == signal.ssi_signo {
                    terminated.take().into_iter().for_each(|terminated| terminated());
                }
            }
        }
        let (_, status) = self.ended.expect("no process is left, so the program has ended");
        Ok(status)
    }

    /// Reaps ended processes, and stops as the program has; returns true if no process is left.
    fn reap(&mut self) -> Result<bool, RunError> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::StillAlive) => return Ok(false),
                Ok(WaitStatus::Stopped(pid, _)) if pid == self.program => stop::follow(pid),
                Ok(status) => self.note(status),
                Err(Errno::ECHILD) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EINVAL) => self.note_unnamed(),
                Err(cause) => return Err(kernel("wait for processes")(cause)),
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        if status.pid() == Some(self.program)
            && let Some(exit) = exit_status(status)
        {
            self.ended = Some((Instant::now(), exit));
        }
    }

    /// Records an end by a real-time signal, which nix cannot represent.
    fn note_unnamed(&mut self) {
        let program_is_gone = kill(self.program, None) == Err(Errno::ESRCH);
        if program_is_gone && self.ended.is_none() {
            let status = u8::try_from(128 + libc::SIGRTMIN()).unwrap_or(u8::MAX);
            self.ended = Some((Instant::now(), status));
        }
    }

    /// Prints once which processes keep the slice open after the program's end.
    fn announce(&mut self) {
        let due = self.ended.is_some_and(|(end, _)| end.elapsed() >= GRACE);
        if due && !self.announced {
            self.announced = true;
            eprintln!("tranche run: {}", waiting_for(&living()));
        }
    }

    /// Waits for a signal, or for the time of the message.
    fn sleep(&self, signals: &SignalFd) -> Result<(), RunError> {
        let timeout = match self.ended {
            Some(_) if !self.announced => PollTimeout::from(50u8),
            _ => PollTimeout::NONE,
        };
        match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(cause) => Err(kernel("wait for signals")(cause)),
        }
    }

    fn pass_on(&self, info: &siginfo) {
        let number = i32::try_from(info.ssi_signo).ok();
        let signal = number.and_then(|number| Signal::try_from(number).ok());
        let Some(signal) = signal.filter(|&signal| signal != Signal::SIGCHLD) else { return };
        for (receiver, signal) in self.receivers(signal, Origin::of(info), &living()) {
            // ESRCH: the receiver has ended meanwhile.
            let _ = kill(receiver, signal);
        }
    }

    /// Receivers of a signal, and the signal to send.
    ///
    /// The daemon signals each process of the slice itself, so that each gets the signal once.
    /// The terminal signals the whole foreground group, so the program has received those already, as it has
    /// signals that its own descendants send to their group. After the program's end its descendants get the
    /// signal; SIGINT becomes SIGTERM, because shells start background processes with SIGINT ignored.
    fn receivers(&self, signal: Signal, origin: Origin, living: &[Descendant]) -> Vec<(Pid, Signal)> {
        let from_family = living.iter().any(|one| origin == Origin::Process(one.pid));
        let ending = matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
        match self.ended {
            _ if from_family || origin == Origin::Daemon => Vec::new(),
            None if origin == Origin::Terminal => Vec::new(),
            None => vec![(self.program, signal)],
            Some(_) if ending => living.iter().map(|one| (one.pid, Signal::SIGTERM)).collect(),
            Some(_) => living.iter().map(|one| (one.pid, signal)).collect(),
        }
    }
}

/// Origin of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A key at the terminal, or a hangup.
    Terminal,
    /// The daemon, by the way in which it sends signals.
    Daemon,
    /// A process that signalled this process or its group.
    Process(Pid),
}

impl Origin {
    fn of(info: &siginfo) -> Self {
        match info.ssi_code {
            libc::SI_KERNEL => Self::Terminal,
            libc::SI_QUEUE if info.ssi_pid == 0 => Self::Daemon,
            _ => Self::Process(Pid::from_raw(info.ssi_pid.cast_signed())),
        }
    }
}

fn exit_status(status: WaitStatus) -> Option<u8> {
    match status {
        WaitStatus::Exited(_, code) => u8::try_from(code).ok(),
        WaitStatus::Signaled(_, signal, _) => u8::try_from(128 + signal as i32).ok(),
        _ => None,
    }
}

fn waiting_for(living: &[Descendant]) -> String {
    let who: Vec<_> = living.iter().map(ToString::to_string).collect();
    format!("the command has ended; its slice stays until these have too: {}", who.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Pid = Pid::from_raw(10);
    const OUTSIDER: Origin = Origin::Process(Pid::from_raw(1));

    fn running() -> Family {
        Family { program: PROGRAM, ended: None, announced: false }
    }

    fn ended() -> Family {
        Family { ended: Some((Instant::now(), 0)), ..running() }
    }

    fn left_behind() -> Vec<Descendant> {
        vec![Descendant { pid: Pid::from_raw(11), command: "sleep".into() }]
    }

    #[test]
    fn external_signal_goes_to_the_program() {
        let receivers = running().receivers(Signal::SIGINT, OUTSIDER, &left_behind());
        assert_eq!(receivers, [(PROGRAM, Signal::SIGINT)]);
    }

    #[test]
    fn delivered_signals_are_not_repeated() {
        assert_eq!(running().receivers(Signal::SIGINT, Origin::Terminal, &left_behind()), []);
        assert_eq!(running().receivers(Signal::SIGTERM, Origin::Daemon, &left_behind()), []);
        assert_eq!(ended().receivers(Signal::SIGTERM, Origin::Daemon, &left_behind()), []);
        let own_child = Origin::Process(Pid::from_raw(11));
        assert_eq!(running().receivers(Signal::SIGTERM, own_child, &left_behind()), []);
    }

    #[test]
    fn interrupt_after_exit_terminates_descendants() {
        for origin in [Origin::Terminal, OUTSIDER] {
            let receivers = ended().receivers(Signal::SIGINT, origin, &left_behind());
            assert_eq!(receivers, [(Pid::from_raw(11), Signal::SIGTERM)]);
        }
        let receivers = ended().receivers(Signal::SIGUSR1, OUTSIDER, &left_behind());
        assert_eq!(receivers, [(Pid::from_raw(11), Signal::SIGUSR1)]);
    }

    #[test]
    fn exit_status_matches_shells() {
        assert_eq!(exit_status(WaitStatus::Signaled(PROGRAM, Signal::SIGKILL, false)), Some(137));
        assert_eq!(exit_status(WaitStatus::Exited(PROGRAM, 255)), Some(255));
        assert_eq!(exit_status(WaitStatus::StillAlive), None);
    }
}
