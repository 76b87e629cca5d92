//! Exported functions of the runtime: devices, memory and errors.
#![allow(non_snake_case, reason = "names are those of the runtime API")]

use std::ffi::c_char;

use crate::copy::Rows;
use crate::device::ready;
use crate::memory::PointerAttributes;
use crate::missing::guarded;
use crate::shapes::Handle;
use crate::wall::{In, Out, Text};
use crate::{code, copy, device, driver, launch, memory, properties, status};

/// Defines functions of a public API by name, C arguments and the safe call behind each.
macro_rules! exports {
    ($($symbol:ident($($name:ident: $type:ty),* $(,)?) = $body:expr;)*) => {
        $(
            // SAFETY: the name is one of NVIDIA's public APIs, which this library defines in the place of theirs.
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($name: $type),*) -> i32 {
                guarded(|| $body)
            }
        )*
    };
}
pub(crate) use exports;

// SAFETY: the name is one of the CUDA runtime API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> i32 {
    status::take_last()
}

// SAFETY: the name is one of the CUDA runtime API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> i32 {
    status::last()
}

// SAFETY: the name is one of the CUDA runtime API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    status::name(error)
}

// SAFETY: the name is one of the CUDA runtime API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    status::sentence(error)
}

// SAFETY: the name is this library's own, for the code that `fakecudart-stage` generates.
#[unsafe(no_mangle)]
extern "C" fn fakecudart_is(version: i32) {
    device::set_version(version);
}

exports! {
    // Versions and devices.
    cudaRuntimeGetVersion(out: Out<i32>) = out.put(device::version());
    cudaDriverGetVersion(out: Out<i32>) = device::driver_version(out);
    cudaGetDeviceCount(out: Out<i32>) = device::count(out);
    cudaGetDevice(out: Out<i32>) = out.check().and_then(|()| out.put(device::current()?));
    cudaSetDevice(device: i32) = device::set(device);
    cudaInitDevice(device: i32, _device_flags: u32, _flags: u32) = device::primary(device).map(|_| ());
    cudaDeviceReset() = device::reset();
    cudaDeviceSynchronize() = ready().and_then(|()| driver::cuCtxSynchronize());
    cudaGetDeviceProperties(out: Out<u8>, device: i32) = properties::get(out, device);
    cudaGetDeviceProperties_v2(out: Out<u8>, device: i32) = properties::get_12(out, device);
    cudaDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) =
        device::get_attribute(out, attribute, device);
    cudaDeviceGetPCIBusId(out: Out<i8>, room: i32, device: i32) = device::bus_id(out, room, device);
    cudaDeviceGetByPCIBusId(out: Out<i32>, name: Text) = device::by_bus_id(out, name);
    cudaDeviceCanAccessPeer(out: Out<i32>, one: i32, other: i32) = device::can_access_peer(out, one, other);
    cudaDeviceEnablePeerAccess(other: i32, flags: u32) = device::enable_peer(other, flags);
    cudaDeviceDisablePeerAccess(other: i32) = device::disable_peer(other);
    cudaDeviceGetP2PAttribute(out: Out<i32>, attribute: i32, one: i32, other: i32) =
        device::known(one).and_then(|()| driver::cuDeviceGetP2PAttribute(out, attribute, one, other));
    cudaDeviceGetLimit(out: Out<usize>, limit: i32) = launch::limit(out, limit);
    cudaDeviceSetLimit(limit: i32, value: usize) = launch::set_limit(limit, value);
    cudaGetDeviceFlags(out: Out<u32>) = launch::device_flags(out);
    cudaSetDeviceFlags(flags: u32) = launch::set_device_flags(flags);
    cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) =
        ready().and_then(|()| driver::cuCtxGetStreamPriorityRange(least, greatest));
    cudaProfilerStart() = ready().and_then(|()| driver::cuProfilerStart());
    cudaProfilerStop() = ready().and_then(|()| driver::cuProfilerStop());
    cudaGetDriverEntryPoint(name: Text, out: Out<u64>, flags: u64, status: Out<i32>) =
        device::entry_point(name, out, device::version(), flags, status);
    cudaGetDriverEntryPointByVersion(name: Text, out: Out<u64>, version: u32, flags: u64, status: Out<i32>) =
        device::entry_point(name, out, version.cast_signed(), flags, status);

    // Memory.
    cudaMalloc(out: Out<u64>, size: usize) = memory::malloc(out, size);
    cudaMallocPitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize) =
        memory::malloc_pitch(out, pitch, width, height);
    cudaMallocManaged(out: Out<u64>, size: usize, flags: u32) = memory::malloc_managed(out, size, flags);
    cudaFree(address: u64) = memory::free(address);
    cudaMemGetInfo(free: Out<usize>, total: Out<usize>) = memory::info(free, total);
    cudaHostAlloc(out: Out<u64>, size: usize, flags: u32) = memory::host_alloc(out, size, flags);
    cudaMallocHost(out: Out<u64>, size: usize) = memory::host_alloc(out, size, 0);
    cudaFreeHost(at: u64) = memory::host_free(at);
    cudaHostRegister(at: u64, size: usize, flags: u32) = memory::host_register(at, size, flags);
    cudaHostUnregister(at: u64) = memory::host_unregister(at);
    cudaHostGetDevicePointer(out: Out<u64>, at: u64, flags: u32) = memory::host_device_pointer(out, at, flags);
    cudaHostGetFlags(out: Out<u32>, at: u64) = memory::host_flags(out, at);
    cudaPointerGetAttributes(out: Out<PointerAttributes>, address: u64) = memory::pointer_attributes(out, address);
    cudaIpcGetMemHandle(out: Out<Handle>, address: u64) = memory::ipc_export(out, address);
    cudaIpcOpenMemHandle(out: Out<u64>, handle: Handle, flags: u32) = memory::ipc_open(out, handle, flags);
    cudaIpcCloseMemHandle(address: u64) = memory::ipc_close(address);

    // Stream-ordered memory.
    cudaMallocAsync(out: Out<u64>, size: usize, stream: u64) = memory::malloc_async(out, size, stream);
    cudaMallocFromPoolAsync(out: Out<u64>, size: usize, pool: u64, stream: u64) =
        memory::malloc_from_pool(out, size, pool, stream);
    cudaFreeAsync(address: u64, stream: u64) = memory::free_async(address, stream);
    cudaDeviceGetDefaultMemPool(out: Out<u64>, device: i32) = memory::default_pool(out, device);
    cudaDeviceGetMemPool(out: Out<u64>, device: i32) = memory::current_pool(out, device);
    cudaDeviceSetMemPool(device: i32, pool: u64) = memory::set_current_pool(device, pool);
    cudaMemPoolCreate(out: Out<u64>, properties: In<[u64; 11]>) = memory::pool_create(out, properties);
    cudaMemPoolDestroy(pool: u64) = ready().and_then(|()| driver::cuMemPoolDestroy(pool));
    cudaMemPoolTrimTo(pool: u64, keep: usize) = ready().and_then(|()| driver::cuMemPoolTrimTo(pool, keep));
    cudaMemPoolGetAttribute(pool: u64, attribute: i32, out: Out<u64>) =
        ready().and_then(|()| driver::cuMemPoolGetAttribute(pool, attribute, out));
    cudaMemPoolSetAttribute(pool: u64, attribute: i32, value: Out<u64>) =
        ready().and_then(|()| driver::cuMemPoolSetAttribute(pool, attribute, value));
    cudaMemPoolSetAccess(pool: u64, list: In<[i32; 3]>, count: usize) =
        ready().and_then(|()| driver::cuMemPoolSetAccess(pool, list, count));
    cudaMemPoolGetAccess(out: Out<i32>, pool: u64, location: Out<[i32; 2]>) =
        ready().and_then(|()| driver::cuMemPoolGetAccess(out, pool, location));
    cudaDeviceGetGraphMemAttribute(device: i32, attribute: i32, out: Out<u64>) =
        memory::graph_memory(device, attribute, out, false);
    cudaDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>) =
        memory::graph_memory(device, attribute, value, true);
    cudaDeviceGraphMemTrim(device: i32) = device::known(device).and_then(|()| driver::cuDeviceGraphMemTrim(device));

    // Copies and fills.
    cudaMemcpy(to: u64, from: u64, bytes: usize, kind: i32) = copy::linear(to, from, bytes, kind);
    cudaMemcpyAsync(to: u64, from: u64, bytes: usize, kind: i32, stream: u64) =
        copy::linear_async(to, from, bytes, kind, stream);
    cudaMemcpyPeer(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize) =
        copy::peer(to, to_device, from, from_device, bytes);
    cudaMemcpyPeerAsync(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: u64) =
        copy::peer_async(to, to_device, from, from_device, bytes, stream);
    cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: i32) =
        Rows { to: (to, to_pitch), from: (from, from_pitch), width, height }.copy(kind, None);
    cudaMemcpy2DAsync(
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: i32, stream: u64,
    ) = Rows { to: (to, to_pitch), from: (from, from_pitch), width, height }.copy(kind, Some(stream));
    cudaMemcpyToSymbol(symbol: u64, from: u64, bytes: usize, offset: usize, kind: i32) =
        copy::linear(code::part_of_variable(symbol, bytes, offset)?, from, bytes, kind);
    cudaMemcpyFromSymbol(to: u64, symbol: u64, bytes: usize, offset: usize, kind: i32) =
        copy::linear(to, code::part_of_variable(symbol, bytes, offset)?, bytes, kind);
    cudaMemcpyToSymbolAsync(symbol: u64, from: u64, bytes: usize, offset: usize, kind: i32, stream: u64) =
        copy::linear_async(code::part_of_variable(symbol, bytes, offset)?, from, bytes, kind, stream);
    cudaMemcpyFromSymbolAsync(to: u64, symbol: u64, bytes: usize, offset: usize, kind: i32, stream: u64) =
        copy::linear_async(to, code::part_of_variable(symbol, bytes, offset)?, bytes, kind, stream);
    cudaMemset(to: u64, value: i32, count: usize) = copy::fill(to, value, count);
    cudaMemsetAsync(to: u64, value: i32, count: usize, stream: u64) = copy::fill_async(to, value, count, stream);
    cudaMemset2D(to: u64, pitch: usize, value: i32, width: usize, height: usize) =
        copy::fill_rows((to, pitch), value, (width, height), None);
    cudaMemset2DAsync(to: u64, pitch: usize, value: i32, width: usize, height: usize, stream: u64) =
        copy::fill_rows((to, pitch), value, (width, height), Some(stream));
    cudaGetSymbolAddress(out: Out<u64>, symbol: u64) = out.check().and_then(|()| out.put(code::variable(symbol)?.0));
    cudaGetSymbolSize(out: Out<usize>, symbol: u64) = out.check().and_then(|()| out.put(code::variable(symbol)?.1));
}
