//! The functions that NVML's callers link to or look up.
//!
//! # Safety
//! Callers pass what `nvml.h` requires: places for results are null or writable, texts end in a zero byte, arrays have
//! the stated length. Handles carry no requirement: they are numbers here, and checked.
#![allow(non_snake_case, reason = "they are another library's names")]

use std::ffi::{c_char, c_int};
use std::time::Duration;

use crate::abi::{
    Accounting, Bar1, EventV2, Fabric, FabricV, Handle, MemoryV1, MemoryV2, PciV2, PciV3, Rates,
};
use crate::device::{names_bus, process_name};
use crate::events::XID_CRITICAL;
use crate::handle::handle;
use crate::library::{device, identity, init, session, shutdown};
use crate::link;
use crate::status::{self, Answer, Failure, Status};
use crate::wall::{self, calls};

/// Number of processes of which the real driver keeps accounts.
const ACCOUNTED: u32 = 4000;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> Status {
    wall::status(init)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Status {
    wall::status(init)
}

/// Flags permit a node without GPUs, and not to attach any; both are always permitted here.
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: u32) -> Status {
    wall::status(init)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Status {
    wall::status(shutdown)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(status: Status) -> *const c_char {
    status::text(status).as_ptr()
}

calls! {
    nvmlSystemGetCudaDriverVersion() -> (version: c_int) { Ok((cuda_version(),)) }
    nvmlSystemGetCudaDriverVersion_v2() -> (version: c_int) { Ok((cuda_version(),)) }
    nvmlUnitGetCount() -> (count: u32) { session().map(|_| (0,)) }
    nvmlDeviceGetCount() -> (count: u32) { gpu_count() }
    nvmlDeviceGetCount_v2() -> (count: u32) { gpu_count() }
    nvmlDeviceGetHandleByIndex(index: u32) -> (device: Handle) { by_index(index) }
    nvmlDeviceGetHandleByIndex_v2(index: u32) -> (device: Handle) { by_index(index) }
    nvmlDeviceGetHandleByUUID(uuid: *const c_char) -> (device: Handle) {
        // SAFETY: NVML's callers pass null or a text that ends in a zero byte, by this module's contract.
        let wanted = unsafe { wall::text(uuid)? };
        let is_it = |node: &simgpu::Node, gpu| node.gpu_spec(gpu).uuid_text().eq_ignore_ascii_case(&wanted);
        session()?.find(Failure::NotFound, is_it).map(|handle| (handle,))
    }
    nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char) -> (device: Handle) { by_bus(bus_id) }
    nvmlDeviceGetHandleByPciBusId(bus_id: *const c_char) -> (device: Handle) { by_bus(bus_id) }

    nvmlDeviceGetIndex(of: Handle) -> (index: u32) { Ok((identity(of)?.index(),)) }
    nvmlDeviceGetMinorNumber(of: Handle) -> (minor: u32) { Ok((identity(of)?.index(),)) }
    nvmlDeviceGetPciInfo_v2(of: Handle) -> (pci: PciV2) { Ok((identity(of)?.pci_v2(),)) }
    nvmlDeviceGetPciInfo_v3(of: Handle) -> (pci: PciV3) { Ok((identity(of)?.pci_v3(),)) }
    nvmlDeviceGetBrand(of: Handle) -> (brand: u32) { Ok((device(of)?.brand(),)) }
    nvmlDeviceGetArchitecture(of: Handle) -> (architecture: u32) { Ok((device(of)?.architecture(),)) }
    nvmlDeviceGetCudaComputeCapability(of: Handle) -> (major: c_int, minor: c_int) {
        Ok(device(of)?.compute_capability())
    }
    nvmlDeviceGetNumGpuCores(of: Handle) -> (cores: u32) { Ok((device(of)?.cores(),)) }
    nvmlDeviceGetMemoryBusWidth(of: Handle) -> (bits: u32) { Ok((device(of)?.model().memory.bus_bits,)) }

    nvmlDeviceGetMemoryInfo(of: Handle) -> (memory: MemoryV1) { Ok((device(of)?.memory_v1(),)) }
    nvmlDeviceGetBAR1MemoryInfo(of: Handle) -> (memory: Bar1) { Ok((device(of)?.bar1(),)) }
    nvmlDeviceGetUtilizationRates(of: Handle) -> (rates: Rates) { Ok((device(of)?.rates(),)) }
    nvmlDeviceGetEncoderUtilization(of: Handle) -> (percent: u32, period: u32) { Ok(device(of)?.codec()) }
    nvmlDeviceGetDecoderUtilization(of: Handle) -> (percent: u32, period: u32) { Ok(device(of)?.codec()) }

    // No call turns accounting off here.
    nvmlDeviceGetAccountingMode(of: Handle) -> (enabled: u32) { device(of).map(|_| (1,)) }
    nvmlDeviceGetAccountingBufferSize(of: Handle) -> (processes: u32) { device(of).map(|_| (ACCOUNTED,)) }
    nvmlDeviceGetAccountingStats(of: Handle, pid: u32) -> (statistics: Accounting) {
        Ok((device(of)?.accounting(pid)?,))
    }

    nvmlDeviceGetClockInfo(of: Handle, kind: u32) -> (mhz: u32) { Ok((device(of)?.clock(kind)?,)) }
    nvmlDeviceGetMaxClockInfo(of: Handle, kind: u32) -> (mhz: u32) { Ok((device(of)?.max_clock(kind)?,)) }
    nvmlDeviceGetTemperature(of: Handle, sensor: u32) -> (celsius: u32) { Ok((device(of)?.temperature(sensor)?,)) }
    nvmlDeviceGetTemperatureThreshold(of: Handle, kind: u32) -> (celsius: u32) {
        Ok((device(of)?.temperature_threshold(kind)?,))
    }
    nvmlDeviceGetFanSpeed(of: Handle) -> (percent: u32) {
        // These GPUs are cooled by their server.
        device(of).and(Err(Failure::NotSupported))
    }
    nvmlDeviceGetPowerUsage(of: Handle) -> (milliwatts: u32) { Ok((device(of)?.power(),)) }
    nvmlDeviceGetPowerManagementLimit(of: Handle) -> (milliwatts: u32) { Ok((device(of)?.power_limit(),)) }
    nvmlDeviceGetEnforcedPowerLimit(of: Handle) -> (milliwatts: u32) { Ok((device(of)?.power_limit(),)) }
    nvmlDeviceGetPowerManagementMode(of: Handle) -> (enabled: u32) { device(of).map(|_| (1,)) }
    nvmlDeviceGetPerformanceState(of: Handle) -> (state: u32) { device(of).map(|_| (0,)) }

    nvmlDeviceGetPersistenceMode(of: Handle) -> (enabled: u32) { device(of).map(|_| (1,)) }
    nvmlDeviceGetDisplayMode(of: Handle) -> (enabled: u32) { device(of).map(|_| (0,)) }
    nvmlDeviceGetDisplayActive(of: Handle) -> (enabled: u32) { device(of).map(|_| (0,)) }
    nvmlDeviceGetEccMode(of: Handle) -> (current: u32, pending: u32) { device(of).map(|_| (1, 1)) }
    nvmlDeviceGetTotalEccErrors(of: Handle, _kind: u32, _counter: u32) -> (count: u64) { device(of).map(|_| (0,)) }
    nvmlDeviceGetComputeMode(of: Handle) -> (mode: u32) { Ok((device(of)?.compute_mode(),)) }
    nvmlDeviceGetVirtualizationMode(of: Handle) -> (mode: u32) { Ok((device(of)?.virtualization_mode(),)) }
    nvmlDeviceGetDriverModel(of: Handle) -> (current: u32, pending: u32) {
        // There is none but on Windows.
        device(of).and(Err(Failure::NotSupported))
    }
    nvmlDeviceGetDriverModel_v2(of: Handle) -> (current: u32, pending: u32) {
        device(of).and(Err(Failure::NotSupported))
    }

    nvmlDeviceGetMigMode(of: Handle) -> (current: u32, pending: u32) { device(of)?.mig_mode() }
    nvmlDeviceGetMaxMigDeviceCount(of: Handle) -> (count: u32) { Ok((device(of)?.max_mig_devices(),)) }
    nvmlDeviceIsMigDeviceHandle(of: Handle) -> (is_mig: u32) { identity(of).map(|_| (0,)) }
    nvmlDeviceGetMigDeviceHandleByIndex(of: Handle, _index: u32) -> (instance: Handle) {
        // A GPU that is cut has no instance yet; one that is not can have none.
        match device(of)?.mig_mode()? {
            (0, _) => Err(Failure::InvalidArgument),
            _ => Err(Failure::NotFound),
        }
    }

    nvmlDeviceGetTopologyCommonAncestor(of: Handle, other: Handle) -> (level: u32) {
        Ok((link::common_ancestor(&device(of)?, &device(other)?),))
    }
    nvmlDeviceGetP2PStatus(of: Handle, other: Handle, kind: u32) -> (status: u32) {
        Ok((link::p2p_status(&device(of)?, &device(other)?, kind)?,))
    }
    nvmlDeviceGetNvLinkState(of: Handle, number: u32) -> (active: u32) {
        Ok((u32::from(link::remote(&device(of)?, number)?.is_some()),))
    }
    nvmlDeviceGetNvLinkVersion(of: Handle, number: u32) -> (version: u32) {
        let device = device(of)?;
        link::remote(&device, number).map(|_| (device.model().link.nvlink_version,))
    }
    nvmlDeviceGetNvLinkRemotePciInfo_v2(of: Handle, number: u32) -> (pci: PciV3) {
        let remote = link::remote(&device(of)?, number)?.ok_or(Failure::NotSupported)?;
        Ok((identity(handle(remote))?.pci_v3(),))
    }

    nvmlDeviceGetNvLinkRemoteDeviceType(of: Handle, number: u32) -> (kind: u32) {
        let remote = link::remote(&device(of)?, number)?;
        remote.map(|_| (link::REMOTE_GPU,)).ok_or(Failure::NotSupported)
    }
    // Links are always at their full speed.
    nvmlDeviceGetCurrPcieLinkGeneration(of: Handle) -> (generation: u32) { Ok((device(of)?.pcie_generation(),)) }
    nvmlDeviceGetMaxPcieLinkGeneration(of: Handle) -> (generation: u32) { Ok((device(of)?.pcie_generation(),)) }
    nvmlDeviceGetGpuMaxPcieLinkGeneration(of: Handle) -> (generation: u32) { Ok((device(of)?.pcie_generation(),)) }
    nvmlDeviceGetCurrPcieLinkWidth(of: Handle) -> (lanes: u32) { device(of).map(|_| (link::PCIE_LANES,)) }
    nvmlDeviceGetMaxPcieLinkWidth(of: Handle) -> (lanes: u32) { device(of).map(|_| (link::PCIE_LANES,)) }
    nvmlDeviceGetGpuFabricInfo(of: Handle) -> (fabric: Fabric) { device(of).map(|_| (Fabric::NONE,)) }

    nvmlDeviceGetSupportedEventTypes(of: Handle) -> (kinds: u64) { device(of).map(|_| (XID_CRITICAL,)) }
    nvmlEventSetCreate() -> (set: usize) { Ok((session()?.listeners.create(),)) }
}

fn gpu_count() -> Answer<(u32,)> {
    Ok((session()?.node.spec().gpus.len() as u32,))
}

fn by_index(index: u32) -> Answer<(Handle,)> {
    session()?.find(Failure::InvalidArgument, |_, gpu| gpu.index() == index as usize).map(|handle| (handle,))
}

fn by_bus(bus_id: *const c_char) -> Answer<(Handle,)> {
    // SAFETY: NVML's callers pass null or a text that ends in a zero byte, by this module's contract.
    let wanted = unsafe { wall::text(bus_id)? };
    let is_it = |node: &simgpu::Node, gpu| names_bus(&wanted, node.gpu_spec(gpu).pci_bus);
    session()?.find(Failure::NotFound, is_it).map(|handle| (handle,))
}

/// Exports calls that fill a buffer with text.
macro_rules! texts {
    ($($name:ident($($input:ident: $type:ty),*) $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($input: $type,)* out: *mut c_char, room: u32) -> Status {
            wall::status(|| {
                let text: String = $body?;
                // SAFETY: NVML's callers pass null or a buffer of `room` writable bytes, by this module's contract.
                unsafe { wall::put_text(out, room, &text) }
            })
        }
    )*};
}

texts! {
    nvmlSystemGetDriverVersion() session().map(|session| session.node.spec().driver.version.clone());
    nvmlSystemGetNVMLVersion() session().map(|session| nvml_version(&session.node.spec().driver));
    nvmlSystemGetProcessName(pid: u32) session().and_then(|_| process_name(pid));
    nvmlDeviceGetName(of: Handle) device(of).map(|device| device.model().name.clone());
    nvmlDeviceGetUUID(of: Handle) identity(of).map(|device| device.spec().uuid_text());
    nvmlDeviceGetSerial(of: Handle) device(of).map(|device| device.serial());
}

/// Version of the driver, also before `nvmlInit` and without a node.
fn cuda_version() -> c_int {
    let driver = session().map(|session| session.node.spec().driver.clone());
    let of_the_node = || simgpu::Node::from_env().map(|node| node.spec().driver.clone());
    driver.or_else(|_| of_the_node()).unwrap_or_default().cuda
}

fn nvml_version(driver: &simgpu::Personality) -> String {
    format!("{}.{}-simulated", driver.cuda / 1000, driver.version)
}

/// The first field states the version of the caller's structure.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(of: Handle, out: *mut MemoryV2) -> Status {
    wall::status(|| {
        let device = device(of)?;
        // SAFETY: the caller wrote the version, the first field, by this module's contract.
        match unsafe { wall::get(out.cast::<u32>())? } {
            // SAFETY: a caller that writes this version passes a pointer to this structure.
            MemoryV2::VERSION => unsafe { wall::put(out, device.memory_v2()) },
            _ => Err(Failure::ArgumentVersionMismatch),
        }
    })
}

/// The first field states the version of the caller's structure.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(of: Handle, out: *mut FabricV) -> Status {
    wall::status(|| {
        device(of)?;
        // SAFETY: the caller wrote the version, the first field, by this module's contract.
        match unsafe { wall::get(out.cast::<u32>())? } {
            // SAFETY: a caller that writes this version passes a pointer to this structure.
            FabricV::VERSION => unsafe { wall::put(out, FabricV::NONE) },
            _ => Err(Failure::ArgumentVersionMismatch),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(of: Handle, kinds: u64, set: usize) -> Status {
    wall::status(|| {
        let device = device(of)?;
        device.session.listeners.register(set, &device.session.node, device.gpu, kinds)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: usize) -> Status {
    wall::status(|| session()?.listeners.free(set))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(set: usize, out: *mut EventV2, timeout_ms: u32) -> Status {
    wall::status(|| {
        wall::check(out)?;
        let session = session()?;
        let event = session.listeners.wait(&session.node, set, Duration::from_millis(timeout_ms.into()))?;
        // SAFETY: `out` is not null by the check above, and then writable by this module's contract.
        unsafe { wall::put(out, event) }
    })
}
