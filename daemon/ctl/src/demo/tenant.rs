//! A workload in a slice, controlled over a line protocol.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tranche_domain::units::Bytes;

use super::observer::Seen;
use super::owned::Owned;
use super::parts::Parts;
use super::{DemoError, interrupt};

/// Time limit of a reply: contexts are slow on a machine that has just started.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of a workload. Kernels are long compared to a launch and several threads keep the GPU supplied,
/// so that a busy machine does not blur rates.
const WORK: [&str; 5] = ["--interactive", "--kernel-ns", "5000000", "--threads", "4"];

/// A program that answers each line with one line of JSON.
#[derive(Debug)]
pub(super) struct Talk {
    owned: Owned,
    name: String,
    answers: Receiver<String>,
}

impl Talk {
    /// Starts a program that replies to each line of its input with one line.
    pub(super) fn start(command: &mut Command, name: &str, folder: &Path) -> Result<Self, DemoError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut owned = Owned::start(command, &name.replace(' ', "-"), folder)?;
        let output = owned.child().stdout.take().expect("the output was piped");
        let (tell, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { owned, name: name.to_string(), answers })
    }

    /// Sends a line and receives the reply.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, question: &str) -> Result<T, DemoError> {
        let input =
            self.owned.child().stdin.as_mut().expect("the input was piped and is closed only at the end");
        writeln!(input, "{question}").map_err(|_| self.owned.too_early())?;
        self.hear(question)
    }

    /// Receives one reply, a line of JSON; `question` is for messages.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, question: &str) -> Result<T, DemoError> {
        let line = self.line(question)?;
        serde_json::from_str(&line).map_err(|_| DemoError::Strange {
            who: self.name.clone(),
            question: question.into(),
            answer: line,
        })
    }

    fn line(&mut self, question: &str) -> Result<String, DemoError> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            interrupt::check()?;
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.owned.wait(Duration::from_secs(1));
                    return Err(self.owned.too_early());
                }
            }
        }
        Err(DemoError::InVain { what: format!("{} to answer {question:?}", self.name), waited: PATIENCE })
    }
}

/// Reply of a workload; values that do not apply are absent.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    /// True if it worked.
    pub(super) ok: bool,
    /// The driver's name of the error.
    pub(super) error: Option<String>,
    /// Memory that the workload holds.
    pub(super) allocated_bytes: Bytes,
    /// Kernels per second since the last request.
    pub(super) per_second: Option<f64>,
    /// Errors of failed kernels, the first few only.
    #[serde(default)]
    pub(super) errors: Vec<String>,
    /// Pid of the workload; present in the first reply.
    pub(super) pid: Option<u32>,
    /// Its GPU, as CUDA shows it.
    pub(super) device: Option<DeviceSeen>,
}

/// A GPU as CUDA shows it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct DeviceSeen {
    /// `cuDeviceTotalMem`.
    pub(super) device_total_bytes: Bytes,
    /// Total by `cuMemGetInfo`.
    pub(super) total_bytes: Bytes,
    /// Free by `cuMemGetInfo`.
    pub(super) free_bytes: Bytes,
}

/// A workload in a slice of its own.
#[derive(Debug)]
pub(super) struct Tenant {
    talk: Talk,
    pid: u32,
}

/// Parameters of a workload.
#[derive(Debug)]
pub(super) struct Lease<'a> {
    /// Name of the slice.
    pub(super) name: &'a str,
    /// Part of the GPU, as for `tranche run -g`.
    pub(super) share: &'a str,
    /// The GPU it must be on.
    pub(super) gpu: &'a str,
}

impl Tenant {
    /// Runs a workload through `tranche run`.
    pub(super) fn start(
        parts: &Parts,
        environment: &[(OsString, OsString)],
        folder: &Path,
        lease: &Lease<'_>,
    ) -> Result<Self, DemoError> {
        let mut command = Command::new(parts.program("tranche"));
        command.envs(environment.iter().cloned());
        command.args(["run", "-g", lease.share, "--gpu", lease.gpu, "--name", lease.name, "--"]);
        command.arg(parts.program("workload"));
        command.args(WORK);
        let mut talk = Talk::start(&mut command, lease.name, folder)?;
        let greeting: Answer = talk.hear("(its greeting)")?;
        match greeting.pid {
            Some(pid) if greeting.ok => Ok(Self { talk, pid }),
            _ => Err(strange(lease.name, "(its greeting)", &greeting)),
        }
    }

    /// Sends a line and returns the reply, successful or not.
    pub(super) fn ask(&mut self, question: &str) -> Result<Answer, DemoError> {
        self.talk.ask(question)
    }

    /// Sends a line; a reply with an error fails.
    pub(super) fn tell(&mut self, order: &str) -> Result<Answer, DemoError> {
        let answer = self.ask(order)?;
        if answer.ok { Ok(answer) } else { Err(strange(&self.talk.name, order, &answer)) }
    }

    /// Its GPU as CUDA shows it.
    pub(super) fn device(&mut self) -> Result<DeviceSeen, DemoError> {
        let answer = self.tell("info")?;
        answer.device.ok_or_else(|| strange(&self.talk.name, "info", &answer))
    }

    /// NVML's data as the workload sees them.
    pub(super) fn nvml(&mut self) -> Result<Seen, DemoError> {
        self.talk.ask("nvml")
    }

    /// Kernels per second over a period.
    pub(super) fn rate_over(&mut self, time: Duration) -> Result<f64, DemoError> {
        self.tell("rate")?;
        interrupt::sleep(time)?;
        self.rate()
    }

    /// Kernels per second since the last request.
    pub(super) fn rate(&mut self) -> Result<f64, DemoError> {
        Ok(self.tell("rate")?.per_second.unwrap_or_default())
    }

    /// Kills the workload itself, at once.
    pub(super) fn kill(&self) -> Result<(), DemoError> {
        let pid = i32::try_from(self.pid).unwrap_or(i32::MAX);
        kill(Pid::from_raw(pid), Signal::SIGKILL)
            .map_err(|errno| DemoError::io(format!("killing {pid}"))(errno.into()))
    }

    /// Ends the workload in order; fails if `tranche run` does.
    pub(super) fn leave(mut self) -> Result<(), DemoError> {
        drop(self.talk.owned.child().stdin.take());
        match self.talk.owned.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(self.talk.owned.too_early()),
            None => Err(DemoError::InVain { what: format!("{} to leave", self.talk.name), waited: PATIENCE }),
        }
    }

    /// Waits for the end of `tranche run` after its program was killed.
    pub(super) fn gone(mut self) -> Result<(), DemoError> {
        match self.talk.owned.wait(PATIENCE) {
            Some(_) => Ok(()),
            None => Err(DemoError::InVain { what: format!("{} to end", self.talk.name), waited: PATIENCE }),
        }
    }
}

fn strange(who: &str, question: &str, answer: &Answer) -> DemoError {
    DemoError::Strange { who: who.into(), question: question.into(), answer: format!("{answer:?}") }
}
