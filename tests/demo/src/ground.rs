//! Selection of the GPU for the demonstration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tranche_ctl::cli::DemoGpu;

use crate::error::DemoError;
use crate::observer::{GpuSeen, Observer, Seen};
use crate::parts::Parts;

/// Preset of the simulated node: eight V100s.
const PRESET: &str = "v100x8";

/// Memory use in MiB of an idle GPU, on which drivers keep a few; more counts as used.
const IDLE_MIB: u64 = 64;

/// The selected GPU, with the environment for programs that use it.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Variables for the programs.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// GPU on which the demonstration runs.
    pub(crate) gpu: GpuSeen,
    /// Number of GPUs on the node.
    pub(crate) gpus: usize,
    /// True if they are simulated.
    pub(crate) simulated: bool,
}

impl Ground {
    /// Selects a GPU; creates the simulated node in the folder if necessary.
    pub(crate) fn choose(wanted: DemoGpu, parts: &Parts, folder: &Path) -> Result<Self, DemoError> {
        match wanted {
            DemoGpu::Sim => Self::simulated(parts, folder),
            DemoGpu::Real => Self::real(parts, folder)?.map_err(DemoError::NoFreeGpu),
            DemoGpu::Auto => match Self::real(parts, folder)? {
                Ok(real) => Ok(real),
                Err(_) => Self::simulated(parts, folder),
            },
        }
    }

    /// The simulated node of eight V100s.
    pub(crate) fn simulated(parts: &Parts, folder: &Path) -> Result<Self, DemoError> {
        let libraries = parts.simulated()?;
        let node = folder.join("node");
        make_node(parts, &node)?;
        let environment =
            vec![("LD_LIBRARY_PATH".into(), search_path(libraries)), ("SIMGPU_NODE".into(), node.into())];
        let seen = Observer::start(parts, &environment, folder)?.first_look()?;
        let gpus = seen.gpus.len();
        match seen.gpus.into_iter().next() {
            Some(gpu) => Ok(Self { environment, gpu, gpus, simulated: true }),
            None => Err(DemoError::NoFreeGpu("the simulated node has no GPU".into())),
        }
    }

    /// An idle real GPU, or the reason for which there is none.
    fn real(parts: &Parts, folder: &Path) -> Result<Result<Self, String>, DemoError> {
        let look = Observer::start(parts, &[], folder).and_then(Observer::first_look);
        let seen = match look {
            Ok(seen) => seen,
            Err(DemoError::Interrupted) => return Err(DemoError::Interrupted),
            Err(_) => return Ok(Err("NVML does not answer".into())),
        };
        Ok(free_gpu(&seen).map(|gpu| Self {
            environment: Vec::new(),
            gpu,
            gpus: seen.gpus.len(),
            simulated: false,
        }))
    }
}

fn free_gpu(seen: &Seen) -> Result<GpuSeen, String> {
    if seen.is_simulated() {
        return Err("NVML is the simulated one".into());
    }
    let mut busy = Vec::new();
    for gpu in &seen.gpus {
        match use_of(gpu) {
            None => return Ok(gpu.clone()),
            Some(how) => busy.push(format!("GPU {} {how}", gpu.index)),
        }
    }
    Err(if busy.is_empty() { "NVML shows no GPU".into() } else { busy.join("; ") })
}

/// Description of other use of the GPU, if any.
fn use_of(gpu: &GpuSeen) -> Option<String> {
    if let Some(process) = gpu.processes.first() {
        return Some(format!("is used by process {}", process.pid));
    }
    if gpu.mig {
        return Some("is divided by MIG".into());
    }
    (gpu.used_bytes.whole_mib() >= IDLE_MIB).then(|| format!("has {} in use", gpu.used_bytes))
}

fn make_node(parts: &Parts, node: &Path) -> Result<(), DemoError> {
    let mut command = Command::new(parts.program("simgpu"));
    command.args(["create", "--preset", PRESET]).arg(node).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(DemoError::io("starting simgpu"))?;
    if output.status.success() {
        return Ok(());
    }
    let last_words = format!(": {}", String::from_utf8_lossy(&output.stderr).trim());
    Err(DemoError::Ended { who: "simgpu create".into(), last_words })
}

/// The folder before whatever the loader searches already.
fn search_path(folder: PathBuf) -> OsString {
    let mut path = folder.into_os_string();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(nvml_version: &str, gpu: &str) -> Seen {
        serde_json::from_str(&format!(r#"{{"nvml_version":"{nvml_version}","gpus":[{gpu}]}}"#)).unwrap()
    }

    const IDLE: &str = r#"{"index":3,"uuid":"GPU-1","name":"A30","total_bytes":9,"reserved_bytes":1,
        "used_bytes":5,"mig":false,"processes":[]}"#;

    #[test]
    fn an_idle_real_gpu_is_used() {
        assert_eq!(free_gpu(&seen("13.580", IDLE)).unwrap().index, 3);
    }

    #[test]
    fn used_gpu_is_not_selected() {
        let busy = IDLE.replace(r#""processes":[]"#, r#""processes":[{"pid":1}]"#);
        assert_eq!(free_gpu(&seen("13.580", &busy)).unwrap_err(), "GPU 3 is used by process 1");
        let held = IDLE.replace(r#""used_bytes":5"#, r#""used_bytes":1073741824"#);
        assert!(free_gpu(&seen("13.580", &held)).is_err());
        let divided = IDLE.replace("false", "true");
        assert!(free_gpu(&seen("13.580", &divided)).is_err());
    }

    #[test]
    fn a_simulated_gpu_is_never_called_real() {
        assert!(free_gpu(&seen("13.580-simulated", IDLE)).is_err());
    }
}
