//! Properties and state of one device, in the units and numbers of NVML.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use simgpu::{Architecture, Brand, ComputeMode, Gpu, GpuSpec, MigMode, Model, Virtualization};

use crate::abi::{
    Accounting, Bar1, FieldValue, MemoryV1, MemoryV2, NO_INSTANCE, PciHead, PciV2, PciV3, ProcessSample,
    ProcessV1, ProcessV2, Rates,
};
use crate::session::Session;
use crate::status::{Answer, Failure, SUCCESS, Status};

const MIB: u64 = 1 << 20;
/// Period over which the use of encoders and decoders is averaged, in microseconds.
const CODEC_PERIOD: u32 = 167_000;

/// A device of the current session.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) session: Arc<Session>,
    pub(crate) gpu: Gpu,
}

/// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
const RECOVERY_ACTION: u32 = 230;
/// A value that is an unsigned int.
const UNSIGNED: u32 = 1;

impl Device {
    /// Value of a field. The recovery action alone is supported here.
    pub(crate) fn field(&self, value: FieldValue) -> FieldValue {
        let needs = self.session.node.settings(self.gpu).needs as u64;
        match value.field {
            RECOVERY_ACTION => FieldValue { kind: UNSIGNED, status: SUCCESS, value: needs, ..value },
            _ => FieldValue { status: Failure::NotSupported as Status, ..value },
        }
    }

    pub(crate) fn present(self) -> Answer<Self> {
        if self.session.node.is_lost(self.gpu) { Err(Failure::GpuIsLost) } else { Ok(self) }
    }

    pub(crate) fn spec(&self) -> &GpuSpec {
        self.session.node.gpu_spec(self.gpu)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.spec().model
    }

    pub(crate) fn index(&self) -> u32 {
        self.gpu.index() as u32
    }

    /// The board's number: the model's and the GPU's.
    pub(crate) fn serial(&self) -> String {
        format!("16{:05}{:06}", self.model().pci_device_id >> 16, self.gpu.index() + 1)
    }

    pub(crate) fn brand(&self) -> u32 {
        match self.model().brand {
            Brand::Tesla => 2,
            Brand::Nvidia => 14,
        }
    }

    pub(crate) fn architecture(&self) -> u32 {
        match self.model().architecture {
            Architecture::Volta => 5,
            Architecture::Turing => 6,
            Architecture::Ampere => 7,
            Architecture::Ada => 8,
            Architecture::Hopper => 9,
        }
    }

    pub(crate) fn compute_capability(&self) -> (i32, i32) {
        let [major, minor] = self.model().compute_capability;
        (major.cast_signed(), minor.cast_signed())
    }

    pub(crate) fn pcie_generation(&self) -> u32 {
        self.model().link.pcie_generation
    }

    pub(crate) fn cores(&self) -> u32 {
        self.model().compute.sm_count * self.model().compute.cores_per_sm
    }

    pub(crate) fn memory_v1(&self) -> MemoryV1 {
        let MemoryV2 { total, reserved, free, used, .. } = self.memory_v2();
        MemoryV1 { total, free, used: used + reserved }
    }

    /// Memory in bytes: allocatable memory is free or used, the driver reserves the rest.
    pub(crate) fn memory_v2(&self) -> MemoryV2 {
        let capacity = self.session.node.capacity(self.gpu).bytes();
        let used = self.session.node.used(self.gpu).bytes();
        let total = self.model().memory.total_mib * MIB;
        let (reserved, free) = (total - capacity, capacity.saturating_sub(used));
        MemoryV2 { version: MemoryV2::VERSION, total, reserved, free, used }
    }

    pub(crate) fn bar1(&self) -> Bar1 {
        let (total, used) = (self.model().memory.bar1_mib * MIB, 2 * MIB);
        Bar1 { total, free: total - used, used }
    }

    pub(crate) fn rates(&self) -> Rates {
        let busy = self.session.node.utilization(self.gpu);
        Rates { gpu: busy.gpu, memory: busy.memory }
    }

    /// Use in percent with its period in microseconds; encoders and decoders are idle here.
    pub(crate) fn codec(&self) -> (u32, u32) {
        (0, CODEC_PERIOD)
    }

    pub(crate) fn processes(&self) -> Vec<ProcessV2> {
        let holdings = self.session.node.holdings(self.gpu);
        let info = |held: &simgpu::Holding| ProcessV2 {
            pid: held.pid,
            used: held.memory.bytes(),
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        };
        holdings.iter().map(info).collect()
    }

    pub(crate) fn processes_v1(&self) -> Vec<ProcessV1> {
        self.processes().iter().map(|info| ProcessV1 { pid: info.pid, used: info.used }).collect()
    }

    /// Samples after a time in microseconds since 1970, as NVML counts though the engine does not.
    pub(crate) fn process_samples(&self, after: u64) -> Vec<ProcessSample> {
        let samples = self.session.node.process_utilization(self.gpu);
        let now = self.session.node.now();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sample = |seen: simgpu::ProcessUtilization| ProcessSample {
            pid: seen.pid,
            time: (since_1970 - now.since(seen.at)).as_micros() as u64,
            multiprocessors: seen.utilization.gpu,
            memory: seen.utilization.memory,
            encoder: 0,
            decoder: 0,
        };
        samples.into_iter().map(sample).filter(|sample| sample.time > after).collect()
    }

    /// Accounting of a running process. Its start and its lifetime are 0, as the engine does not record them.
    pub(crate) fn accounting(&self, pid: u32) -> Answer<Accounting> {
        let process =
            self.processes().into_iter().find(|process| process.pid == pid).ok_or(Failure::NotFound)?;
        let sample = self.process_samples(0).into_iter().find(|sample| sample.pid == pid);
        let (gpu, memory) = sample.map_or((0, 0), |sample| (sample.multiprocessors, sample.memory));
        let most_used = process.used;
        Ok(Accounting { gpu, memory, most_used, time: 0, start: 0, running: 1, reserved: [0; 5] })
    }

    pub(crate) fn compute_mode(&self) -> u32 {
        match self.session.node.settings(self.gpu).compute_mode {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        }
    }

    pub(crate) fn virtualization_mode(&self) -> u32 {
        match self.session.node.settings(self.gpu).virtualization {
            Virtualization::None => 0,
            Virtualization::Vgpu => 2,
        }
    }

    /// Current and pending MIG mode, which are equal here.
    pub(crate) fn mig_mode(&self) -> Answer<(u32, u32)> {
        let mode = match self.session.node.settings(self.gpu).mig {
            _ if self.model().mig.instances == 0 => return Err(Failure::NotSupported),
            MigMode::Disabled => 0,
            MigMode::Enabled => 1,
        };
        Ok((mode, mode))
    }

    pub(crate) fn max_mig_devices(&self) -> u32 {
        match self.mig_mode() {
            Ok((1, _)) => self.model().mig.instances,
            _ => 0,
        }
    }

    /// A clock in MHz: 0 graphics, 1 multiprocessors, 2 memory, 3 video.
    pub(crate) fn clock(&self, kind: u32) -> Answer<u32> {
        self.choose_clock(kind, self.session.node.vitals(self.gpu).clock_mhz)
    }

    pub(crate) fn max_clock(&self, kind: u32) -> Answer<u32> {
        self.choose_clock(kind, self.model().clocks.max_mhz)
    }

    fn choose_clock(&self, kind: u32, multiprocessors: u32) -> Answer<u32> {
        match kind {
            0 | 1 => Ok(multiprocessors),
            2 => Ok(self.model().clocks.memory_mhz),
            3 => Ok(multiprocessors * 9 / 10),
            _ => Err(Failure::InvalidArgument),
        }
    }

    /// The sensor on the die (0) in degrees Celsius.
    pub(crate) fn temperature(&self, sensor: u32) -> Answer<u32> {
        match sensor {
            0 => Ok(self.session.node.vitals(self.gpu).temperature),
            _ => Err(Failure::InvalidArgument),
        }
    }

    /// Temperature at which the die stops (0) or slows down (1).
    pub(crate) fn temperature_threshold(&self, kind: u32) -> Answer<u32> {
        match kind {
            0 => Ok(self.model().temperature.shutdown_celsius),
            1 => Ok(self.model().temperature.slowdown_celsius),
            _ => Err(Failure::NotSupported),
        }
    }

    /// Power draw in milliwatts.
    pub(crate) fn power(&self) -> u32 {
        self.session.node.vitals(self.gpu).power_mw
    }

    /// Highest power draw in milliwatts.
    pub(crate) fn power_limit(&self) -> u32 {
        self.model().power.limit_watts * 1000
    }

    pub(crate) fn pci_v2(&self) -> PciV2 {
        PciV2 { head: self.pci_head(), reserved: [0; 4] }
    }

    pub(crate) fn pci_v3(&self) -> PciV3 {
        PciV3 { head: self.pci_head(), bus_id: padded(&self.spec().pci_bus_id()) }
    }

    fn pci_head(&self) -> PciHead {
        PciHead {
            bus_id: padded(&format!("0000:{:02X}:00.0", self.spec().pci_bus)),
            domain: 0,
            bus: self.spec().pci_bus.into(),
            device: 0,
            device_id: self.model().pci_device_id,
            subsystem_id: self.model().pci_subsystem_id,
        }
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// Name of a process: its first argument, or else the name that the kernel has for it.
pub(crate) fn process_name(pid: u32) -> Answer<String> {
    let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).ok();
    let command = read("cmdline").unwrap_or_default();
    let first = command.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
    let name = first.map(<[u8]>::to_vec).or_else(|| read("comm")).ok_or(Failure::NotFound)?;
    Ok(String::from_utf8_lossy(&name).trim_end().into())
}

/// Tests if a bus id, with a domain of four or eight digits or none, names a bus.
pub(crate) fn names_bus(text: &str, bus: u8) -> bool {
    let hex = |part: &str| u32::from_str_radix(part, 16).ok();
    let Some((rest, device)) = text.rsplit_once(':') else { return false };
    let (domain, found) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let device = device.split('.').next().and_then(hex);
    (hex(domain), hex(found), device) == (Some(0), Some(bus.into()), Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_is_named_with_long_short_or_no_domain() {
        for text in ["00000000:1A:00.0", "0000:1a:00.0", "1A:00.0", "1a:00"] {
            assert!(names_bus(text, 0x1a), "{text}");
        }
        for text in ["0001:1A:00.0", "1B:00.0", "1A", "", "x:y.z"] {
            assert!(!names_bus(text, 0x1a), "{text}");
        }
    }

    #[test]
    fn this_process_has_a_name_and_pid_zero_has_none() {
        assert!(!process_name(std::process::id()).unwrap().is_empty());
        assert_eq!(process_name(0), Err(Failure::NotFound));
    }
}
