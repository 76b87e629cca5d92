//! NVML backend; the only user of NVIDIA's management library.

use std::collections::BTreeMap;
use std::ffi::{OsStr, c_ulong};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    ComputeMode, GpuVirtualizationMode, P2pCapabilitiesIndex, P2pStatus, TemperatureSensor,
};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::struct_wrappers::event::EventData;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, EventSet, Nvml};
use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, HostPid, NumaNode};
use tranche_domain::units::Bytes;

use crate::driver::{Driver, Hear};
use crate::error::InventoryError;
use crate::facts::{
    ComputeCapability, GpuFacts, GpuFault, GpuProcess, GpuState, NodeFacts, NotSliceable, ProcessUtilization,
    Recovery, UnreadableGpu,
};
use crate::island;

/// Soname of the real and of the simulated library.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Number of attempts to read a list that grows between its counting and its reading.
const ATTEMPTS: u32 = 4;

/// `NVML_AFFINITY_SCOPE_NODE` of nvml.h.
const AFFINITY_NODE: u32 = 0;

/// Words of a bitmap for 1024 NUMA nodes, the maximum of Linux.
const NUMA_WORDS: usize = 1024 / c_ulong::BITS as usize;

/// An index, with the properties of its GPU or an error.
type Look = (u32, Result<GpuFacts, NvmlError>);

/// A driver behind NVML, real or simulated.
#[derive(Debug)]
pub struct NvmlDriver {
    nvml: Nvml,
    /// Last known properties by index, so that a lost GPU stays in the list.
    seen: Mutex<BTreeMap<u32, GpuFacts>>,
}

impl NvmlDriver {
    /// Loads and initialises NVML.
    ///
    /// # Errors
    /// [`InventoryError::NoDriver`] if the library is missing or finds no driver.
    pub fn open(library: Option<&Path>) -> Result<Self, InventoryError> {
        let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
        let nvml = Nvml::builder().lib_path(path).init();
        let nvml = nvml.map_err(|error| InventoryError::NoDriver { reason: absence(path, &error) })?;
        Ok(Self { nvml, seen: Mutex::default() })
    }

    fn device(&self, gpu: GpuUuid) -> Result<Device<'_>, InventoryError> {
        self.nvml.device_by_uuid(gpu.to_string()).map_err(|error| match error {
            NvmlError::NotFound | NvmlError::InvalidArg => InventoryError::UnknownGpu(gpu),
            error => failed("the handle", gpu, &error),
        })
    }

    /// Properties of each index, or an error.
    fn look(&self) -> Result<Vec<Look>, InventoryError> {
        let count = self.nvml.device_count().map_err(|error| of_driver("the number of GPUs", &error))?;
        let facts = |index| self.nvml.device_by_index(index).and_then(|device| read(index, &device));
        Ok((0..count).map(|index| (index, facts(index))).collect())
    }

    /// Updates the known properties, and substitutes them where reading failed.
    fn remember(&self, looks: Vec<Look>) -> (Vec<GpuFacts>, Vec<UnreadableGpu>) {
        let mut seen = self.seen.lock().expect("nothing panics while holding what was seen");
        let (mut known, mut unreadable) = (Vec::new(), Vec::new());
        for (index, look) in looks {
            match (look, seen.get(&index)) {
                (Ok(facts), _) => {
                    seen.insert(index, facts.clone());
                    known.push(facts);
                }
                (Err(error), Some(before)) => known.push(lost(before, &error)),
                (Err(error), None) => unreadable.push(UnreadableGpu { index, cause: error.to_string() }),
            }
        }
        (known, unreadable)
    }

    /// Subscribes to the faults of all GPUs that support such events.
    fn listen(&self) -> Result<EventSet<'_>, NvmlError> {
        let mut set = self.nvml.create_event_set()?;
        for index in 0..self.nvml.device_count()? {
            let Ok(device) = self.nvml.device_by_index(index) else { continue };
            let kinds = device.supported_event_types().unwrap_or(EventTypes::empty());
            if kinds.contains(EventTypes::CRITICAL_XID_ERROR) {
                let registered = device.register_events(EventTypes::CRITICAL_XID_ERROR, set);
                set = registered.map_err(|failed| failed.error)?;
            }
        }
        Ok(set)
    }

    fn number_islands(&self, gpus: &mut [GpuFacts]) {
        let devices: Vec<_> = gpus.iter().map(|gpu| self.nvml.device_by_index(gpu.index).ok()).collect();
        let linked = |a: usize, b: usize| match (&devices[a], &devices[b]) {
            (Some(a), Some(b)) => nvlinked(a, b),
            _ => false,
        };
        for (gpu, island) in gpus.iter_mut().zip(island::number(devices.len(), linked)) {
            gpu.island = island;
        }
    }
}

impl Driver for NvmlDriver {
    fn facts(&self) -> Result<NodeFacts, InventoryError> {
        let text = |what, answer: Result<String, NvmlError>| answer.map_err(|error| of_driver(what, &error));
        let nvml_version = text("the NVML version", self.nvml.sys_nvml_version())?;
        let cuda =
            self.nvml.sys_cuda_driver_version().map_err(|error| of_driver("the CUDA version", &error))?;
        let (_, unreadable) = self.remember(self.look()?);
        Ok(NodeFacts {
            driver_version: text("the driver version", self.nvml.sys_driver_version())?,
            simulated: nvml_version.ends_with("-simulated"),
            nvml_version,
            cuda_version: u32::try_from(cuda).unwrap_or(0),
            unreadable,
        })
    }

    fn gpus(&self) -> Result<Vec<GpuFacts>, InventoryError> {
        let (mut gpus, _) = self.remember(self.look()?);
        self.number_islands(&mut gpus);
        Ok(gpus)
    }

    fn state(&self, gpu: GpuUuid) -> Result<GpuState, InventoryError> {
        let device = self.device(gpu)?;
        let memory = device.memory_info().map_err(|error| failed("memory in use", gpu, &error))?;
        let rates = device.utilization_rates().ok();
        let limit = device.enforced_power_limit().or_else(|_| device.power_management_limit());
        Ok(GpuState {
            used: Bytes::new(memory.used),
            utilization_percent: rates.as_ref().map(|rates| rates.gpu),
            memory_utilization_percent: rates.as_ref().map(|rates| rates.memory),
            temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            power_milliwatts: device.power_usage().ok(),
            power_limit_milliwatts: limit.ok(),
        })
    }

    fn processes(&self, gpu: GpuUuid) -> Result<Vec<GpuProcess>, InventoryError> {
        let device = self.device(gpu)?;
        let compute = patiently(|| device.running_compute_processes())
            .map_err(|error| failed("processes", gpu, &error))?;
        // Graphics and MPS clients are not listed on every system; compute processes are.
        let graphics = patiently(|| device.running_graphics_processes()).unwrap_or_default();
        let mps = patiently(|| device.mps_running_compute_processes()).unwrap_or_default();
        Ok(merge(compute.into_iter().chain(graphics).chain(mps)))
    }

    fn process_utilization(
        &self,
        gpu: GpuUuid,
        since_us: u64,
    ) -> Result<Vec<ProcessUtilization>, InventoryError> {
        let samples = match self.device(gpu)?.process_utilization_stats(since_us) {
            Err(NvmlError::NotFound) => Vec::new(),
            answer => answer.map_err(|error| failed("utilisation by process", gpu, &error))?,
        };
        // NVML pads the list with empty samples.
        let told = samples.into_iter().filter(|sample| sample.pid != 0 && sample.timestamp > since_us);
        Ok(told
            .map(|sample| ProcessUtilization {
                pid: HostPid::new(sample.pid),
                sm_percent: sample.sm_util,
                memory_percent: sample.mem_util,
                timestamp_us: sample.timestamp,
            })
            .collect())
    }

    fn follow_faults(&self, patience: Duration, hear: &mut Hear<'_>) -> Result<(), InventoryError> {
        let failed = |error: NvmlError| of_driver("faults", &error);
        let set = self.listen().map_err(failed)?;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        loop {
            let heard = match set.wait(patience_ms) {
                Err(NvmlError::Timeout) => None,
                event => Some(fault(&event.map_err(failed)?)),
            };
            if hear(heard).is_break() {
                return Ok(());
            }
        }
    }
}

fn fault(event: &EventData<'_>) -> GpuFault {
    let xid = match event.event_data {
        Some(XidError::Value(number)) => Xid::new(number),
        Some(XidError::Unknown) | None => Xid::new(0),
    };
    GpuFault { gpu: event.device.uuid().ok().and_then(|uuid| uuid.parse().ok()), xid }
}

fn absence(library: &OsStr, error: &NvmlError) -> String {
    match error {
        // The loader's message contains the name of the library.
        NvmlError::LibloadingError(error) => error.to_string(),
        error => format!("{} says that {error}", library.display()),
    }
}

fn read(index: u32, device: &Device<'_>) -> Result<GpuFacts, NvmlError> {
    let uuid = device.uuid()?.parse().map_err(|_| NvmlError::NotSupported)?;
    let memory = device.memory_info()?;
    let capability = device.cuda_compute_capability()?;
    let number = |part: i32| u32::try_from(part).unwrap_or(0);
    Ok(GpuFacts {
        index,
        uuid,
        name: device.name()?,
        pci_bus_id: device.pci_info()?.bus_id,
        compute_capability: ComputeCapability {
            major: number(capability.major),
            minor: number(capability.minor),
        },
        total: Bytes::new(memory.total),
        reserved: Bytes::new(memory.reserved),
        island: index,
        numa_node: numa_node(device),
        not_sliceable: obstacle(device),
    })
}

/// The NUMA node next to the GPU; `None` if there are several.
fn numa_node(device: &Device<'_>) -> Option<NumaNode> {
    let near = device.memory_affinity(NUMA_WORDS, AFFINITY_NODE).ok()?;
    only(&near).map(NumaNode::new)
}

/// Number of the only bit set in these words, lowest word first.
fn only(words: &[c_ulong]) -> Option<u32> {
    let mut set = (0..).zip(words).filter(|(_, word)| **word != 0);
    let ((at, word), None) = (set.next()?, set.next()) else { return None };
    word.is_power_of_two().then(|| at * c_ulong::BITS + word.trailing_zeros())
}

/// Configurations that preclude sharing. A GPU that does not support a query does not have the configuration.
fn obstacle(device: &Device<'_>) -> Option<NotSliceable> {
    if device.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Some(NotSliceable::Mig);
    }
    match device.virtualization_mode() {
        Ok(GpuVirtualizationMode::Bare | GpuVirtualizationMode::PassThrough) | Err(_) => {}
        Ok(_) => return Some(NotSliceable::Vgpu),
    }
    if let Some(recovery) = recovery(device) {
        return Some(NotSliceable::NeedsRecovery(recovery));
    }
    match device.compute_mode() {
        Ok(ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread) => {
            Some(NotSliceable::ExclusiveProcess)
        }
        Ok(ComputeMode::Prohibited) => Some(NotSliceable::Prohibited),
        Ok(ComputeMode::Default) | Err(_) => None,
    }
}

/// Recovery that the driver demands; drivers before 560 do not report it.
fn recovery(device: &Device<'_>) -> Option<Recovery> {
    let field = device.field_values_for(&[FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)]).ok()?.pop()?.ok()?;
    match field.value.ok()? {
        SampleValue::U32(1) => Some(Recovery::Reset),
        SampleValue::U32(2) => Some(Recovery::Reboot),
        SampleValue::U32(3) => Some(Recovery::DrainPeers),
        SampleValue::U32(4) => Some(Recovery::DrainAndReset),
        _ => None,
    }
}

fn lost(before: &GpuFacts, error: &NvmlError) -> GpuFacts {
    GpuFacts { not_sliceable: Some(NotSliceable::Lost { cause: error.to_string() }), ..before.clone() }
}

fn nvlinked(a: &Device<'_>, b: &Device<'_>) -> bool {
    matches!(a.p2p_status(b, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok))
}

/// Repeats a query whose list grew between counting and reading.
fn patiently<T>(ask: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    for _ in 1..ATTEMPTS {
        match ask() {
            Err(NvmlError::InsufficientSize(_)) => {}
            answer => return answer,
        }
    }
    ask()
}

/// One entry for each pid, with the larger figure.
/// NVML lists a process with compute and graphics contexts twice with the same memory.
fn merge(listed: impl Iterator<Item = ProcessInfo>) -> Vec<GpuProcess> {
    let mut by_pid: BTreeMap<HostPid, Option<Bytes>> = BTreeMap::new();
    for process in listed {
        let used = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes::new(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        let known = by_pid.entry(HostPid::new(process.pid)).or_default();
        *known = (*known).max(used);
    }
    by_pid.into_iter().map(|(pid, used)| GpuProcess { pid, used }).collect()
}

fn of_driver(what: &'static str, error: &NvmlError) -> InventoryError {
    InventoryError::Query { what, subject: "the driver".into(), cause: error.to_string() }
}

fn failed(what: &'static str, gpu: GpuUuid, error: &NvmlError) -> InventoryError {
    match error {
        NvmlError::GpuLost | NvmlError::ResetRequired => {
            InventoryError::Lost { gpu, cause: error.to_string() }
        }
        _ => InventoryError::Query { what, subject: format!("GPU {gpu}"), cause: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(pid: u32, used_gpu_memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn gpu_near_several_numa_nodes_has_none() {
        assert_eq!(only(&[0, 0]), None);
        assert_eq!(only(&[0b100, 0]), Some(2));
        assert_eq!(only(&[0, 0b10]), Some(c_ulong::BITS + 1));
        assert_eq!(only(&[0b110, 0]), None);
        assert_eq!(only(&[1, 1]), None);
    }

    #[test]
    fn compute_and_graphics_entries_are_merged() {
        let both = [
            listed(7, UsedGpuMemory::Used(5)),
            listed(3, UsedGpuMemory::Unavailable),
            listed(7, UsedGpuMemory::Unavailable),
        ];
        let merged = merge(both.into_iter());
        assert_eq!(
            merged,
            [
                GpuProcess { pid: HostPid::new(3), used: None },
                GpuProcess { pid: HostPid::new(7), used: Some(Bytes::new(5)) }
            ]
        );
    }
}
