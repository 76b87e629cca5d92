//! Memory of devices and hosts, pools, and memory of other processes.

use crate::device::{known, ready};
use crate::driver;
use crate::shapes::Handle;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// `CU_MEMHOSTREGISTER_DEVICEMAP` and `CU_MEMHOSTALLOC_DEVICEMAP`.
const DEVICE_MAP: u32 = 2;

/// `cudaMalloc`; no bytes are address 0.
pub(crate) fn malloc(out: Out<u64>, size: usize) -> Outcome {
    out.check()?;
    ready()?;
    if size == 0 { out.put(0) } else { driver::cuMemAlloc_v2(out, size) }
}

/// `cudaMallocPitch`.
pub(crate) fn malloc_pitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize) -> Outcome {
    out.check()?;
    ready()?;
    driver::cuMemAllocPitch_v2(out, pitch, width, height, 4)
}

/// `cudaMallocManaged`.
pub(crate) fn malloc_managed(out: Out<u64>, size: usize, flags: u32) -> Outcome {
    ready()?;
    driver::cuMemAllocManaged(out, size, flags)
}

/// `cudaFree`; address 0 is nothing to free, and makes the context, as programs use it.
pub(crate) fn free(address: u64) -> Outcome {
    ready()?;
    if address == 0 { Ok(()) } else { driver::cuMemFree_v2(address) }
}

/// `cudaMemGetInfo`.
pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Outcome {
    ready()?;
    driver::cuMemGetInfo_v2(free, total)
}

/// `cudaHostAlloc` and `cudaMallocHost`, which map the memory where that is possible.
pub(crate) fn host_alloc(out: Out<u64>, size: usize, flags: u32) -> Outcome {
    out.check()?;
    ready()?;
    if size == 0 { out.put(0) } else { driver::cuMemHostAlloc(out, size, flags | DEVICE_MAP) }
}

/// `cudaFreeHost`.
pub(crate) fn host_free(at: u64) -> Outcome {
    ready()?;
    if at == 0 { Ok(()) } else { driver::cuMemFreeHost(at) }
}

/// `cudaHostRegister`.
pub(crate) fn host_register(at: u64, size: usize, flags: u32) -> Outcome {
    ready()?;
    driver::cuMemHostRegister_v2(at, size, flags | DEVICE_MAP)
}

/// `cudaHostUnregister`.
pub(crate) fn host_unregister(at: u64) -> Outcome {
    ready()?;
    driver::cuMemHostUnregister(at)
}

/// `cudaHostGetDevicePointer`.
pub(crate) fn host_device_pointer(out: Out<u64>, at: u64, flags: u32) -> Outcome {
    ready()?;
    driver::cuMemHostGetDevicePointer_v2(out, at, flags)
}

/// `cudaHostGetFlags`.
pub(crate) fn host_flags(out: Out<u32>, at: u64) -> Outcome {
    ready()?;
    driver::cuMemHostGetFlags(out, at)
}

/// `cudaPointerAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
    reserved: [u64; 8],
}

/// The part of it that CUDA 12 has.
type PointerAttributes12 = [u64; 3];

/// `cudaPointerGetAttributes`; memory that the driver does not know is "unregistered".
pub(crate) fn pointer_attributes(out: Out<PointerAttributes>, address: u64) -> Outcome {
    out.check()?;
    ready()?;
    let of = |number: i32, pointer: u64| {
        let mut value = 0;
        driver::cuPointerGetAttribute(Out::to(&mut value), number, pointer).map(|()| value)
    };
    let mut found =
        PointerAttributes { kind: 0, device: -2, device_pointer: 0, host_pointer: address, reserved: [0; 8] };
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE answers 32 bits: 1 for host memory, 2 for a device's, as the runtime counts.
    if let Ok(kind) = of(2, address) {
        let managed = of(8, address).is_ok_and(|managed| managed & 0xff != 0);
        found.kind = if managed { 3 } else { kind as u32 as i32 };
        found.device = of(9, address)? as u32 as i32;
        found.device_pointer = of(3, address).unwrap_or(0);
        found.host_pointer = of(4, address).unwrap_or(0);
    }
    if crate::device::version() >= 13000 {
        return out.put(found);
    }
    let first = u64::from(found.kind.cast_unsigned()) | u64::from(found.device.cast_unsigned()) << 32;
    out.cast::<PointerAttributes12>().put([first, found.device_pointer, found.host_pointer])
}

/// `cudaIpcGetMemHandle`.
pub(crate) fn ipc_export(out: Out<Handle>, address: u64) -> Outcome {
    ready()?;
    driver::cuIpcGetMemHandle(out, address)
}

/// `cudaIpcOpenMemHandle`.
pub(crate) fn ipc_open(out: Out<u64>, handle: Handle, flags: u32) -> Outcome {
    ready()?;
    driver::cuIpcOpenMemHandle_v2(out, handle, flags)
}

/// `cudaIpcCloseMemHandle`.
pub(crate) fn ipc_close(address: u64) -> Outcome {
    ready()?;
    driver::cuIpcCloseMemHandle(address)
}

/// `cudaMallocAsync`.
pub(crate) fn malloc_async(out: Out<u64>, size: usize, stream: u64) -> Outcome {
    out.check()?;
    ready()?;
    if size == 0 { out.put(0) } else { driver::cuMemAllocAsync(out, size, stream) }
}

/// `cudaMallocFromPoolAsync`.
pub(crate) fn malloc_from_pool(out: Out<u64>, size: usize, pool: u64, stream: u64) -> Outcome {
    out.check()?;
    ready()?;
    if size == 0 { out.put(0) } else { driver::cuMemAllocFromPoolAsync(out, size, pool, stream) }
}

/// `cudaFreeAsync`.
pub(crate) fn free_async(address: u64, stream: u64) -> Outcome {
    ready()?;
    if address == 0 { Ok(()) } else { driver::cuMemFreeAsync(address, stream) }
}

/// `cudaDeviceGetDefaultMemPool`.
pub(crate) fn default_pool(out: Out<u64>, device: i32) -> Outcome {
    known(device)?;
    driver::cuDeviceGetDefaultMemPool(out, device)
}

/// `cudaDeviceGetMemPool`.
pub(crate) fn current_pool(out: Out<u64>, device: i32) -> Outcome {
    known(device)?;
    driver::cuDeviceGetMemPool(out, device)
}

/// `cudaDeviceSetMemPool`.
pub(crate) fn set_current_pool(device: i32, pool: u64) -> Outcome {
    known(device)?;
    driver::cuDeviceSetMemPool(device, pool)
}

/// `cudaMemPoolCreate`, whose properties are the driver's.
pub(crate) fn pool_create(out: Out<u64>, properties: In<[u64; 11]>) -> Outcome {
    ready()?;
    properties.get()?;
    driver::cuMemPoolCreate(out, properties)
}

/// An attribute of the graph memory of a device: read, or set.
pub(crate) fn graph_memory(device: i32, attribute: i32, value: Out<u64>, set: bool) -> Outcome {
    known(device)?;
    if attribute < 0 {
        return Err(Status::INVALID_VALUE);
    }
    if set {
        driver::cuDeviceSetGraphMemAttribute(device, attribute, value)
    } else {
        driver::cuDeviceGetGraphMemAttribute(device, attribute, value)
    }
}
