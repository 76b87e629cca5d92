//! A workload in a slice, controlled over a line protocol.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use tranche_domain::units::Bytes;

use crate::error::DemoError;
use crate::interrupt;
use crate::observer::Seen;
use crate::parts::Parts;
use crate::talk::{PATIENCE, Talk};

/// Arguments of a workload. Kernels are long compared to a launch and several threads keep the GPU supplied,
/// so that a busy machine does not blur rates.
const WORK: [&str; 5] = ["--interactive", "--kernel-ns", "5000000", "--threads", "4"];

/// Reply of a workload; values that do not apply are absent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    /// True if it worked.
    pub(crate) ok: bool,
    /// The driver's name of the error.
    pub(crate) error: Option<String>,
    /// Memory that the workload holds.
    pub(crate) allocated_bytes: Bytes,
    /// Kernels per second since the last request.
    pub(crate) per_second: Option<f64>,
    /// Errors of failed kernels, the first few only.
    #[serde(default)]
    pub(crate) errors: Vec<String>,
    /// Pid of the workload; present in the first reply.
    pub(crate) pid: Option<u32>,
    /// Its GPU, as CUDA shows it.
    pub(crate) device: Option<DeviceSeen>,
}

/// A GPU as CUDA shows it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct DeviceSeen {
    /// `cuDeviceTotalMem`.
    pub(crate) device_total_bytes: Bytes,
    /// Total by `cuMemGetInfo`.
    pub(crate) total_bytes: Bytes,
    /// Free by `cuMemGetInfo`.
    pub(crate) free_bytes: Bytes,
}

/// A workload in a slice of its own.
#[derive(Debug)]
pub(crate) struct Tenant {
    talk: Talk,
    pid: u32,
}

/// Parameters of a workload.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    /// Name of the slice.
    pub(crate) name: &'a str,
    /// Part of the GPU, as for `tranche run -g`.
    pub(crate) share: &'a str,
    /// The GPU it must be on.
    pub(crate) gpu: &'a str,
}

impl Tenant {
    /// Runs a workload through `tranche run`.
    pub(crate) fn start(
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
    pub(crate) fn ask(&mut self, question: &str) -> Result<Answer, DemoError> {
        self.talk.ask(question)
    }

    /// Sends a line; a reply with an error fails.
    pub(crate) fn tell(&mut self, order: &str) -> Result<Answer, DemoError> {
        let answer = self.ask(order)?;
        if answer.ok { Ok(answer) } else { Err(strange(&self.talk.name, order, &answer)) }
    }

    /// Its GPU as CUDA shows it.
    pub(crate) fn device(&mut self) -> Result<DeviceSeen, DemoError> {
        let answer = self.tell("info")?;
        answer.device.ok_or_else(|| strange(&self.talk.name, "info", &answer))
    }

    /// NVML's data as the workload sees them.
    pub(crate) fn nvml(&mut self) -> Result<Seen, DemoError> {
        self.talk.ask("nvml")
    }

    /// Kernels per second over a period.
    pub(crate) fn rate_over(&mut self, time: Duration) -> Result<f64, DemoError> {
        self.tell("rate")?;
        interrupt::sleep(time)?;
        self.rate()
    }

    /// Kernels per second since the last request.
    pub(crate) fn rate(&mut self) -> Result<f64, DemoError> {
        Ok(self.tell("rate")?.per_second.unwrap_or_default())
    }

    /// Kills the workload itself, at once.
    pub(crate) fn kill(&self) -> Result<(), DemoError> {
        let pid = i32::try_from(self.pid).unwrap_or(i32::MAX);
        kill(Pid::from_raw(pid), Signal::SIGKILL)
            .map_err(|errno| DemoError::io(format!("killing {pid}"))(errno.into()))
    }

    /// Ends the workload in order; fails if `tranche run` does.
    pub(crate) fn leave(mut self) -> Result<(), DemoError> {
        drop(self.talk.owned.child().stdin.take());
        match self.talk.owned.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(self.talk.owned.too_early()),
            None => Err(DemoError::InVain { what: format!("{} to leave", self.talk.name), waited: PATIENCE }),
        }
    }

    /// Waits for the end of `tranche run` after its program was killed.
    pub(crate) fn gone(mut self) -> Result<(), DemoError> {
        match self.talk.owned.wait(PATIENCE) {
            Some(_) => Ok(()),
            None => Err(DemoError::InVain { what: format!("{} to end", self.talk.name), waited: PATIENCE }),
        }
    }
}

fn strange(who: &str, question: &str, answer: &Answer) -> DemoError {
    DemoError::Strange { who: who.into(), question: question.into(), answer: format!("{answer:?}") }
}
