//! Fields of slices and GPUs: name, unit, description and value.

use tranche_domain::id::InnerPid;
use tranche_domain::pod::PodContainer;
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{GpuView, NodeView, ProcessView, SliceView};

use super::field::{Field, OfGpu, OfSlice};

macro_rules! fields {
    ($($name:literal $([$unit:literal])?, $about:literal, $value:expr;)*) => {
        [$(Field { name: $name, unit: concat!($($unit)?), about: $about, value: $value },)*]
    };
}

/// Fields of `--query-slice`.
pub static SLICE_FIELDS: [Field<OfSlice>; 38] = fields! {
    "name", "name of the slice", |slice, _| Some(slice.name.to_string());
    "gpu", "index of the GPU", |_, device| Some(device.gpu_index.to_string());
    "gpu.uuid", "UUID of the GPU", |_, device| Some(device.gpu_uuid.to_string());
    "share", "what was asked for", |slice, _| Some(slice.share.to_string());
    "memory.total" ["MiB"], "the most it may hold", |_, device| mib(device.cap);
    "memory.used" ["MiB"], "what its processes are charged for", |_, device| mib(device.used);
    "memory.shared" ["MiB"], "of that, held by several of its processes", |_, device| mib(device.shared);
    "memory.over_cap" ["MiB"], "beyond its cap, after a shrink", |_, device| mib(device.over_cap);
    "memory.free" ["MiB"], "total less used", |_, device| mib(device.cap.saturating_sub(device.used));
    "utilization.gpu" ["%"], "use of the GPU by this slice, as NVML tells", |_, device| text(device.utilization_percent);
    "compute" ["%"], "its compute request", |slice, _| percent(slice.compute);
    "compute.limit" ["%"], "the most compute it may have", |slice, _| percent(slice.limit);
    "compute.used" ["%"], "its part of the GPU's time in the last second", |_, device| percent(device.compute_used_1s);
    "compute.used_60s" ["%"], "and in the last minute", |_, device| percent(device.compute_used_60s);
    "compute.state", "what it does with its compute, or why nothing", |slice, _| Some(slice.state());
    "compute.waits_for", "the slice that it waits for", |slice, _| slice.waits_for.as_ref().map(ToString::to_string);
    "compute.passed", "launches let through for want of progress", |slice, _| Some(slice.launches_passed.to_string());
    "compute.degraded", "launches let through while the daemon was away", |slice, _| Some(slice.launches_degraded.to_string());
    "priority", "who goes first: the higher", |slice, _| Some(slice.priority.to_string());
    "latency.target" ["ms"], "longest wait for the GPU that it should have within its share", |slice, _| Some((f64::from(slice.latency?.micros()) / 1000.0).to_string());
    "latency.waits", "waits for the GPU of a slice with such a target", |slice, _| slice.latency.map(|_| slice.waits.count.to_string());
    "latency.late", "those that took longer", |slice, _| slice.latency.map(|_| slice.waits.late.to_string());
    "latency.longest" ["ms"], "the longest of them", |slice, _| slice.latency.map(|_| (slice.waits.longest_us as f64 / 1000.0).to_string());
    "gang", "the gang with which it has its turns", |slice, _| Some(slice.gang.as_ref()?.as_str().to_owned());
    "project", "the project that it counts for", |slice, _| Some(slice.project.as_ref()?.as_str().to_owned());
    "mode", "how its compute is bounded", |slice, _| Some(slice.mode.to_string());
    "tier", "its enforcement tier", |slice, _| Some(slice.tier.clone());
    "tier.reason", "why it has that tier", |slice, _| Some(slice.tier_reason.clone());
    "ephemeral", "whether it ends with its last process", |slice, _| Some(slice.ephemeral.to_string());
    "owner", "user id of who made it", |slice, _| Some(slice.owner_uid.to_string());
    "namespace", "namespace of the pod that it is for", |slice, _| of_pod(slice, |pod| pod.namespace.to_string());
    "pod", "name of that pod", |slice, _| of_pod(slice, |pod| pod.name.to_string());
    "container", "name of its container", |slice, _| of_pod(slice, |pod| pod.container.to_string());
    "pod.uid", "uid of that pod", |slice, _| slice.pod.as_ref()?.uid.as_ref().map(ToString::to_string);
    "created", "when it was made, in ms since 1970", |slice, _| Some(slice.created_unix_ms.to_string());
    "processes", "number of its processes that use CUDA", |slice, _| Some(slice.processes.len().to_string());
    "pids", "those processes, with spaces between", |slice, _| Some(pids(slice));
    "pids.inside", "and as their containers number them", |slice, _| Some(inner_pids(slice));
};

/// Fields of `--query-gpu`, with nvidia-smi's names and units where it has them.
pub static GPU_FIELDS: [Field<OfGpu>; 24] = fields! {
    "index", "NVML index", |_, gpu| Some(gpu.index.to_string());
    "uuid", "UUID", |_, gpu| Some(gpu.uuid.to_string());
    "name", "product name", |_, gpu| Some(gpu.name.clone());
    "pci.bus_id", "PCI bus id", |_, gpu| Some(gpu.pci_bus_id.clone());
    "count", "number of GPUs in the node", |node, _| Some(node.gpus.len().to_string());
    "driver_version", "version of the driver", |node, _| Some(node.driver_version.clone());
    "compute_cap", "compute capability", |_, gpu| Some(gpu.compute_capability.clone());
    "memory.total" ["MiB"], "all of its memory", |_, gpu| mib(gpu.total);
    "memory.reserved" ["MiB"], "what the driver keeps from all programs", |_, gpu| mib(gpu.reserved);
    "memory.used" ["MiB"], "in use now, by all processes", |_, gpu| mib(gpu.used);
    "memory.free" ["MiB"], "total less reserved and used", |_, gpu| mib(free(gpu));
    "memory.capacity" ["MiB"], "what slices can be made of", |_, gpu| mib(gpu.capacity);
    "memory.committed" ["MiB"], "promised to slices", |_, gpu| mib(gpu.committed);
    "compute.committed" ["%"], "compute promised to slices", |_, gpu| percent(gpu.committed_compute);
    "utilization.gpu" ["%"], "utilisation", |_, gpu| text(gpu.utilization_percent);
    "utilization.memory" ["%"], "utilisation of the memory interface", |_, gpu| text(gpu.memory_utilization_percent);
    "temperature.gpu", "temperature in degrees Celsius", |_, gpu| text(gpu.temperature_celsius);
    "power.draw" ["W"], "power draw", |_, gpu| gpu.power_milliwatts.map(watts);
    "power.limit" ["W"], "power limit", |_, gpu| gpu.power_limit_milliwatts.map(watts);
    "slices", "number of slices on it", |node, gpu| Some(slices_on(node, gpu).to_string());
    "sliceable", "whether slices may be put on it", |_, gpu| Some(gpu.not_sliceable.is_none().to_string());
    "not_sliceable.reason", "why not", |_, gpu| gpu.not_sliceable.clone();
    "cordoned", "whether an operator keeps further slices off it", |_, gpu| Some(gpu.cordon.is_some().to_string());
    "processes.foreign", "number of its processes in no slice", |_, gpu| Some(gpu.foreign.len().to_string());
};

fn mib(bytes: Bytes) -> Option<String> {
    Some(bytes.whole_mib().to_string())
}

fn text(number: Option<u32>) -> Option<String> {
    number.map(|number| number.to_string())
}

fn percent(share: Permille) -> Option<String> {
    Some(share.to_string().trim_end_matches(" %").to_owned())
}

fn watts(milliwatts: u32) -> String {
    format!("{:.2}", f64::from(milliwatts) / 1000.0)
}

fn free(gpu: &GpuView) -> Bytes {
    gpu.total.saturating_sub(gpu.reserved).saturating_sub(gpu.used)
}

fn slices_on(node: &NodeView, gpu: &GpuView) -> usize {
    let here = |slice: &&SliceView| slice.devices.iter().any(|device| device.gpu_uuid == gpu.uuid);
    node.slices.iter().filter(here).count()
}

fn of_pod(slice: &SliceView, part: impl Fn(&PodContainer) -> String) -> Option<String> {
    slice.pod.as_ref().map(part)
}

fn pids(slice: &SliceView) -> String {
    let pids: Vec<_> = slice.processes.iter().map(|process| process.pid.to_string()).collect();
    pids.join(" ")
}

/// Pids in the processes' own namespaces, in the order of [`pids`].
fn inner_pids(slice: &SliceView) -> String {
    let inner = |process: &ProcessView| process.inner_pid.map_or(process.pid.get(), InnerPid::get);
    let pids: Vec<_> = slice.processes.iter().map(|process| inner(process).to_string()).collect();
    pids.join(" ")
}
