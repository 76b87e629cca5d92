//! Protocol between daemon and job runner, and the runner's status file.
//!
//! On one stream, as lines of JSON: the daemon sends user and files ([`RunnerSetup`]), the runner its identity
//! ([`RunnerReady`]); the daemon lets it into the slice and sends the command ([`CommandOrder`]). A runner without an
//! order runs nothing.
//!
//! For each start of a member there is one status file, which the runner locks for its lifetime: a process
//! that obtains the lock knows that the runner does not exist and never will. Its content are [`StatusLine`]s.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tranche_domain::id::HostPid;
use tranche_domain::jobs::{
    ContainerSpec, HealthCheck, HostLimits, ServiceSpec, TerminationPolicy, TicketId, Warning,
};
use tranche_domain::slice::ProcessId;
use tranche_domain::units::Bytes;

/// Maximum size of a message in bytes; a multiple of the kernel's limit on a program's environment.
pub const LONGEST_MESSAGE: u64 = 4 << 20;

/// Signal with which the runner announces the end to its command.
const fn signal_of(warning: Warning) -> Signal {
    match warning {
        Warning::Hup => Signal::SIGHUP,
        Warning::Int => Signal::SIGINT,
        Warning::Usr1 => Signal::SIGUSR1,
        Warning::Usr2 => Signal::SIGUSR2,
    }
}

/// Signals that the runner sends to its command after a request to stop, each with its time after that.
pub fn signals(policy: TerminationPolicy) -> Vec<(Duration, Signal)> {
    let grace = policy.grace;
    match policy.warning {
        Some(warning) => {
            vec![(Duration::ZERO, signal_of(warning)), (grace, Signal::SIGTERM), (grace * 2, Signal::SIGKILL)]
        }
        None => vec![(Duration::ZERO, Signal::SIGTERM), (grace, Signal::SIGKILL)],
    }
}

/// User and files of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerSetup {
    /// Uid of the submitter.
    pub uid: u32,
    /// Gid of the submitter at submission.
    pub gid: u32,
    /// Status file, to be locked and written.
    pub attempt: PathBuf,
    /// Log file for the command's output.
    pub log: PathBuf,
    /// Number of bytes to keep of the end of the output.
    #[serde(default = "RunnerSetup::most_kept")]
    pub kept: u64,
    /// Limits of the command on the host.
    #[serde(default, skip_serializing_if = "HostLimits::is_none")]
    pub limits: HostLimits,
}

impl RunnerSetup {
    /// Maximum number of bytes kept of a member's output.
    pub const fn most_kept() -> u64 {
        64 << 20
    }
}

/// Requests of the daemon to the job launcher. A start carries two descriptors: status file and log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchRequest {
    /// Starts a member under a ticket.
    Start(Box<Start>),
    /// Revokes the tickets with these ids.
    Revoke(Vec<TicketId>),
    /// Removes the container that a member's job runner left behind.
    Remove(Removal),
}

/// Removal of a member's container under its submitter's ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Ticket of the job's submitter.
    pub ticket: TicketId,
    /// Number of the member.
    pub index: u32,
}

/// A container of this process's user to remove, for a process started with the argument `remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftContainer {
    /// Name of the container.
    pub name: String,
    /// Environment of podman, as it was at the start.
    pub engine: Vec<(String, String)>,
}

/// One start of a member under its submitter's ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Ticket of the job's submitter.
    pub ticket: TicketId,
    /// Number of the member.
    pub index: u32,
    /// Number of bytes to keep of the end of its log.
    pub kept: u64,
    /// Command that the daemon displays for the job; must equal the ticket's.
    pub command: Vec<String>,
    /// Working directory; must equal the ticket's.
    pub workdir: String,
    /// Limits of the command on the host.
    #[serde(default, skip_serializing_if = "HostLimits::is_none")]
    pub limits: HostLimits,
    /// Container; must equal the ticket's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerSpec>,
    /// Service; must equal the ticket's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
}

/// Reply of the job launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchAnswer {
    /// The job runner waits for its order.
    Ready(RunnerReady),
    /// The start is refused.
    Refused {
        /// Reason, for the user.
        why: String,
        /// True if every later start of this job would be refused.
        for_good: bool,
    },
    /// The tickets are revoked.
    Revoked,
    /// Nothing is left of the container, or the reason why something is.
    Removed(Option<String>),
}

/// Identity of the job runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerReady {
    /// The process that will run the command.
    pub shepherd: ProcessId,
    /// Limits that are set for the command; earlier releases set none.
    #[serde(default, skip_serializing_if = "HostLimits::is_none")]
    pub limits: HostLimits,
    /// Reason for which limits are not set; the runner then ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlimited: Option<String>,
}

/// The command, and the policy for its termination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOrder {
    /// Program, then its arguments.
    pub command: Vec<String>,
    /// Complete environment; no variable is inherited.
    pub environment: Vec<(String, String)>,
    /// Working directory of the command.
    pub workdir: PathBuf,
    /// Signals and times of termination.
    pub farewell: TerminationPolicy,
    /// Container in which the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOrder>,
    /// Check of a service's health; earlier job runners have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
}

/// Container of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerOrder {
    /// Name of the container, unique to the member.
    pub name: String,
    /// Image, mounts and ports.
    pub spec: ContainerSpec,
    /// CDI document of the slice, with the driver's files; `None` where the daemon writes none.
    pub document: Option<PathBuf>,
}

/// Name of the container of the member with this slice.
pub fn container_name(slice: impl fmt::Display) -> String {
    format!("tranche-{slice}")
}

/// A line of the status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusLine {
    /// The runner started, as this process.
    Shepherd(ProcessId),
    /// The runner received its order and starts the command.
    Ran,
    /// The runner received a stop request while the command ran.
    Told,
    /// The service passed its check of health for the first time.
    Healthy,
    /// The command ended, with this outcome.
    Ended(CommandOutcome),
}

/// End of a command, as the runner reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum CommandOutcome {
    /// Exit with this status.
    #[error("exited with status {0}")]
    Exit(i32),
    /// Termination by this signal.
    #[error("{}", ended_by(*.0))]
    Signal(i32),
    /// Killed by the kernel beyond this limit of memory.
    #[error("it needed more than its {0} of memory: submit it with a larger --mem")]
    #[serde(rename = "out-of-memory")]
    OutOfMemory(Bytes),
    /// Ended by the runner, as its check of health failed for this reason.
    #[error("ended, as it was not healthy: {0}")]
    Unhealthy(String),
    /// Failure to start, with the reason.
    #[error("{0}")]
    NotStarted(String),
    /// Unknown: the runner ended before it recorded the outcome.
    #[error("the process that looked after it was ended from outside")]
    Lost,
}

impl CommandOutcome {
    /// Tests if the command exited with status 0.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exit(0))
    }

    /// The outcome without the owner's programs, paths and ports, for users without access to the job.
    pub fn public(&self) -> String {
        match self {
            Self::NotStarted(_) => "its command could not be started".into(),
            Self::Unhealthy(_) => "ended, as it was not healthy".into(),
            outcome => outcome.to_string(),
        }
    }
}

fn ended_by(signal: i32) -> String {
    Signal::try_from(signal)
        .map_or_else(|_| format!("ended by signal {signal}"), |name| format!("ended by {name}"))
}

impl fmt::Display for StatusLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shepherd(ProcessId { pid, start_time }) => write!(f, "shepherd {pid} {start_time}"),
            Self::Ran => f.write_str("ran"),
            Self::Told => f.write_str("told"),
            Self::Healthy => f.write_str("healthy"),
            Self::Ended(CommandOutcome::Exit(status)) => write!(f, "exit {status}"),
            Self::Ended(CommandOutcome::Signal(number)) => write!(f, "signal {number}"),
            Self::Ended(CommandOutcome::OutOfMemory(limit)) => write!(f, "out-of-memory {}", limit.get()),
            Self::Ended(CommandOutcome::Unhealthy(why)) => write!(f, "unhealthy {}", why.replace('\n', " ")),
            Self::Ended(CommandOutcome::NotStarted(why)) => {
                write!(f, "not-started {}", why.replace('\n', " "))
            }
            Self::Ended(CommandOutcome::Lost) => f.write_str("lost"),
        }
    }
}

/// Error for a line that is not in the format of the status file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadStatusLine;

impl FromStr for StatusLine {
    type Err = BadStatusLine;

    fn from_str(text: &str) -> Result<Self, BadStatusLine> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = || rest.parse().map_err(|_| BadStatusLine);
        Ok(match (word, rest) {
            ("ran", "") => Self::Ran,
            ("told", "") => Self::Told,
            ("healthy", "") => Self::Healthy,
            ("lost", "") => Self::Ended(CommandOutcome::Lost),
            ("shepherd", _) => Self::Shepherd(process(rest).ok_or(BadStatusLine)?),
            ("exit", _) => Self::Ended(CommandOutcome::Exit(number()?)),
            ("signal", _) => Self::Ended(CommandOutcome::Signal(number()?)),
            ("out-of-memory", _) => {
                let limit = rest.parse().map_err(|_| BadStatusLine)?;
                Self::Ended(CommandOutcome::OutOfMemory(Bytes::new(limit)))
            }
            ("unhealthy", _) => Self::Ended(CommandOutcome::Unhealthy(rest.into())),
            ("not-started", _) => Self::Ended(CommandOutcome::NotStarted(rest.into())),
            _ => return Err(BadStatusLine),
        })
    }
}

fn process(text: &str) -> Option<ProcessId> {
    let (pid, start_time) = text.split_once(' ')?;
    Some(ProcessId { pid: HostPid::new(pid.parse().ok()?), start_time: start_time.parse().ok()? })
}

/// Sends a message.
///
/// # Errors
/// If the peer has closed the connection.
pub fn send_message(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives a message.
///
/// # Errors
/// If the peer has closed the connection or sent anything else.
pub fn receive_message<T: DeserializeOwned>(stream: impl BufRead) -> io::Result<T> {
    let mut line = Vec::new();
    stream.take(LONGEST_MESSAGE).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => Ok(serde_json::from_slice(&line)?),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_parse_back() {
        let id = ProcessId { pid: HostPid::new(7), start_time: 9 };
        let lines = [
            StatusLine::Shepherd(id),
            StatusLine::Ran,
            StatusLine::Told,
            StatusLine::Healthy,
            StatusLine::Ended(CommandOutcome::Unhealthy("status 500".into())),
            StatusLine::Ended(CommandOutcome::Exit(3)),
            StatusLine::Ended(CommandOutcome::Signal(9)),
            StatusLine::Ended(CommandOutcome::NotStarted("there is no xyz".into())),
            StatusLine::Ended(CommandOutcome::OutOfMemory(Bytes::mib(8))),
            StatusLine::Ended(CommandOutcome::Lost),
        ];
        for line in lines {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in ["", "ran 3x", "exit", "exit x", "shepherd 3", "shepherd -1 2", "RAN"] {
            assert!(text.parse::<StatusLine>().is_err(), "{text}");
        }
    }

    #[test]
    fn public_outcome_names_no_path_or_port() {
        let private =
            [CommandOutcome::NotStarted, CommandOutcome::Unhealthy].map(|of| of("/home/ann 8000".into()));
        assert!(private.iter().all(|outcome| !outcome.public().contains("ann")), "{private:?}");
        assert_eq!(CommandOutcome::Signal(9).public(), CommandOutcome::Signal(9).to_string());
    }

    #[test]
    fn truncated_message_is_an_error() {
        let order = CommandOrder {
            command: vec!["a".into()],
            environment: vec![("A".into(), "b\nc".into())],
            workdir: "/".into(),
            farewell: TerminationPolicy::DEFAULT,
            container: None,
            health: None,
        };
        let mut wire = Vec::new();
        send_message(&mut wire, &order).unwrap();
        assert_eq!(receive_message::<CommandOrder>(&wire[..]).unwrap(), order);
        assert!((0..wire.len()).all(|length| receive_message::<CommandOrder>(&wire[..length]).is_err()));
    }
}
