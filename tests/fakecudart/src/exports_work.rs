//! Exported functions of the runtime: streams, graphs, code and launches.
#![allow(non_snake_case, reason = "names are those of the runtime API")]

use crate::device::{ready, version};
use crate::exports::exports;
use crate::graph::NodeParameters;
use crate::launch::Attributes;
use crate::missing::guarded;
use crate::shapes::{Config, Handle, Sides};
use crate::wall::{HostFunction, In, Out, StreamCallback, Text};
use crate::{code, driver, graph, launch};

/// `CU_EVENT_DEFAULT` and `CU_STREAM_DEFAULT`.
const DEFAULT: u32 = 0;

exports! {
    // Streams and events.
    cudaStreamCreate(out: Out<u64>) = ready().and_then(|()| driver::cuStreamCreateWithPriority(out, DEFAULT, 0));
    cudaStreamCreateWithFlags(out: Out<u64>, flags: u32) =
        ready().and_then(|()| driver::cuStreamCreateWithPriority(out, flags, 0));
    cudaStreamCreateWithPriority(out: Out<u64>, flags: u32, priority: i32) =
        ready().and_then(|()| driver::cuStreamCreateWithPriority(out, flags, priority));
    cudaStreamDestroy(stream: u64) = ready().and_then(|()| driver::cuStreamDestroy_v2(stream));
    cudaStreamSynchronize(stream: u64) = ready().and_then(|()| driver::cuStreamSynchronize(stream));
    cudaStreamQuery(stream: u64) = ready().and_then(|()| driver::cuStreamQuery(stream));
    cudaStreamGetFlags(stream: u64, out: Out<u32>) = ready().and_then(|()| driver::cuStreamGetFlags(stream, out));
    cudaStreamGetPriority(stream: u64, out: Out<i32>) =
        ready().and_then(|()| driver::cuStreamGetPriority(stream, out));
    cudaStreamGetId(stream: u64, out: Out<u64>) = ready().and_then(|()| driver::cuStreamGetId(stream, out));
    cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) =
        ready().and_then(|()| driver::cuStreamWaitEvent(stream, event, flags));
    cudaStreamAddCallback(stream: u64, function: StreamCallback, data: u64, flags: u32) =
        ready().and_then(|()| driver::cuStreamAddCallback(stream, function, data, flags));
    cudaLaunchHostFunc(stream: u64, function: HostFunction, data: u64) =
        ready().and_then(|()| driver::cuLaunchHostFunc(stream, function, data));
    cudaEventCreate(out: Out<u64>) = ready().and_then(|()| driver::cuEventCreate(out, DEFAULT));
    cudaEventCreateWithFlags(out: Out<u64>, flags: u32) = ready().and_then(|()| driver::cuEventCreate(out, flags));
    cudaEventDestroy(event: u64) = ready().and_then(|()| driver::cuEventDestroy_v2(event));
    cudaEventQuery(event: u64) = ready().and_then(|()| driver::cuEventQuery(event));
    cudaEventSynchronize(event: u64) = ready().and_then(|()| driver::cuEventSynchronize(event));
    cudaEventElapsedTime(out: Out<f32>, start: u64, end: u64) =
        ready().and_then(|()| driver::cuEventElapsedTime(out, start, end));
    cudaEventRecord(event: u64, stream: u64) = ready().and_then(|()| driver::cuEventRecord(event, stream));
    cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32) =
        ready().and_then(|()| driver::cuEventRecordWithFlags(event, stream, flags));
    cudaIpcGetEventHandle(out: Out<Handle>, event: u64) =
        ready().and_then(|()| driver::cuIpcGetEventHandle(out, event));
    cudaIpcOpenEventHandle(out: Out<u64>, handle: Handle) =
        ready().and_then(|()| driver::cuIpcOpenEventHandle(out, handle));

    // Captures.
    cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) =
        ready().and_then(|()| driver::cuThreadExchangeStreamCaptureMode(mode));
    cudaStreamBeginCapture(stream: u64, mode: i32) =
        ready().and_then(|()| driver::cuStreamBeginCapture_v2(stream, mode));
    cudaStreamBeginCaptureToGraph(
        stream: u64, into: u64, before: In<u64>, edges: In<u64>, count: usize, mode: i32,
    ) = ready().and_then(|()| driver::cuStreamBeginCaptureToGraph(stream, into, before, edges, count, mode));
    cudaStreamEndCapture(stream: u64, out: Out<u64>) =
        ready().and_then(|()| driver::cuStreamEndCapture(stream, out));
    cudaStreamIsCapturing(stream: u64, out: Out<i32>) =
        ready().and_then(|()| driver::cuStreamIsCapturing(stream, out));
    cudaStreamGetCaptureInfo(
        stream: u64, status: Out<i32>, id: Out<u64>, into: Out<u64>, tail: Out<u64>, edges: Out<u64>,
        count: Out<usize>,
    ) = graph::capture_info(stream, status, id, into, tail, edges, count);
    cudaStreamGetCaptureInfo_v2(
        stream: u64, status: Out<i32>, id: Out<u64>, into: Out<u64>, tail: Out<u64>, count: Out<usize>,
    ) = ready().and_then(|()| driver::cuStreamGetCaptureInfo_v2(stream, status, id, into, tail, count));
    cudaStreamUpdateCaptureDependencies(stream: u64, list: In<u64>, third: u64, fourth: u64, fifth: u32) =
        if version() < 13000 {
            // CUDA 12 has no edges here.
            let count = third as usize;
            ready().and_then(|()| driver::cuStreamUpdateCaptureDependencies(stream, list, count, fourth as u32))
        } else {
            graph::update_dependencies(stream, list, In::at(third), fourth as usize, fifth)
        };

    // Graphs.
    cudaGraphCreate(out: Out<u64>, flags: u32) = ready().and_then(|()| driver::cuGraphCreate(out, flags));
    cudaGraphDestroy(graph: u64) = ready().and_then(|()| driver::cuGraphDestroy(graph));
    cudaGraphGetNodes(graph: u64, out: Out<u64>, count: Out<usize>) =
        ready().and_then(|()| driver::cuGraphGetNodes(graph, out, count));
    cudaGraphNodeGetType(node: u64, out: Out<i32>) = ready().and_then(|()| driver::cuGraphNodeGetType(node, out));
    cudaGraphNodeGetDependencies(node: u64, out: Out<u64>, third: Out<u64>, count: Out<usize>) =
        graph::node_dependencies(node, out, third, count);
    cudaGraphAddEmptyNode(out: Out<u64>, into: u64, before: In<u64>, count: usize) =
        ready().and_then(|()| driver::cuGraphAddEmptyNode(out, into, before, count));
    cudaGraphAddNode(
        out: Out<u64>, into: u64, before: In<u64>, edges: In<u64>, count: usize, parameters: Out<NodeParameters>,
    ) = graph::add_node(out, into, before, edges, count, parameters);
    cudaGraphInstantiate(out: Out<u64>, graph: u64, flags: u64) =
        ready().and_then(|()| driver::cuGraphInstantiateWithFlags(out, graph, flags));
    cudaGraphInstantiateWithFlags(out: Out<u64>, graph: u64, flags: u64) =
        ready().and_then(|()| driver::cuGraphInstantiateWithFlags(out, graph, flags));
    cudaGraphExecDestroy(executable: u64) = ready().and_then(|()| driver::cuGraphExecDestroy(executable));
    cudaGraphLaunch(executable: u64, stream: u64) = ready().and_then(|()| driver::cuGraphLaunch(executable, stream));
    cudaGraphUpload(executable: u64, stream: u64) = ready().and_then(|()| driver::cuGraphUpload(executable, stream));
    cudaGraphConditionalHandleCreate(out: Out<u64>, into: u64, value: u32, flags: u32) =
        ready().and_then(|()| driver::cuGraphConditionalHandleCreate(out, into, 0, value, flags));
    cudaUserObjectCreate(out: Out<u64>, data: u64, destroy: HostFunction, count: u32, flags: u32) =
        driver::cuUserObjectCreate(out, data, destroy, count, flags);
    cudaUserObjectRetain(object: u64, count: u32) = driver::cuUserObjectRetain(object, count);
    cudaUserObjectRelease(object: u64, count: u32) = driver::cuUserObjectRelease(object, count);
    cudaGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) =
        driver::cuGraphRetainUserObject(graph, object, count, flags);
    cudaGraphReleaseUserObject(graph: u64, object: u64, count: u32) =
        driver::cuGraphReleaseUserObject(graph, object, count);

    // Kernels of this program.
    __cudaGetKernel(out: Out<u64>, host: u64) = out.check().and_then(|()| out.put(code::kernel(host)?));
    cudaGetKernel(out: Out<u64>, host: u64) = out.check().and_then(|()| out.put(code::kernel(host)?));
    cudaGetFuncBySymbol(out: Out<u64>, host: u64) = out.check().and_then(|()| out.put(launch::function(host)?));
    cudaLaunchKernel(host: u64, grid: Sides, block: Sides, arguments: u64, shared: usize, stream: u64) =
        launch::launch(host, grid, block, arguments, shared, stream);
    __cudaLaunchKernel(kernel: u64, grid: Sides, block: Sides, arguments: u64, shared: usize, stream: u64) =
        launch::launch(kernel, grid, block, arguments, shared, stream);
    cudaLaunchCooperativeKernel(
        host: u64, grid: Sides, block: Sides, arguments: u64, shared: usize, stream: u64,
    ) = launch::cooperative(host, grid, block, arguments, shared, stream);
    cudaLaunchKernelExC(config: In<Config>, host: u64, arguments: u64) =
        launch::configured(config, host, arguments);
    cudaFuncGetAttributes(out: Out<Attributes>, host: u64) = launch::attributes(out, host);
    cudaFuncSetAttribute(host: u64, attribute: i32, value: i32) = launch::set_attribute(host, attribute, value);
    cudaFuncSetCacheConfig(host: u64, config: i32) = launch::set_cache_config(host, config);
    cudaKernelSetAttributeForDevice(kernel: u64, attribute: i32, value: i32, device: i32) =
        launch::set_kernel_attribute(kernel, attribute, value, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, host: u64, threads: i32, shared: usize) =
        launch::active_blocks(out, host, threads, shared, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<i32>, host: u64, threads: i32, shared: usize, flags: u32,
    ) = launch::active_blocks(out, host, threads, shared, flags);
    cudaOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, host: u64, blocks: i32, threads: i32) =
        launch::available_shared(out, host, blocks, threads);

    // Libraries.
    cudaLibraryLoadData(
        out: Out<u64>, image: u64, jit: In<i32>, jit_values: In<u64>, jit_count: u32, options: In<i32>,
        values: In<u64>, count: u32,
    ) = ready().and_then(|()| {
        driver::cuLibraryLoadData(out, image, jit, jit_values, jit_count, options, values, count)
    });
    cudaLibraryLoadFromFile(
        out: Out<u64>, name: Text, jit: In<i32>, jit_values: In<u64>, jit_count: u32, options: In<i32>,
        values: In<u64>, count: u32,
    ) = ready().and_then(|()| {
        driver::cuLibraryLoadFromFile(out, name, jit, jit_values, jit_count, options, values, count)
    });
    cudaLibraryUnload(library: u64) = ready().and_then(|()| driver::cuLibraryUnload(library));
    cudaLibraryGetKernel(out: Out<u64>, library: u64, name: Text) =
        ready().and_then(|()| driver::cuLibraryGetKernel(out, library, name));
    cudaLibraryGetKernelCount(out: Out<u32>, library: u64) =
        ready().and_then(|()| driver::cuLibraryGetKernelCount(out, library));
    cudaLibraryEnumerateKernels(out: Out<u64>, count: u32, library: u64) =
        ready().and_then(|()| driver::cuLibraryEnumerateKernels(out, count, library));
    cudaLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: u64, name: Text) =
        ready().and_then(|()| driver::cuLibraryGetGlobal(address, size, library, name));
    cudaLibraryGetManaged(address: Out<u64>, size: Out<usize>, library: u64, name: Text) =
        ready().and_then(|()| driver::cuLibraryGetManaged(address, size, library, name));
    cudaLibraryGetUnifiedFunction(out: Out<u64>, library: u64, name: Text) =
        ready().and_then(|()| driver::cuLibraryGetUnifiedFunction(out, library, name));

    __cudaPopCallConfiguration(grid: Out<Sides>, block: Out<Sides>, shared: Out<usize>, stream: Out<u64>) =
        launch::pop().and_then(|(sides, threads, bytes, handle)| {
            grid.put(sides)?;
            block.put(threads)?;
            shared.put(bytes)?;
            stream.put(handle)
        });
}

// SAFETY: the name is one of the compiler's interface to the runtime, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(grid: Sides, block: Sides, shared: usize, stream: u64) -> u32 {
    launch::push((grid, block, shared, stream));
    0
}

// SAFETY: the name is one of the compiler's interface to the runtime, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: u64) -> u64 {
    code::register(wrapper)
}

// SAFETY: the name is one of the compiler's interface to the runtime, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: u64) {}

// SAFETY: the name is one of the compiler's interface to the runtime, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(binary: u64) {
    code::unregister(binary);
}

// SAFETY: the name is one of the compiler's interface to the runtime, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(binary: u64, host: u64, _device: u64, name: Text) {
    code::register_kernel(binary, host, name);
}

// SAFETY: the name is one of the compiler's interface to the runtime, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(binary: u64, host: u64, _device: u64, name: Text) {
    code::register_variable(binary, host, name);
}
