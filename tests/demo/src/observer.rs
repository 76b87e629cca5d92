//! Observations through NVML from outside all slices.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use tranche_domain::units::Bytes;

use crate::error::DemoError;
use crate::parts::Parts;
use crate::talk::Talk;

/// NVML's data at one instant.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Seen {
    nvml_version: String,
    pub(crate) gpus: Vec<GpuSeen>,
}

impl Seen {
    /// Tests if this NVML is the simulated one.
    pub(crate) fn is_simulated(&self) -> bool {
        self.nvml_version.ends_with("-simulated")
    }

    /// The GPU with this index.
    pub(crate) fn gpu(&self, index: u32) -> Option<&GpuSeen> {
        self.gpus.iter().find(|gpu| gpu.index == index)
    }
}

/// A GPU in NVML's data.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GpuSeen {
    pub(crate) index: u32,
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) total_bytes: Bytes,
    /// Memory reserved by the driver.
    pub(crate) reserved_bytes: Bytes,
    /// Memory in use by all processes.
    pub(crate) used_bytes: Bytes,
    /// True if MIG mode is enabled.
    pub(crate) mig: bool,
    /// Processes on the GPU.
    pub(crate) processes: Vec<ProcessSeen>,
}

impl GpuSeen {
    /// Memory available to programs.
    pub(crate) fn capacity(&self) -> Bytes {
        self.total_bytes.saturating_sub(self.reserved_bytes)
    }
}

/// A process in NVML's data.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ProcessSeen {
    pub(crate) pid: u32,
}

/// A program that reads NVML on request.
#[derive(Debug)]
pub(crate) struct Observer {
    talk: Talk,
    first: Seen,
}

impl Observer {
    /// Starts the program; fails if NVML does not work there.
    pub(crate) fn start(
        parts: &Parts,
        environment: &[(OsString, OsString)],
        folder: &Path,
    ) -> Result<Self, DemoError> {
        let mut command = Command::new(parts.program("workload"));
        command.args(["--nvml", "--interactive"]).envs(environment.iter().cloned());
        let mut talk = Talk::start(&mut command, "the observer", folder)?;
        let first = talk.hear("(its first look)")?;
        Ok(Self { talk, first })
    }

    /// Its first observation; ends the program.
    pub(crate) fn first_look(self) -> Result<Seen, DemoError> {
        Ok(self.first)
    }

    /// Memory in use on a GPU, by any process.
    pub(crate) fn used(&mut self, index: u32) -> Result<Bytes, DemoError> {
        let seen: Seen = self.talk.ask("nvml")?;
        seen.gpu(index).map(|gpu| gpu.used_bytes).ok_or_else(|| DemoError::InVain {
            what: format!("NVML to show GPU {index}"),
            waited: std::time::Duration::ZERO,
        })
    }
}
