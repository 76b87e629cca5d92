//! Devices: properties of the model, in the driver's terms.

use std::ffi::c_char;

use simgpu::{ComputeMode, GpuSpec, Model};

use crate::driver::{Driver, StreamMemory, driver, spec, start};
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, Text};

/// The only attribute that can change: the mode that permits contexts.
const COMPUTE_MODE: i32 = 20;
/// Attributes of stream memory operations, one for each form.
const STREAM_MEMORY: [i32; 4] = [92, 93, 94, 122];
/// Threads in a block, on every model.
const MOST_THREADS: i32 = 1024;

pub(crate) fn init(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    start()?;
    crate::checkpoint::serve::begin();
    Ok(())
}

pub(crate) fn version(out: Out<i32>) -> Outcome {
    out.put(crate::personality::own().cuda)
}

pub(crate) fn count(out: Out<i32>) -> Outcome {
    out.put(driver()?.table().devices.len() as i32)
}

pub(crate) fn get(out: Out<i32>, ordinal: i32) -> Outcome {
    driver()?.table().device(ordinal)?;
    out.put(ordinal)
}

pub(crate) fn name(out: Out<c_char>, room: i32, device: i32) -> Outcome {
    out.put_text(&spec(driver()?, device)?.model.name, room)
}

pub(crate) fn uuid(out: Out<[u8; 16]>, device: i32) -> Outcome {
    out.put(spec(driver()?, device)?.uuid)
}

/// A locally unique identifier is a Windows notion: zero, on one node.
pub(crate) fn luid(luid: Out<[u8; 8]>, mask: Out<u32>, device: i32) -> Outcome {
    spec(driver()?, device)?;
    luid.put([0; 8])?;
    mask.put(1)
}

/// The address on the bus. A process that was restored on another GPU reads that of the first one still
/// (<https://github.com/NVIDIA/cuda-checkpoint/issues/48>).
pub(crate) fn bus_id(out: Out<c_char>, room: i32, device: i32) -> Outcome {
    let driver = driver()?;
    let gpu = driver.table().device(device)?.first_gpu;
    let spec = driver.node().gpu_spec(gpu);
    // Four digits of domain, where NVML gives eight.
    out.put_text(&spec.pci_bus_id()[4..], room)
}

pub(crate) fn by_bus_id(out: Out<i32>, name: Text) -> Outcome {
    let name = name.get()?;
    let wanted = bus_of(&name).ok_or(Status::InvalidValue)?;
    let driver = driver()?;
    let table = driver.table();
    let found = table.devices.iter().position(|device| driver.node().gpu_spec(device.gpu).pci_bus == wanted);
    out.put(found.ok_or(Status::InvalidDevice)? as i32)
}

/// `[domain:]bus:device[.function]`, of which all but the bus are zero here.
fn bus_of(name: &str) -> Option<u8> {
    let (rest, device) = name.rsplit_once(':')?;
    let device_number = device.split('.').next()?;
    let bus = rest.rsplit(':').next()?;
    if u8::from_str_radix(device_number, 16).ok()? != 0 {
        return None;
    }
    u8::from_str_radix(bus, 16).ok()
}

pub(crate) fn total_memory(out: Out<usize>, device: i32) -> Outcome {
    out.put(spec(driver()?, device)?.model.capacity().bytes() as usize)
}

/// The 32-bit form: more than fits is shown as the most that fits.
pub(crate) fn total_memory_low(out: Out<u32>, device: i32) -> Outcome {
    let bytes = spec(driver()?, device)?.model.capacity().bytes();
    out.put(u32::try_from(bytes).unwrap_or(u32::MAX))
}

pub(crate) fn capability(major: Out<i32>, minor: Out<i32>, device: i32) -> Outcome {
    let [left, right] = spec(driver()?, device)?.model.compute_capability;
    major.put(left as i32)?;
    minor.put(right as i32)
}

pub(crate) fn attribute(out: Out<i32>, attribute: i32, device: i32) -> Outcome {
    out.check()?;
    let driver = driver()?;
    if attribute == COMPUTE_MODE {
        let gpu = driver.table().device(device)?.gpu;
        return out.put(match driver.node().settings(gpu).compute_mode {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        });
    }
    let spec = spec(driver, device)?;
    if STREAM_MEMORY.contains(&attribute) && driver.stream_memory == StreamMemory::Absent {
        return out.put(0);
    }
    out.put(crate::attributes::of(&spec, attribute).ok_or(Status::InvalidValue)?)
}

/// `CUdevprop`, of CUDA before 5.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Properties {
    max_threads: i32,
    max_block: [i32; 3],
    max_grid: [i32; 3],
    shared: i32,
    constant: i32,
    warp: i32,
    pitch: i32,
    registers: i32,
    clock: i32,
    texture_alignment: i32,
}

pub(crate) fn properties(out: Out<Properties>, device: i32) -> Outcome {
    let spec = spec(driver()?, device)?;
    let of = |attribute| crate::attributes::of(&spec, attribute).unwrap_or(0);
    out.put(Properties {
        max_threads: MOST_THREADS,
        max_block: [of(2), of(3), of(4)],
        max_grid: [of(5), of(6), of(7)],
        shared: of(8),
        constant: of(9),
        warp: of(10),
        pitch: of(11),
        registers: of(12),
        clock: of(13),
        texture_alignment: of(14),
    })
}

fn pair(driver: &Driver, one: i32, other: i32) -> Outcome<(GpuSpec, GpuSpec)> {
    Ok((spec(driver, one)?, spec(driver, other)?))
}

/// GPUs reach each other over NVLink, or over PCI Express where both are the same model.
fn reaches(one: &GpuSpec, other: &GpuSpec) -> bool {
    one.uuid != other.uuid && (linked(one, other) || same_model(&one.model, &other.model))
}

fn linked(one: &GpuSpec, other: &GpuSpec) -> bool {
    one.island.is_some() && one.island == other.island
}

fn same_model(one: &Model, other: &Model) -> bool {
    one.name == other.name
}

pub(crate) fn can_access_peer(out: Out<i32>, one: i32, other: i32) -> Outcome {
    let (one, other) = pair(driver()?, one, other)?;
    out.put(i32::from(reaches(&one, &other)))
}

pub(crate) fn peer_attribute(out: Out<i32>, attribute: i32, one: i32, other: i32) -> Outcome {
    let (one, other) = pair(driver()?, one, other)?;
    if one.uuid == other.uuid {
        return Err(Status::InvalidDevice);
    }
    out.put(i32::from(match attribute {
        // Performance rank, where less is better, and native atomics: NVLink's.
        1 => !linked(&one, &other),
        2 | 4 => reaches(&one, &other),
        3 => linked(&one, &other),
        _ => return Err(Status::InvalidValue),
    }))
}

pub(crate) fn enable_peer(context: u64, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let (current, from, to) = {
        let table = driver.table();
        let (current, from) = table.current_device()?;
        (current, from, table.contexts.get(&context).ok_or(Status::InvalidContext)?.device)
    };
    if context == current {
        return Err(Status::InvalidContext);
    }
    let (from, to) = pair(driver, from as i32, to as i32)?;
    if !reaches(&from, &to) {
        return Err(Status::PeerAccessUnsupported);
    }
    let mut table = driver.table();
    let peers = &mut table.contexts.get_mut(&current).ok_or(Status::InvalidContext)?.peers;
    if peers.insert(context) { Ok(()) } else { Err(Status::PeerAccessAlreadyEnabled) }
}

pub(crate) fn disable_peer(context: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let (current, _) = table.current()?;
    let peers = &mut table.contexts.get_mut(&current).ok_or(Status::InvalidContext)?.peers;
    if peers.remove(&context) { Ok(()) } else { Err(Status::PeerAccessNotEnabled) }
}

pub(crate) fn error_name(status: i32, out: Out<Host>) -> Outcome {
    described(status, out, |(name, _)| name)
}

pub(crate) fn error_text(status: i32, out: Out<Host>) -> Outcome {
    described(status, out, |(_, sentence)| sentence)
}

type Described = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn described(status: i32, out: Out<Host>, which: fn(Described) -> &'static std::ffi::CStr) -> Outcome {
    let Some(words) = crate::status::described(status) else {
        out.put(Host::NULL)?;
        return Err(Status::InvalidValue);
    };
    out.put(Host(which(words).as_ptr().cast_mut().cast()))
}

/// Answers a request for a private table of the driver: there are none.
///
/// The CUDA runtime (and so PyTorch and CuPy) finds its way into a driver through such tables, one of which proves that
/// the driver is NVIDIA's. This project does not imitate those, so CUDA-runtime programs cannot run on a simulated GPU;
/// the first attempt of a process is reported on standard error.
pub(crate) fn export_table(out: Out<u64>, id: In<[u8; 16]>) -> Outcome {
    if id.get()? == RUNTIME_TABLE {
        static REPORTED: std::sync::Once = std::sync::Once::new();
        REPORTED.call_once(|| {
            eprintln!(
                "simulated GPU: programs that use the CUDA runtime (PyTorch, CuPy, libcudart) can't run here, \
                 because it needs private tables of NVIDIA's driver; use a real GPU, or a driver-API program"
            );
        });
    }
    out.offer(0);
    Err(Status::NotFound)
}

/// The first table that the runtime requests: 6bd5fb6c-5bf4-e74a-8987-d93912fd9df9.
const RUNTIME_TABLE: [u8; 16] =
    [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9];

/// `cuProfilerStart` and `cuProfilerStop`.
pub(crate) fn profiler() -> Outcome {
    driver()?.table().current().map(|_| ())
}
