//! Report that the program writes at its end.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;

use crate::cuda::{CudaError, Gpu};
use crate::failure::Failure;
use crate::hoard::Refusal;

/// The GPU as CUDA shows it.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceReport {
    /// Product name that CUDA reports.
    pub(crate) name: String,
    /// UUID that CUDA reports.
    pub(crate) uuid: GpuUuid,
    /// `cuDeviceTotalMem`.
    pub(crate) device_total_bytes: Bytes,
    /// Total by `cuMemGetInfo`.
    pub(crate) total_bytes: Bytes,
    /// Free by `cuMemGetInfo`.
    pub(crate) free_bytes: Bytes,
}

impl DeviceReport {
    pub(crate) fn of(gpu: &Gpu) -> Result<Self, CudaError> {
        let (free_bytes, total_bytes) = gpu.memory()?;
        let (name, uuid, device_total_bytes) = (gpu.name()?, gpu.uuid()?, gpu.device_total()?);
        Ok(Self { name, uuid, device_total_bytes, total_bytes, free_bytes })
    }
}

/// Report of a run that came to its end.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The program ran to its end.
    pub(crate) ok: bool,
    /// Process id of this process.
    pub(crate) pid: u32,
    /// Number of its GPUs.
    pub(crate) devices: i32,
    /// The GPU in use, as it was before anything was allocated.
    pub(crate) device: DeviceReport,
    /// Bytes held at the end.
    pub(crate) allocated_bytes: Bytes,
    /// The largest request that was refused.
    pub(crate) largest_refused: Option<Refusal>,
    /// Answers to `--beyond`, in order; null where it was granted.
    pub(crate) beyond: Vec<Option<Refusal>>,
    /// Kernels that were launched and done.
    pub(crate) launches: u64,
    /// Time that launching took, in seconds.
    pub(crate) seconds: f64,
    /// Launches per second over all of it.
    pub(crate) per_second: f64,
    /// Launches in each whole second.
    pub(crate) windows: Vec<u64>,
    /// First errors of the launching threads, in words.
    pub(crate) errors: Vec<String>,
}

/// Report of a run that failed.
#[derive(Debug, Serialize)]
pub(crate) struct Failed {
    ok: bool,
    pid: u32,
    error: String,
    message: String,
}

impl Failed {
    pub(crate) fn new(failure: &Failure) -> Self {
        let error = match failure {
            Failure::Cuda(error) => error.name().to_string(),
            Failure::Nvml(_) => "NVML".to_string(),
            Failure::Io { .. } => "IO".to_string(),
        };
        Self { ok: false, pid: std::process::id(), error, message: failure.to_string() }
    }
}

/// Writes one line of JSON to a file, or to standard output for `-`.
pub(crate) fn write(path: &Path, what: &impl Serialize) -> Result<(), Failure> {
    let line = line(what);
    let written = match path.to_str() {
        Some("-") => io::stdout().write_all(line.as_bytes()),
        _ => fs::write(path, line),
    };
    written.map_err(|cause| Failure::Io { what: format!("writing the report to {}", path.display()), cause })
}

/// One line of JSON.
pub(crate) fn line(what: &impl Serialize) -> String {
    let mut line = serde_json::to_string(what).expect("reports have text keys and finite numbers");
    line.push('\n');
    line
}
