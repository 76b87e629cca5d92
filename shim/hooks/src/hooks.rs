//! The table of governed functions.
//!
//! Each row becomes an exported function, a slot for the address of the real one, and a result of `dlsym` and
//! `cuGetProcAddress`. A function without a row is not touched.
#![allow(non_camel_case_types, non_snake_case, reason = "the driver's names")]

#[macro_use]
mod export;

use core::ffi::{c_char, c_int, c_void};

use tranche_policy::{Awaited, Bound, Route, Work};

use crate::cuda::stream::{self, Stream};
use crate::cuda::{
    abi, array, capture, checkpoint, context, device, doors, external, graph, launch, limit, memory, module,
    multicast, physical, pool, presence, shared, transfer, wait,
};
use crate::forms::Governed;
use crate::launch::{through, transferred};
use crate::libraries::{Library, RealAddress, Symbol, SymbolName, unresolved};
use crate::nvml::{self, process, topology, usage};

/// The newest CUDA version whose functions were compared with the rows below.
const KNOWN_VERSION: c_int = 13_050;

hooks! {
    Cuda in "libcuda" {
        2000 cuInit(flags: u32) => device::init();
        11030 cuGetProcAddress(name: *const c_char, slot: *mut *mut c_void, version: c_int, flags: u64) => doors::look_up::<Hook>;
        12000 cuGetProcAddress_v2(name: *const c_char, slot: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) => doors::look_up_v2::<Hook>;
        13000 cuGetProcAddress_v2_ptsz(name: *const c_char, slot: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) => doors::look_up_v2::<Hook>;

        2000 cuDeviceGetCount(count: *mut c_int) => device::count(count);
        2000 cuDeviceGet(device: *mut c_int, ordinal: c_int) => [made] device::get(ordinal);
        4010 cuDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) => [made] device::by_bus_id();
        2000 cuDeviceTotalMem(bytes: *mut u32, device: c_int) => [made] device::total_memory(device);
        3020 cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) => [made] device::total_memory(device);
        2000 cuMemGetInfo(free: *mut u32, total: *mut u32) => device::memory_info;
        3020 cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => device::memory_info;

        2000 cuCtxCreate(context: *mut u64, flags: u32, device: c_int) => [made] context::create(device);
        3020 cuCtxCreate_v2(context: *mut u64, flags: u32, device: c_int) => [made] context::create(device);
        11040 cuCtxCreate_v3(context: *mut u64, affinity: *mut c_void, count: c_int, flags: u32, device: c_int) => [made] context::create(device);
        12050 cuCtxCreate_v4(context: *mut u64, parameters: *mut c_void, flags: u32, device: c_int) => [made] context::create(device);
        2000 cuCtxDestroy(context: u64) => context::destroy(context);
        4000 cuCtxDestroy_v2(context: u64) => context::destroy(context);
        7000 cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) => [made] context::retain(device);
        7000 cuDevicePrimaryCtxRelease(device: c_int) => context::release(device);
        11000 cuDevicePrimaryCtxRelease_v2(device: c_int) => context::release(device);
        7000 cuDevicePrimaryCtxReset(device: c_int) => context::release(device);
        11000 cuDevicePrimaryCtxReset_v2(device: c_int) => context::release(device);

        3010 cuCtxSetLimit(limit: c_int, value: usize) => limit::set(limit, value);
        12040 cuGreenCtxCreate(green: *mut u64, resources: u64, device: c_int, flags: u32) => [made] context::create_green(device);
        12040 cuGreenCtxDestroy(green: u64) => context::destroy_green(green);
        12040 cuCtxFromGreenCtx(context: *mut u64, green: u64) => context::from_green(context, green);

        2000 cuModuleLoad(module: *mut u64, name: *const c_char) => [made] module::load(module::LoadForm::Module, module::file_size(name));
        2000 cuModuleLoadData(module: *mut u64, image: *const c_void) => [made] module::load(module::LoadForm::Module, module::image_size(image));
        2010 cuModuleLoadDataEx(module: *mut u64, image: *const c_void, count: u32, options: *mut c_int, values: *mut *mut c_void) => [made] module::load(module::LoadForm::Module, module::image_size(image));
        2000 cuModuleLoadFatBinary(module: *mut u64, image: *const c_void) => [made] module::load(module::LoadForm::Module, module::image_size(image));
        2000 cuModuleUnload(module: u64) => module::unload(module);
        12000 cuLibraryLoadData(library: *mut u64, image: *const c_void, jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: u32, options: *mut c_int, values: *mut *mut c_void, count: u32) => [made] module::load(module::LoadForm::Library, module::image_size(image));
        12000 cuLibraryLoadFromFile(library: *mut u64, name: *const c_char, jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: u32, options: *mut c_int, values: *mut *mut c_void, count: u32) => [made] module::load(module::LoadForm::Library, module::file_size(name));
        12000 cuLibraryUnload(library: u64) => module::unload_library(library);
        2000 cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) => module::find(module::LoadForm::Module, module);
        12040 cuModuleEnumerateFunctions(functions: *mut u64, count: u32, module: u64) => module::find(module::LoadForm::Module, module);
        12000 cuLibraryGetKernel(kernel: *mut u64, library: u64, name: *const c_char) => module::find(module::LoadForm::Library, library);
        12040 cuLibraryEnumerateKernels(kernels: *mut u64, count: u32, library: u64) => module::find(module::LoadForm::Library, library);
        12000 cuLibraryGetManaged(address: *mut u64, bytes: *mut usize, library: u64, name: *const c_char) => module::library_managed();
        12000 cuLibraryGetModule(module: *mut u64, library: u64) => module::find(module::LoadForm::Library, library);
        12000 cuLibraryGetUnifiedFunction(function: *mut *mut c_void, library: u64, name: *const c_char) => module::find(module::LoadForm::Library, library);

        2000 cuMemAlloc(pointer: *mut u32, bytes: u32) => [made] memory::allocate(bytes);
        3020 cuMemAlloc_v2(pointer: *mut u64, bytes: usize) => [made] memory::allocate(bytes);
        2000 cuMemAllocPitch(pointer: *mut u32, pitch: *mut u32, width: u32, height: u32, element: u32) => memory::allocate_pitched;
        3020 cuMemAllocPitch_v2(pointer: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) => memory::allocate_pitched;
        6000 cuMemAllocManaged(pointer: *mut u64, bytes: usize, flags: u32) => [made] memory::allocate_managed(bytes, flags);
        2000 cuMemFree(pointer: u32) => memory::free;
        3020 cuMemFree_v2(pointer: u64) => memory::free;

        11020 cuMemAllocAsync(pointer: *mut u64, bytes: usize, stream: u64) => [made] pool::allocate(bytes, stream, None);
        11020 cuMemAllocAsync_ptsz(pointer: *mut u64, bytes: usize, stream: u64) => [made] pool::allocate(bytes, stream::own(stream), None);
        11020 cuMemAllocFromPoolAsync(pointer: *mut u64, bytes: usize, pool: u64, stream: u64) => [made] pool::allocate(bytes, stream, Some(pool));
        11020 cuMemAllocFromPoolAsync_ptsz(pointer: *mut u64, bytes: usize, pool: u64, stream: u64) => [made] pool::allocate(bytes, stream::own(stream), Some(pool));
        11020 cuMemFreeAsync(pointer: u64, stream: u64) => pool::free(pointer, stream);
        11020 cuMemFreeAsync_ptsz(pointer: u64, stream: u64) => pool::free(pointer, stream::own(stream));
        11020 cuMemPoolCreate(pool: *mut u64, properties: *const abi::Properties) => pool::create(pool, properties);
        13000 cuMemGetDefaultMemPool(pool: *mut u64, at: *mut abi::MemLocation, allocation_type: u32) => pool::look_up(pool, at, allocation_type);
        13000 cuMemGetMemPool(pool: *mut u64, at: *mut abi::MemLocation, allocation_type: u32) => pool::look_up(pool, at, allocation_type);
        11020 cuMemPoolDestroy(pool: u64) => pool::destroy(pool);
        11020 cuMemPoolExportPointer(out: *mut shared::IpcHandle, pointer: u64) => pool::export_pointer(out, pointer);
        11020 cuMemPoolImportPointer(pointer: *mut u64, pool: u64, shared: *mut shared::IpcHandle) => [made] shared::import_pointer(pool, shared);
        11020 cuMemPoolTrimTo(pool: u64, keep: usize) => pool::trim();
        10000 cuGraphInstantiate(ready: *mut u64, graph: u64, failed: *mut u64, log: *mut i8, room: usize) => [made] graph::instantiate(graph);
        11000 cuGraphInstantiate_v2(ready: *mut u64, graph: u64, failed: *mut u64, log: *mut i8, room: usize) => [made] graph::instantiate(graph);
        11040 cuGraphInstantiateWithFlags(ready: *mut u64, graph: u64, flags: u64) => [made] graph::instantiate(graph);
        12000 cuGraphInstantiateWithParams(ready: *mut u64, graph: u64, parameters: *mut graph::Parameters) => [made] graph::instantiate_with_parameters(graph, parameters);
        12000 cuGraphInstantiateWithParams_ptsz(ready: *mut u64, graph: u64, parameters: *mut graph::Parameters) => [made] graph::instantiate_with_parameters(graph, parameters);
        11010 cuGraphUpload(graph: u64, stream: u64) => graph::upload(graph, stream);
        11010 cuGraphUpload_ptsz(graph: u64, stream: u64) => graph::upload(graph, stream::own(stream));
        10000 cuGraphLaunch(graph: u64, stream: u64) => graph::launch(graph, Stream(stream));
        10000 cuGraphLaunch_ptsz(graph: u64, stream: u64) => graph::launch(graph, Stream::per_thread(stream));
        10000 cuGraphExecDestroy(graph: u64) => graph::destroy(graph);
        11040 cuDeviceGraphMemTrim(device: c_int) => graph::trim;

        4000 cuLaunchKernel(f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void, e: *mut *mut c_void) => [jump] through(Some(Stream(stream)), Work::Kernel);
        7000 cuLaunchKernel_ptsz(f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void, e: *mut *mut c_void) => [jump] through(Some(Stream::per_thread(stream)), Work::Kernel);
        11060 cuLaunchKernelEx(config: *const launch::LaunchConfig, f: u64, p: *mut *mut c_void, e: *mut *mut c_void) => [jump] through(launch::stream_of(config).map(Stream), Work::Kernel);
        11060 cuLaunchKernelEx_ptsz(config: *const launch::LaunchConfig, f: u64, p: *mut *mut c_void, e: *mut *mut c_void) => [jump] through(launch::stream_of(config).map(Stream::per_thread), Work::Kernel);
        9000 cuLaunchCooperativeKernel(f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void) => [jump] through(Some(Stream(stream)), Work::Kernel);
        9000 cuLaunchCooperativeKernel_ptsz(f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void) => [jump] through(Some(Stream::per_thread(stream)), Work::Kernel);
        9000 cuLaunchCooperativeKernelMultiDevice(list: *mut c_void, count: u32, flags: u32) => [jump] through(None, Work::Kernel);
        2000 cuLaunch(f: u64) => [jump] through(Some(Stream(0)), Work::Kernel);
        2000 cuLaunchGrid(f: u64, width: c_int, height: c_int) => [jump] through(Some(Stream(0)), Work::Kernel);
        2000 cuLaunchGridAsync(f: u64, width: c_int, height: c_int, stream: u64) => [jump] through(Some(Stream(stream)), Work::Kernel);

        4000 cuCtxSetCurrent(context: u64) => [transfer] presence::pass();
        4000 cuCtxGetCurrent(context: *mut u64) => [transfer] presence::pass();
        2000 cuEventRecord(event: u64, stream: u64) => [transfer] presence::pass();
        7000 cuEventRecord_ptsz(event: u64, stream: u64) => [transfer] presence::pass();
        10000 cuStreamIsCapturing(stream: u64, status: *mut c_int) => [transfer] presence::pass();
        10000 cuStreamIsCapturing_ptsz(stream: u64, status: *mut c_int) => [transfer] presence::pass();
        2000 cuMemcpyHtoD(to: u32, from: *const c_void, bytes: u32) => [transfer] presence::pass();
        3020 cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) => [transfer] presence::pass();
        7000 cuMemcpyHtoD_v2_ptds(to: u64, from: *const c_void, bytes: usize) => [transfer] presence::pass();
        2000 cuMemcpyDtoH(to: *mut c_void, from: u32, bytes: u32) => [transfer] presence::pass();
        3020 cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) => [transfer] presence::pass();
        7000 cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, bytes: usize) => [transfer] presence::pass();

        4000 cuMemcpy(to: u64, from: u64, bytes: usize) => [transfer] transfer::at_once(Stream(0), || transfer::of(transfer::between(from, to), bytes));
        7000 cuMemcpy_ptds(to: u64, from: u64, bytes: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::of(transfer::between(from, to), bytes));
        4000 cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyPeer_ptds(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::of(Route::Device, bytes));
        2000 cuMemcpyDtoD(to: u32, from: u32, bytes: u32) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        3020 cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::of(Route::Device, bytes));
        2000 cuMemcpyDtoA(to: u64, offset: u32, from: u32, bytes: u32) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        3020 cuMemcpyDtoA_v2(to: u64, offset: usize, from: u64, bytes: usize) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyDtoA_v2_ptds(to: u64, offset: usize, from: u64, bytes: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::of(Route::Device, bytes));
        2000 cuMemcpyAtoD(to: u32, from: u64, offset: u32, bytes: u32) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        3020 cuMemcpyAtoD_v2(to: u64, from: u64, offset: usize, bytes: usize) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyAtoD_v2_ptds(to: u64, from: u64, offset: usize, bytes: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::of(Route::Device, bytes));
        2000 cuMemcpyAtoA(to: u64, to_offset: u32, from: u64, from_offset: u32, bytes: u32) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        3020 cuMemcpyAtoA_v2(to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize) => [transfer] transfer::at_once(Stream(0), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyAtoA_v2_ptds(to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::of(Route::Device, bytes));
        2000 cuMemcpy2D(copy: *const transfer::Copy2d<u32>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        3020 cuMemcpy2D_v2(copy: *const transfer::Copy2d<usize>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        7000 cuMemcpy2D_v2_ptds(copy: *const transfer::Copy2d<usize>) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::shaped(copy));
        2000 cuMemcpy2DUnaligned(copy: *const transfer::Copy2d<u32>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        3020 cuMemcpy2DUnaligned_v2(copy: *const transfer::Copy2d<usize>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        7000 cuMemcpy2DUnaligned_v2_ptds(copy: *const transfer::Copy2d<usize>) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::shaped(copy));
        2000 cuMemcpy3D(copy: *const transfer::Copy3d<u32>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        3020 cuMemcpy3D_v2(copy: *const transfer::Copy3d<usize>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        7000 cuMemcpy3D_v2_ptds(copy: *const transfer::Copy3d<usize>) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::shaped(copy));
        4000 cuMemcpy3DPeer(copy: *const transfer::Copy3d<usize>) => [transfer] transfer::at_once(Stream(0), || transfer::shaped(copy));
        7000 cuMemcpy3DPeer_ptds(copy: *const transfer::Copy3d<usize>) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::shaped(copy));
        2000 cuMemsetD8(to: u32, value: u8, count: u32) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u8>(count, 1u32));
        3020 cuMemsetD8_v2(to: u64, value: u8, count: usize) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u8>(count, 1u32));
        7000 cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::rows::<u8>(count, 1u32));
        2000 cuMemsetD16(to: u32, value: u16, count: u32) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u16>(count, 1u32));
        3020 cuMemsetD16_v2(to: u64, value: u16, count: usize) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u16>(count, 1u32));
        7000 cuMemsetD16_v2_ptds(to: u64, value: u16, count: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::rows::<u16>(count, 1u32));
        2000 cuMemsetD32(to: u32, value: u32, count: u32) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u32>(count, 1u32));
        3020 cuMemsetD32_v2(to: u64, value: u32, count: usize) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u32>(count, 1u32));
        7000 cuMemsetD32_v2_ptds(to: u64, value: u32, count: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::rows::<u32>(count, 1u32));
        2000 cuMemsetD2D8(to: u32, pitch: u32, value: u8, width: u32, height: u32) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u8>(width, height));
        3020 cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u8>(width, height));
        7000 cuMemsetD2D8_v2_ptds(to: u64, pitch: usize, value: u8, width: usize, height: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::rows::<u8>(width, height));
        2000 cuMemsetD2D16(to: u32, pitch: u32, value: u16, width: u32, height: u32) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u16>(width, height));
        3020 cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u16>(width, height));
        7000 cuMemsetD2D16_v2_ptds(to: u64, pitch: usize, value: u16, width: usize, height: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::rows::<u16>(width, height));
        2000 cuMemsetD2D32(to: u32, pitch: u32, value: u32, width: u32, height: u32) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u32>(width, height));
        3020 cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) => [transfer] transfer::at_once(Stream(0), || transfer::rows::<u32>(width, height));
        7000 cuMemsetD2D32_v2_ptds(to: u64, pitch: usize, value: u32, width: usize, height: usize) => [transfer] transfer::at_once(Stream::per_thread(0), || transfer::rows::<u32>(width, height));
        4000 cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(transfer::between(from, to), bytes));
        7000 cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(transfer::between(from, to), bytes));
        4000 cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyPeerAsync_ptsz(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(Route::Device, bytes));
        2000 cuMemcpyHtoDAsync(to: u32, from: *const c_void, bytes: u32, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Upload, bytes));
        3020 cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Upload, bytes));
        7000 cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: *const c_void, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(Route::Upload, bytes));
        2000 cuMemcpyDtoHAsync(to: *mut c_void, from: u32, bytes: u32, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Download, bytes));
        3020 cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Download, bytes));
        7000 cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(Route::Download, bytes));
        3000 cuMemcpyDtoDAsync(to: u32, from: u32, bytes: u32, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Device, bytes));
        3020 cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Device, bytes));
        7000 cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(Route::Device, bytes));
        2000 cuMemcpyHtoAAsync(to: u64, offset: u32, from: *const c_void, bytes: u32, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Upload, bytes));
        3020 cuMemcpyHtoAAsync_v2(to: u64, offset: usize, from: *const c_void, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Upload, bytes));
        7000 cuMemcpyHtoAAsync_v2_ptsz(to: u64, offset: usize, from: *const c_void, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(Route::Upload, bytes));
        2000 cuMemcpyAtoHAsync(to: *mut c_void, from: u64, offset: u32, bytes: u32, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Download, bytes));
        3020 cuMemcpyAtoHAsync_v2(to: *mut c_void, from: u64, offset: usize, bytes: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(Route::Download, bytes));
        7000 cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: u64, offset: usize, bytes: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(Route::Download, bytes));
        2000 cuMemcpy2DAsync(copy: *const transfer::Copy2d<u32>, stream: u64) => [transfer] transferred(Stream(stream), || transfer::shaped(copy));
        3020 cuMemcpy2DAsync_v2(copy: *const transfer::Copy2d<usize>, stream: u64) => [transfer] transferred(Stream(stream), || transfer::shaped(copy));
        7000 cuMemcpy2DAsync_v2_ptsz(copy: *const transfer::Copy2d<usize>, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::shaped(copy));
        2000 cuMemcpy3DAsync(copy: *const transfer::Copy3d<u32>, stream: u64) => [transfer] transferred(Stream(stream), || transfer::shaped(copy));
        3020 cuMemcpy3DAsync_v2(copy: *const transfer::Copy3d<usize>, stream: u64) => [transfer] transferred(Stream(stream), || transfer::shaped(copy));
        7000 cuMemcpy3DAsync_v2_ptsz(copy: *const transfer::Copy3d<usize>, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::shaped(copy));
        4000 cuMemcpy3DPeerAsync(copy: *const transfer::Copy3d<usize>, stream: u64) => [transfer] transferred(Stream(stream), || transfer::shaped(copy));
        7000 cuMemcpy3DPeerAsync_ptsz(copy: *const transfer::Copy3d<usize>, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::shaped(copy));
        3020 cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::rows::<u8>(count, 1u32));
        7000 cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::rows::<u8>(count, 1u32));
        3020 cuMemsetD16Async(to: u64, value: u16, count: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::rows::<u16>(count, 1u32));
        7000 cuMemsetD16Async_ptsz(to: u64, value: u16, count: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::rows::<u16>(count, 1u32));
        3020 cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::rows::<u32>(count, 1u32));
        7000 cuMemsetD32Async_ptsz(to: u64, value: u32, count: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::rows::<u32>(count, 1u32));
        3020 cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::rows::<u8>(width, height));
        7000 cuMemsetD2D8Async_ptsz(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::rows::<u8>(width, height));
        3020 cuMemsetD2D16Async(to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::rows::<u16>(width, height));
        7000 cuMemsetD2D16Async_ptsz(to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::rows::<u16>(width, height));
        3020 cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::rows::<u32>(width, height));
        7000 cuMemsetD2D32Async_ptsz(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::rows::<u32>(width, height));
        12080 cuMemcpyBatchAsync(to: *const u64, from: *const u64, sizes: *const usize, count: usize, how: *const c_void, which: *const usize, ways: usize, failed: *mut usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::sum(to, from, sizes, count));
        12080 cuMemcpyBatchAsync_ptsz(to: *const u64, from: *const u64, sizes: *const usize, count: usize, how: *const c_void, which: *const usize, ways: usize, failed: *mut usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::sum(to, from, sizes, count));
        13000 cuMemcpyBatchAsync_v2(to: *const u64, from: *const u64, sizes: *const usize, count: usize, how: *const c_void, which: *const usize, ways: usize, stream: u64) => [transfer] transferred(Stream(stream), || transfer::sum(to, from, sizes, count));
        13000 cuMemcpyBatchAsync_v2_ptsz(to: *const u64, from: *const u64, sizes: *const usize, count: usize, how: *const c_void, which: *const usize, ways: usize, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::sum(to, from, sizes, count));
        12080 cuMemcpy3DBatchAsync(count: usize, list: *const transfer::BatchCopy, failed: *mut usize, flags: u64, stream: u64) => [transfer] transferred(Stream(stream), || transfer::parts(count, list));
        12080 cuMemcpy3DBatchAsync_ptsz(count: usize, list: *const transfer::BatchCopy, failed: *mut usize, flags: u64, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::parts(count, list));
        13000 cuMemcpy3DBatchAsync_v2(count: usize, list: *const transfer::BatchCopy, flags: u64, stream: u64) => [transfer] transferred(Stream(stream), || transfer::parts(count, list));
        13000 cuMemcpy3DBatchAsync_v2_ptsz(count: usize, list: *const transfer::BatchCopy, flags: u64, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::parts(count, list));
        13020 cuMemcpyWithAttributesAsync(to: u64, from: u64, bytes: usize, how: *const c_void, stream: u64) => [transfer] transferred(Stream(stream), || transfer::of(transfer::between(from, to), bytes));
        13020 cuMemcpyWithAttributesAsync_ptsz(to: u64, from: u64, bytes: usize, how: *const c_void, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::of(transfer::between(from, to), bytes));
        13020 cuMemcpy3DWithAttributesAsync(part: *const transfer::BatchCopy, flags: u64, stream: u64) => [transfer] transferred(Stream(stream), || transfer::parts(1, part));
        13020 cuMemcpy3DWithAttributesAsync_ptsz(part: *const transfer::BatchCopy, flags: u64, stream: u64) => [transfer] transferred(Stream::per_thread(stream), || transfer::parts(1, part));

        10000 cuStreamBeginCapture(stream: u64) => capture::begin(stream);
        10000 cuStreamBeginCapture_ptsz(stream: u64) => capture::begin(stream);
        10010 cuStreamBeginCapture_v2(stream: u64, mode: c_int) => capture::begin(stream);
        10010 cuStreamBeginCapture_v2_ptsz(stream: u64, mode: c_int) => capture::begin(stream);
        12030 cuStreamBeginCaptureToGraph(stream: u64, graph: u64, dependencies: *const u64, edges: *const c_void, count: usize, mode: c_int) => capture::begin(stream);
        12030 cuStreamBeginCaptureToGraph_ptsz(stream: u64, graph: u64, dependencies: *const u64, edges: *const c_void, count: usize, mode: c_int) => capture::begin(stream);
        2000 cuStreamDestroy(stream: u64) => capture::destroy_stream(stream);
        4000 cuStreamDestroy_v2(stream: u64) => capture::destroy_stream(stream);
        10000 cuStreamEndCapture(stream: u64, graph: *mut u64) => capture::end(stream);
        10000 cuStreamEndCapture_ptsz(stream: u64, graph: *mut u64) => capture::end(stream);

        2000 cuCtxSynchronize() => wait::wait(Awaited::Context, None);
        13000 cuCtxSynchronize_v2(context: u64) => wait::wait_for_context(context);
        2000 cuStreamSynchronize(stream: u64) => wait::wait(Awaited::Stream, Some(Stream(stream)));
        7000 cuStreamSynchronize_ptsz(stream: u64) => wait::wait(Awaited::Stream, Some(Stream::per_thread(stream)));
        2000 cuStreamQuery(stream: u64) => wait::ask(Awaited::Stream, Some(Stream(stream)));
        7000 cuStreamQuery_ptsz(stream: u64) => wait::ask(Awaited::Stream, Some(Stream::per_thread(stream)));
        2000 cuEventSynchronize(event: u64) => wait::wait(Awaited::Event, None);
        2000 cuEventQuery(event: u64) => wait::ask(Awaited::Event, None);

        10020 cuMemCreate(handle: *mut u64, bytes: usize, properties: *const abi::Properties, flags: u64) => [made] physical::create(bytes, properties, flags);
        10020 cuMemRelease(handle: u64) => physical::release(handle);
        11000 cuMemRetainAllocationHandle(handle: *mut u64, address: u64) => physical::retain(handle, address);
        10020 cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) => physical::map(address, bytes, handle);
        10020 cuMemUnmap(address: u64, bytes: usize) => physical::unmap(address, bytes);

        10020 cuMemExportToShareableHandle(out: *mut c_void, handle: u64, kind: c_int, flags: u64) => shared::export_physical(out, handle, kind);
        10020 cuMemImportFromShareableHandle(handle: *mut u64, shared: *mut c_void, kind: c_int) => [made] shared::import_physical(shared, kind);
        4010 cuIpcGetMemHandle(handle: *mut shared::IpcHandle, pointer: u64) => shared::export_handle(handle, pointer);
        4010 cuIpcOpenMemHandle(pointer: *mut u64, handle: shared::ByValue, flags: u32) => [made] shared::open_handle(handle);
        11000 cuIpcOpenMemHandle_v2(pointer: *mut u64, handle: shared::ByValue, flags: u32) => [made] shared::open_handle(handle);
        4010 cuIpcCloseMemHandle(pointer: u64) => shared::close_handle(pointer);
        10000 cuImportExternalMemory(memory: *mut u64, import: *const external::Import) => [made] external::import(import);
        10000 cuExternalMemoryGetMappedBuffer(pointer: *mut u64, memory: u64, view: *const external::View) => [made] external::view(memory, view);
        10000 cuExternalMemoryGetMappedMipmappedArray(array: *mut u64, memory: u64, view: *const c_void) => [made] external::array(memory);
        10000 cuDestroyExternalMemory(memory: u64) => external::destroy(memory);
        12010 cuMulticastCreate(object: *mut u64, properties: *const c_void) => multicast::create(object);
        12010 cuMulticastBindMem(object: u64, offset: usize, memory: u64, from: usize, bytes: usize, flags: u64) => multicast::bind(object, offset as u64, Bound::Handle(memory));
        12010 cuMulticastBindAddr(object: u64, offset: usize, address: u64, bytes: usize, flags: u64) => multicast::bind(object, offset as u64, Bound::Address(address));
        13010 cuMulticastBindMem_v2(object: u64, device: c_int, offset: usize, memory: u64, from: usize, bytes: usize, flags: u64) => multicast::bind(object, offset as u64, Bound::Handle(memory));
        13010 cuMulticastBindAddr_v2(object: u64, device: c_int, offset: usize, address: u64, bytes: usize, flags: u64) => multicast::bind(object, offset as u64, Bound::Address(address));
        12010 cuMulticastUnbind(object: u64, device: c_int, offset: usize, bytes: usize) => multicast::unbind(object, offset as u64, device);
        13030 cuLogicalEndpointBindMem(id: u32, device: c_int, offset: u64, memory: u64, from: u64, bytes: u64, flags: u64) => multicast::bind(multicast::endpoint(id), offset, Bound::Handle(memory));
        13030 cuLogicalEndpointBindAddr(id: u32, device: c_int, offset: u64, address: u64, bytes: u64, flags: u64) => multicast::bind(multicast::endpoint(id), offset, Bound::Address(address));
        13030 cuLogicalEndpointUnbind(id: u32, device: c_int, offset: u64, bytes: u64) => multicast::unbind(multicast::endpoint(id), offset, device);
        13030 cuLogicalEndpointDestroy(id: u32) => multicast::destroy_endpoint(id);

        12080 cuCheckpointProcessRestore(pid: c_int, arguments: *mut checkpoint::RestoreArguments) => checkpoint::restore(arguments);

        11010 cuMemMapArrayAsync(list: *const array::MapInfo, count: u32, stream: u64) => array::map(list, count, stream);
        11010 cuMemMapArrayAsync_ptsz(list: *const array::MapInfo, count: u32, stream: u64) => array::map(list, count, stream::own(stream));
        2000 cuArrayCreate(array: *mut u64, shape: *const array::Array2d<u32>) => [made] array::create(shape);
        3020 cuArrayCreate_v2(array: *mut u64, shape: *const array::Array2d<usize>) => [made] array::create(shape);
        2000 cuArray3DCreate(array: *mut u64, shape: *const array::Array3d<u32>) => [made] array::create(shape);
        3020 cuArray3DCreate_v2(array: *mut u64, shape: *const array::Array3d<usize>) => [made] array::create(shape);
        2000 cuArrayDestroy(array: u64) => array::destroy(array);
        5000 cuMipmappedArrayCreate(array: *mut u64, shape: *const array::Array3d<usize>, levels: u32) => [made] array::create_mipmapped(shape, levels);
        5000 cuMipmappedArrayDestroy(array: u64) => array::destroy(array);
    }
    Nvml in "libnvml" {
        1 nvmlInit() => nvml::init();
        2 nvmlInit_v2() => nvml::init();
        3 nvmlInitWithFlags(flags: u32) => nvml::init();
        1 nvmlDeviceGetCount(count: *mut u32) => [made] nvml::count();
        2 nvmlDeviceGetCount_v2(count: *mut u32) => [made] nvml::count();
        1 nvmlDeviceGetHandleByIndex(index: u32, device: *mut u64) => nvml::by_index;
        2 nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut u64) => nvml::by_index;
        1 nvmlDeviceGetHandleByUUID(name: *const c_char, device: *mut u64) => nvml::by_name;
        1 nvmlDeviceGetHandleBySerial(name: *const c_char, device: *mut u64) => nvml::by_name;
        1 nvmlDeviceGetHandleByPciBusId(name: *const c_char, device: *mut u64) => nvml::by_name;
        2 nvmlDeviceGetHandleByPciBusId_v2(name: *const c_char, device: *mut u64) => nvml::by_name;
        1 nvmlDeviceGetIndex(device: u64, index: *mut u32) => nvml::index(device, index);
        1 nvmlDeviceGetMemoryInfo(device: u64, memory: *mut nvml::NvmlMemory) => nvml::memory(device, memory);
        2 nvmlDeviceGetMemoryInfo_v2(device: u64, memory: *mut nvml::MemoryV2) => nvml::memory_v2(device, memory);
        1 nvmlDeviceGetComputeRunningProcesses(device: u64, count: *mut u32, processes: *mut process::ProcessInfo) => process::compute_processes;
        2 nvmlDeviceGetComputeRunningProcesses_v2(device: u64, count: *mut u32, processes: *mut process::ProcessV2) => process::compute_processes;
        3 nvmlDeviceGetComputeRunningProcesses_v3(device: u64, count: *mut u32, processes: *mut process::ProcessV2) => process::compute_processes;
        1 nvmlDeviceGetGraphicsRunningProcesses(device: u64, count: *mut u32, processes: *mut process::ProcessInfo) => process::other_processes;
        2 nvmlDeviceGetGraphicsRunningProcesses_v2(device: u64, count: *mut u32, processes: *mut process::ProcessV2) => process::other_processes;
        3 nvmlDeviceGetGraphicsRunningProcesses_v3(device: u64, count: *mut u32, processes: *mut process::ProcessV2) => process::other_processes;
        1 nvmlDeviceGetMPSComputeRunningProcesses(device: u64, count: *mut u32, processes: *mut process::ProcessInfo) => process::other_processes;
        2 nvmlDeviceGetMPSComputeRunningProcesses_v2(device: u64, count: *mut u32, processes: *mut process::ProcessV2) => process::other_processes;
        3 nvmlDeviceGetMPSComputeRunningProcesses_v3(device: u64, count: *mut u32, processes: *mut process::ProcessV2) => process::other_processes;
        1 nvmlDeviceGetUtilizationRates(device: u64, rates: *mut nvml::Rates) => nvml::utilization(device, rates);
        1 nvmlDeviceGetRunningProcessDetailList(device: u64, list: *mut process::DetailList) => process::detail_list;
        1 nvmlDeviceGetProcessUtilization(device: u64, samples: *mut usage::Sample, count: *mut u32, since: u64) => usage::process_utilization;
        1 nvmlDeviceGetProcessesUtilizationInfo(device: u64, samples: *mut usage::Samples) => usage::processes_utilization;
        1 nvmlDeviceGetAccountingPids(device: u64, count: *mut u32, pids: *mut u32) => usage::accounting_pids;
        1 nvmlDeviceGetAccountingStats(device: u64, pid: u32, statistics: *mut c_void) => usage::accounting_stats;
        2 nvmlDeviceGetAccountingStats_v2(device: u64, statistics: *mut u32) => usage::accounting_stats_v2;
        1 nvmlDeviceGetEncoderSessions(device: u64, count: *mut u32, sessions: *mut usage::EncoderSession) => usage::sessions;
        1 nvmlDeviceGetFBCSessions(device: u64, count: *mut u32, sessions: *mut usage::CaptureSession) => usage::sessions;
        1 nvmlSystemGetProcessName(pid: u32, name: *mut c_char, length: u32) => usage::process_name(pid);
        1 nvmlDeviceGetTopologyNearestGpus(device: u64, level: u32, count: *mut u32, devices: *mut u64) => topology::nearest;
        1 nvmlSystemGetTopologyGpuSet(processor: u32, count: *mut u32, devices: *mut u64) => topology::of_processor;
    }
}

#[cfg(test)]
mod agreement_tests;

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    #[test]
    fn every_hook_is_found_by_its_name_and_no_other() {
        for hook in Hook::all() {
            assert_eq!(Hook::named(hook.symbol().name()), Some(hook));
        }
        assert_eq!(Hook::named(c"cuFuncGetAttribute"), None);
    }

    /// The newest form that a request can select.
    pub(super) fn newest(name: &CStr, version: c_int, flags: u64) -> Option<Hook> {
        let forms = Hook::forms(name, version, flags);
        forms.max_by_key(|(hook, since)| (*since, hook.is_per_thread())).map(|(hook, _)| hook)
    }

    #[test]
    fn request_by_version_means_the_variant_that_drivers_give() {
        assert_eq!(newest(c"cuMemAlloc", 2000, 0), Some(Hook::cuMemAlloc));
        assert_eq!(newest(c"cuMemAlloc", 12000, 2), Some(Hook::cuMemAlloc_v2));
        assert_eq!(newest(c"cuMemAllocAsync", 11020, 2), Some(Hook::cuMemAllocAsync_ptsz));
        assert_eq!(newest(c"cuMemAllocAsync", 11020, 0), Some(Hook::cuMemAllocAsync));
        assert_eq!(newest(c"cuMemAllocAsync", 11010, 0), None);
        assert_eq!(newest(c"cuCtxCreate", 11040, 0), Some(Hook::cuCtxCreate_v3));
        assert_eq!(newest(c"cuMemAlloc_v2", 12000, 0), None);
    }

    #[test]
    fn unknown_forms_are_those_of_governed_functions_without_a_hook() {
        for name in [
            c"cuMemAlloc_v3",
            c"cuMemCreate_v2",
            c"cuMemAllocAsync_v12_ptsz",
            c"cuMemAlloc_ptds",
            c"nvmlDeviceGetMemoryInfo_v3",
            c"nvmlDeviceGetHandleByUUIDV",
        ] {
            assert!(Hook::is_unknown_form(name), "{name:?}");
        }
        for name in [
            c"cuMemAlloc",
            c"cuMemAlloc_v2",
            c"cuNews_v9",
            c"cuMemAlloc_view",
            c"nvmlDeviceGetC2cModeInfoV",
            c"_v2",
            c"cu",
            c"",
        ] {
            assert!(!Hook::is_unknown_form(name), "{name:?}");
        }
        for row in tranche_symbols::cuda().chain(tranche_symbols::nvml()) {
            let name = std::ffi::CString::new(row.name).expect("names hold no zero byte");
            assert!(!Hook::is_unknown_form(&name), "{name:?} is in the table");
        }
    }
}
