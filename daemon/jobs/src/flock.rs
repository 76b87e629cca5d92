//! What the daemon and a shepherd say to each other, and what the shepherd writes down.
//!
//! They have one stream: the daemon says who and where ([`Hail`]), the shepherd who it is ([`Hello`]), the daemon lets it
//! into the slice and says what to run ([`Order`]), a line of JSON each. A shepherd that is given no order runs nothing.
//!
//! And they have one file for each start of a member, which the shepherd locks for as long as it lives: whoever gets the
//! lock knows that there is none, nor will be. What it says is in [`Line`]s.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::str::FromStr;

use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tranche_domain::id::HostPid;
use tranche_domain::jobs::{TerminationPolicy, TicketId};
use tranche_domain::slice::ProcessId;

/// No message is longer: the environment of a program is bounded by the kernel at a few times this.
pub const LONGEST_MESSAGE: u64 = 4 << 20;

/// As whom, and where it writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hail {
    /// The user who submitted the job.
    pub uid: u32,
    /// And their group then.
    pub gid: u32,
    /// The file to lock and write down in.
    pub attempt: PathBuf,
    /// Where the output goes.
    pub log: PathBuf,
    /// So much of the end of that is kept, in bytes.
    #[serde(default = "Hail::most_kept")]
    pub kept: u64,
}

impl Hail {
    /// Of no member more of what it prints is kept, in bytes.
    pub const fn most_kept() -> u64 {
        64 << 20
    }
}

/// What a daemon asks of the job launcher. With a start come two files: that to lock and write down in, and the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchRequest {
    /// A member is to be started.
    Start(Start),
    /// These tickets are void from now on.
    Revoke(Vec<TicketId>),
}

/// One start of a member by its submitter's ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The submitter's word.
    pub ticket: TicketId,
    /// The member's number.
    pub index: u32,
    /// So much of the end of its log is kept, in bytes.
    pub kept: u64,
    /// What the daemon shows as the job's command; it has to be the ticket's.
    pub command: Vec<String>,
    /// And its folder.
    pub workdir: String,
}

/// The launcher's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchAnswer {
    /// The shepherd waits for its order.
    Ready(Hello),
    /// Nothing is started.
    Refused {
        /// The reason, for a person.
        why: String,
        /// No later start of this job would succeed.
        for_good: bool,
    },
    /// The tickets are void.
    Revoked,
}

/// The shepherd's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Who will run the command.
    pub shepherd: ProcessId,
}

/// What to run, and how to stop it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// All of its environment.
    pub environment: Vec<(String, String)>,
    /// Where it starts.
    pub workdir: PathBuf,
    /// How it is stopped.
    pub farewell: TerminationPolicy,
}

/// Something that a shepherd wrote down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// It is there.
    Shepherd(ProcessId),
    /// It got its order and starts the command.
    Ran,
    /// It was told that the command has to end, and the command had not.
    Told,
    /// The command has ended.
    Ended(Outcome),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be started, and why.
    NotStarted(String),
    /// The shepherd ended before it could say.
    Lost,
}

impl Outcome {
    /// Whether that is a good end.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exit(0))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "exited with status {status}"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "ended by {signal}"),
                Err(_) => write!(f, "ended by signal {number}"),
            },
            Self::NotStarted(why) => f.write_str(why),
            Self::Lost => f.write_str("the process that looked after it was ended from outside"),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shepherd(ProcessId { pid, start_time }) => write!(f, "shepherd {pid} {start_time}"),
            Self::Ran => f.write_str("ran"),
            Self::Told => f.write_str("told"),
            Self::Ended(Outcome::Exit(status)) => write!(f, "exit {status}"),
            Self::Ended(Outcome::Signal(number)) => write!(f, "signal {number}"),
            Self::Ended(Outcome::NotStarted(why)) => write!(f, "not-started {}", why.replace('\n', " ")),
            Self::Ended(Outcome::Lost) => f.write_str("lost"),
        }
    }
}

/// A line that no shepherd writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine;

impl FromStr for Line {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = || rest.parse().map_err(|_| BadLine);
        Ok(match (word, rest) {
            ("ran", "") => Self::Ran,
            ("told", "") => Self::Told,
            ("lost", "") => Self::Ended(Outcome::Lost),
            ("shepherd", _) => Self::Shepherd(process(rest).ok_or(BadLine)?),
            ("exit", _) => Self::Ended(Outcome::Exit(number()?)),
            ("signal", _) => Self::Ended(Outcome::Signal(number()?)),
            ("not-started", _) => Self::Ended(Outcome::NotStarted(rest.into())),
            _ => return Err(BadLine),
        })
    }
}

fn process(text: &str) -> Option<ProcessId> {
    let (pid, start_time) = text.split_once(' ')?;
    Some(ProcessId { pid: HostPid::new(pid.parse().ok()?), start_time: start_time.parse().ok()? })
}

/// Writes a message.
///
/// # Errors
/// If the other side is gone.
pub fn tell(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads a message.
///
/// # Errors
/// If the other side is gone, or says something else.
pub fn hear<T: DeserializeOwned>(stream: impl BufRead) -> io::Result<T> {
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
    fn what_a_shepherd_writes_reads_back() {
        let id = ProcessId { pid: HostPid::new(7), start_time: 9 };
        let lines = [
            Line::Shepherd(id),
            Line::Ran,
            Line::Told,
            Line::Ended(Outcome::Exit(3)),
            Line::Ended(Outcome::Signal(9)),
            Line::Ended(Outcome::NotStarted("there is no xyz".into())),
            Line::Ended(Outcome::Lost),
        ];
        for line in lines {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in ["", "ran 3x", "exit", "exit x", "shepherd 3", "shepherd -1 2", "RAN"] {
            assert!(text.parse::<Line>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_message_that_is_cut_off_is_none() {
        let order = Order {
            command: vec!["a".into()],
            environment: vec![("A".into(), "b\nc".into())],
            workdir: "/".into(),
            farewell: TerminationPolicy::DEFAULT,
        };
        let mut wire = Vec::new();
        tell(&mut wire, &order).unwrap();
        assert_eq!(hear::<Order>(&wire[..]).unwrap(), order);
        assert!((0..wire.len()).all(|length| hear::<Order>(&wire[..length]).is_err()));
    }
}
