//! Functions of the public driver API that the runtime is built on.
//!
//! Each is found by name at its first call.
//! Arguments that are handles or addresses of the device are `u64`.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and arguments are those of the driver API"
)]

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::status::{Outcome, checked};
use crate::wall::{Callable, HostFunction, In, Out, StreamCallback, Text, driver_function};

/// A function of the driver; one that it does not have answers "not supported", and is named once.
fn found<F: Callable + Copy>(place: &OnceLock<Option<F>>, name: &CStr) -> Outcome<F> {
    // SAFETY: the table below gives each name the signature that the driver API documents for it.
    let function = *place.get_or_init(|| unsafe { F::at(driver_function(name)) });
    function.ok_or_else(|| crate::missing::absent(&name.to_string_lossy(), "the driver's"))
}

macro_rules! driver {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            pub(crate) fn $name($($argument: $type),*) -> Outcome {
                type Function = extern "C" fn($($type),*) -> i32;
                static AT: OnceLock<Option<Function>> = OnceLock::new();
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                checked(found(&AT, NAME)?($($argument),*))
            }
        )*
    };
}

driver! {
    // The driver and its devices.
    cuInit(flags: u32);
    cuDriverGetVersion(out: Out<i32>);
    cuGetProcAddress_v2(name: Text, out: Out<u64>, version: i32, flags: u64, status: Out<i32>);
    cuDeviceGetCount(out: Out<i32>);
    cuDeviceGetName(out: Out<i8>, room: i32, device: i32);
    cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32);
    cuDeviceGetLuid(out: Out<[u8; 8]>, mask: Out<u32>, device: i32);
    cuDeviceGetPCIBusId(out: Out<i8>, room: i32, device: i32);
    cuDeviceGetByPCIBusId(out: Out<i32>, name: Text);
    cuDeviceTotalMem_v2(out: Out<usize>, device: i32);
    cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32);
    cuDeviceCanAccessPeer(out: Out<i32>, one: i32, other: i32);
    cuDeviceGetP2PAttribute(out: Out<i32>, attribute: i32, one: i32, other: i32);
    cuDeviceGetDefaultMemPool(out: Out<u64>, device: i32);
    cuDeviceGetMemPool(out: Out<u64>, device: i32);
    cuDeviceSetMemPool(device: i32, pool: u64);
    cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, out: Out<u64>);
    cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: Out<u64>);
    cuDeviceGraphMemTrim(device: i32);

    // Contexts.
    cuCtxGetCurrent(out: Out<u64>);
    cuCtxSetCurrent(context: u64);
    cuCtxGetDevice(out: Out<i32>);
    cuCtxSynchronize();
    cuCtxGetLimit(out: Out<usize>, limit: i32);
    cuCtxSetLimit(limit: i32, value: usize);
    cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>);
    cuCtxEnablePeerAccess(context: u64, flags: u32);
    cuCtxDisablePeerAccess(context: u64);
    cuDevicePrimaryCtxRetain(out: Out<u64>, device: i32);
    cuDevicePrimaryCtxReset_v2(device: i32);
    cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>);
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32);

    // Memory.
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>);
    cuMemAlloc_v2(out: Out<u64>, size: usize);
    cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32);
    cuMemAllocManaged(out: Out<u64>, size: usize, flags: u32);
    cuMemFree_v2(address: u64);
    cuMemHostAlloc(out: Out<u64>, size: usize, flags: u32);
    cuMemFreeHost(at: u64);
    cuMemHostRegister_v2(at: u64, size: usize, flags: u32);
    cuMemHostUnregister(at: u64);
    cuMemHostGetDevicePointer_v2(out: Out<u64>, at: u64, flags: u32);
    cuMemHostGetFlags(out: Out<u32>, at: u64);
    cuPointerGetAttribute(out: Out<u64>, attribute: i32, address: u64);
    cuIpcGetMemHandle(out: Out<crate::shapes::Handle>, address: u64);
    cuIpcOpenMemHandle_v2(out: Out<u64>, handle: crate::shapes::Handle, flags: u32);
    cuIpcCloseMemHandle(address: u64);
    cuIpcGetEventHandle(out: Out<crate::shapes::Handle>, event: u64);
    cuIpcOpenEventHandle(out: Out<u64>, handle: crate::shapes::Handle);

    // Stream-ordered memory.
    cuMemAllocAsync(out: Out<u64>, size: usize, stream: u64);
    cuMemAllocFromPoolAsync(out: Out<u64>, size: usize, pool: u64, stream: u64);
    cuMemFreeAsync(address: u64, stream: u64);
    cuMemPoolCreate(out: Out<u64>, properties: In<[u64; 11]>);
    cuMemPoolDestroy(pool: u64);
    cuMemPoolTrimTo(pool: u64, keep: usize);
    cuMemPoolGetAttribute(pool: u64, attribute: i32, out: Out<u64>);
    cuMemPoolSetAttribute(pool: u64, attribute: i32, value: Out<u64>);
    cuMemPoolSetAccess(pool: u64, list: In<[i32; 3]>, count: usize);
    cuMemPoolGetAccess(out: Out<i32>, pool: u64, location: Out<[i32; 2]>);

    // Copies and fills.
    cuMemcpy(to: u64, from: u64, bytes: usize);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize);
    cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64);
    cuMemcpy2D_v2(copy: In<crate::shapes::Flat>);
    cuMemcpy2DAsync_v2(copy: In<crate::shapes::Flat>, stream: u64);
    cuMemsetD8_v2(to: u64, value: u8, count: usize);
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64);
    cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64);

    // Streams and events.
    cuStreamCreateWithPriority(out: Out<u64>, flags: u32, priority: i32);
    cuStreamDestroy_v2(stream: u64);
    cuStreamSynchronize(stream: u64);
    cuStreamQuery(stream: u64);
    cuStreamGetFlags(stream: u64, out: Out<u32>);
    cuStreamGetPriority(stream: u64, out: Out<i32>);
    cuStreamGetId(stream: u64, out: Out<u64>);
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    cuStreamAddCallback(stream: u64, function: StreamCallback, data: u64, flags: u32);
    cuLaunchHostFunc(stream: u64, function: HostFunction, data: u64);
    cuEventCreate(out: Out<u64>, flags: u32);
    cuEventDestroy_v2(event: u64);
    cuEventQuery(event: u64);
    cuEventSynchronize(event: u64);
    cuEventElapsedTime(out: Out<f32>, start: u64, end: u64);
    cuEventRecord(event: u64, stream: u64);
    cuEventRecordWithFlags(event: u64, stream: u64, flags: u32);

    // Capture and graphs.
    cuThreadExchangeStreamCaptureMode(mode: Out<i32>);
    cuStreamBeginCapture_v2(stream: u64, mode: i32);
    cuStreamBeginCaptureToGraph(
        stream: u64, graph: u64, before: In<u64>, edges: In<u64>, count: usize, mode: i32,
    );
    cuStreamEndCapture(stream: u64, out: Out<u64>);
    cuStreamIsCapturing(stream: u64, out: Out<i32>);
    cuStreamGetCaptureInfo_v2(
        stream: u64, status: Out<i32>, id: Out<u64>, graph: Out<u64>, tail: Out<u64>, count: Out<usize>,
    );
    cuStreamGetCaptureInfo_v3(
        stream: u64, status: Out<i32>, id: Out<u64>, graph: Out<u64>, tail: Out<u64>, edges: Out<u64>,
        count: Out<usize>,
    );
    cuStreamUpdateCaptureDependencies(stream: u64, list: In<u64>, count: usize, flags: u32);
    cuStreamUpdateCaptureDependencies_v2(stream: u64, list: In<u64>, edges: In<u64>, count: usize, flags: u32);
    cuGraphCreate(out: Out<u64>, flags: u32);
    cuGraphDestroy(graph: u64);
    cuGraphGetNodes(graph: u64, out: Out<u64>, count: Out<usize>);
    cuGraphNodeGetType(node: u64, out: Out<i32>);
    cuGraphNodeGetDependencies(node: u64, out: Out<u64>, count: Out<usize>);
    cuGraphNodeGetDependencies_v2(node: u64, out: Out<u64>, edges: Out<u64>, count: Out<usize>);
    cuGraphAddEmptyNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize);
    cuGraphAddNode_v2(
        out: Out<u64>, graph: u64, before: In<u64>, edges: In<u64>, count: usize, parameters: Out<[u64; 32]>,
    );
    cuGraphInstantiateWithFlags(out: Out<u64>, graph: u64, flags: u64);
    cuGraphExecDestroy(executable: u64);
    cuGraphLaunch(executable: u64, stream: u64);
    cuGraphUpload(executable: u64, stream: u64);
    cuGraphConditionalHandleCreate(out: Out<u64>, graph: u64, context: u64, value: u32, flags: u32);
    cuUserObjectCreate(out: Out<u64>, data: u64, destroy: HostFunction, count: u32, flags: u32);
    cuUserObjectRetain(object: u64, count: u32);
    cuUserObjectRelease(object: u64, count: u32);
    cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32);
    cuGraphReleaseUserObject(graph: u64, object: u64, count: u32);

    // Code.
    cuLibraryLoadData(
        out: Out<u64>, image: u64, jit: In<i32>, jit_values: In<u64>, jit_count: u32, options: In<i32>,
        values: In<u64>, count: u32,
    );
    cuLibraryLoadFromFile(
        out: Out<u64>, name: Text, jit: In<i32>, jit_values: In<u64>, jit_count: u32, options: In<i32>,
        values: In<u64>, count: u32,
    );
    cuLibraryUnload(library: u64);
    cuLibraryGetKernel(out: Out<u64>, library: u64, name: Text);
    cuLibraryGetKernelCount(out: Out<u32>, library: u64);
    cuLibraryEnumerateKernels(out: Out<u64>, count: u32, library: u64);
    cuLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: u64, name: Text);
    cuLibraryGetManaged(address: Out<u64>, size: Out<usize>, library: u64, name: Text);
    cuLibraryGetUnifiedFunction(out: Out<u64>, library: u64, name: Text);
    cuKernelGetFunction(out: Out<u64>, kernel: u64);
    cuKernelSetAttribute(attribute: i32, value: i32, kernel: u64, device: i32);
    cuFuncGetAttribute(out: Out<i32>, attribute: i32, function: u64);
    cuFuncSetAttribute(function: u64, attribute: i32, value: i32);
    cuFuncSetCacheConfig(function: u64, config: i32);
    cuLaunchKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
        stream: u64, addresses: u64, extra: u64,
    );
    cuLaunchCooperativeKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
        stream: u64, addresses: u64,
    );
    cuLaunchKernelEx(config: In<crate::shapes::DriverConfig>, function: u64, addresses: u64, extra: u64);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<i32>, function: u64, threads: i32, shared: usize, flags: u32,
    );
    cuOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, function: u64, blocks: i32, threads: i32);

    cuProfilerStart();
    cuProfilerStop();
}
