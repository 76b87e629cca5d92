//! Measurement of the cost of a context: driver memory beyond the allocations of a process.
//!
//! The cost is undocumented, differs by GPU, driver and compute mode, and has to be charged *before* it is
//! taken. A child process (this program, called with [`ARGUMENT`] and a UUID) therefore creates a context,
//! runs one kernel, and waits while the parent reads its memory from NVML. The child also keeps libcuda out
//! of the daemon, where a context would cost memory for the daemon's lifetime.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::units::Bytes;

use crate::{Driver, GpuFacts, InventoryError};

mod child;

pub use child::child_main;

/// Hidden subcommand with which the program has to call [`child_main`] with the UUID that follows.
pub const ARGUMENT: &str = "calibrate-context";

/// Output of the child once its context exists.
const READY: &str = "ready";

/// Time for the child to create a context; slow drivers take seconds for the first one after boot.
const CONTEXT_DEADLINE: Duration = Duration::from_secs(15);

/// Time for NVML to list the child.
const NVML_DEADLINE: Duration = Duration::from_secs(2);

/// Interval of polling NVML.
const LOOK: Duration = Duration::from_millis(20);

/// Time for the child to exit before it is killed.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);

/// Tolerance between two measurements of the same context.
const SAME: Bytes = Bytes::mib(16);

/// Upper bound on the cost of a context on any GPU.
const MOST: Bytes = Bytes::mib(2048);

/// Granularity of the driver's allocations in bytes.
const BLOCK: u64 = 2 << 20;

/// Measures the cost of one process's context on a GPU, rounded up to blocks of 2 MiB. Blocks the thread for
/// a tenth of a second to some seconds.
///
/// # Errors
/// [`InventoryError::Calibration`] if the child could not create a context or NVML did not show it, and the
/// errors of [`Driver::state`].
pub fn context_cost(driver: &dyn Driver, gpu: &GpuFacts) -> Result<Bytes, InventoryError> {
    let before = driver.state(gpu.uuid)?.used;
    let program = std::env::current_exe()
        .map_err(|error| failure(gpu.uuid, format!("finding this program's own file: {error}")))?;
    let mut command = Command::new(program);
    command.arg(ARGUMENT).arg(gpu.uuid.to_string());
    let child = ContextHolder::spawn(&mut command, gpu.uuid)?;
    if let Some(cost) = measure(driver, gpu.uuid, child.pid())? {
        return Ok(whole_blocks(cost));
    }
    let with = driver.state(gpu.uuid)?.used;
    drop(child);
    growth(gpu.uuid, before, with, driver.state(gpu.uuid)?.used).map(whole_blocks)
}

/// Cost of a context from the growth of the GPU's total use with it and the fall without it. Since other
/// programs change the total too, the figures have to agree, and to be below the upper bound.
fn growth(gpu: GpuUuid, before: Bytes, with: Bytes, after: Bytes) -> Result<Bytes, InventoryError> {
    let (grew, fell) = (with.saturating_sub(before), with.saturating_sub(after));
    let apart = grew.saturating_sub(fell).max(fell.saturating_sub(grew));
    if grew == Bytes::ZERO {
        return Err(failure(gpu, "a context was made, but NVML shows no memory for it"));
    }
    if apart > SAME || grew > MOST {
        let cause =
            format!("the GPU's use grew by {grew} with a context and fell by {fell} without: others use it");
        return Err(failure(gpu, cause));
    }
    Ok(grew)
}

fn failure(gpu: GpuUuid, cause: impl Into<String>) -> InventoryError {
    InventoryError::Calibration { gpu, cause: cause.into() }
}

fn whole_blocks(bytes: Bytes) -> Bytes {
    Bytes::new(bytes.get().div_ceil(BLOCK).saturating_mul(BLOCK))
}

/// Memory of the child, once two readings of it agree.
/// `None` if NVML does not report memory by process (another pid namespace, WDDM).
fn measure(driver: &dyn Driver, gpu: GpuUuid, child: HostPid) -> Result<Option<Bytes>, InventoryError> {
    let end = Instant::now() + NVML_DEADLINE;
    let mut last = None;
    while Instant::now() < end {
        let now = held(driver, gpu, child)?;
        if now.is_some() && now == last {
            return Ok(now);
        }
        last = now;
        thread::sleep(LOOK);
    }
    Ok(None)
}

/// Memory of a process in NVML's list, if reported and not zero.
fn held(driver: &dyn Driver, gpu: GpuUuid, pid: HostPid) -> Result<Option<Bytes>, InventoryError> {
    let processes = driver.processes(gpu)?;
    let used = processes.iter().find(|process| process.pid == pid).and_then(|process| process.used);
    Ok(used.filter(|&used| used > Bytes::ZERO))
}

/// The child with its context. Dropping it closes its input, then kills it.
struct ContextHolder(Child);

impl ContextHolder {
    fn spawn(command: &mut Command, gpu: GpuUuid) -> Result<Self, InventoryError> {
        // The child sees the bare GPU, whatever environment the daemon has.
        command.env_remove("LD_PRELOAD").env("CUDA_VISIBLE_DEVICES", gpu.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child =
            command.spawn().map_err(|error| failure(gpu, format!("starting {command:?}: {error}")))?;
        let mut holder = Self(child);
        let output = holder.0.stdout.take().expect("the child's output was piped");
        match first_line(output) {
            Some(line) if line == READY => Ok(holder),
            Some(line) if !line.is_empty() => Err(failure(gpu, line)),
            Some(_) => Err(failure(gpu, "the child ended without a word")),
            None => Err(failure(gpu, format!("no context within {} s", CONTEXT_DEADLINE.as_secs()))),
        }
    }

    fn pid(&self) -> HostPid {
        HostPid::new(self.0.id())
    }
}

impl Drop for ContextHolder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let end = Instant::now() + LEAVE_DEADLINE;
        while Instant::now() < end {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK);
        }
        // Errors are ignored: nothing remains to be tried.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The child's first line, without its newline; `None` after the deadline.
/// Empty if the output ends before it.
fn first_line(output: ChildStdout) -> Option<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(output).read_line(&mut line);
        let _ = tell.send(line.trim_end().to_string());
    });
    told.recv_timeout(CONTEXT_DEADLINE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedDriver, v100};

    fn holder(script: &str) -> Result<ContextHolder, InventoryError> {
        ContextHolder::spawn(Command::new("sh").args(["-c", script]), v100(0).uuid)
    }

    #[test]
    fn child_output_is_the_error_message() {
        let error = holder("echo cuInit failed: CUDA_ERROR_NO_DEVICE").err().unwrap();
        assert!(error.to_string().contains("CUDA_ERROR_NO_DEVICE"), "{error}");
    }

    #[test]
    fn silent_exit_of_child_is_an_error() {
        assert!(holder("exit 1").err().unwrap().to_string().contains("without a word"));
    }

    #[test]
    fn dropping_a_holder_reaps_its_child() {
        let holder = holder("echo ready; read end").unwrap();
        let proc = format!("/proc/{}", holder.pid());
        assert!(std::path::Path::new(&proc).exists());
        drop(holder);
        assert!(!std::path::Path::new(&proc).exists());
    }

    #[test]
    fn process_memory_in_nvml_is_the_cost() {
        let driver = ScriptedDriver::new(vec![v100(0)]);
        driver.set_process(v100(0).uuid, HostPid::new(5), Bytes::mib(307));
        let cost = measure(&driver, v100(0).uuid, HostPid::new(5)).unwrap();
        assert_eq!(cost.map(whole_blocks), Some(Bytes::mib(308)));
    }

    #[test]
    fn total_growth_is_the_cost_without_process_memory() {
        let driver = ScriptedDriver::new(vec![v100(0)]);
        driver.set_process(v100(0).uuid, HostPid::new(5), Bytes::mib(408));
        assert_eq!(measure(&driver, v100(0).uuid, HostPid::new(6)), Ok(None));
        let grown = |before, with, after| {
            growth(v100(0).uuid, Bytes::mib(before), Bytes::mib(with), Bytes::mib(after))
        };
        assert_eq!(grown(100, 408, 102), Ok(Bytes::mib(308)));
        assert!(grown(100, 100, 100).is_err());
    }

    #[test]
    fn disturbed_growth_is_rejected() {
        let grown = |before, with, after| {
            growth(v100(0).uuid, Bytes::mib(before), Bytes::mib(with), Bytes::mib(after))
        };
        assert!(grown(100, 1408, 1100).is_err(), "a program allocated meanwhile");
        assert!(grown(100, 8408, 100).is_err(), "a program allocated and freed meanwhile");
        assert!(grown(500, 708, 400).is_err(), "a program freed meanwhile");
    }
}
