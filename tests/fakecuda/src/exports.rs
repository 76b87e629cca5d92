//! Every exported symbol, once: its C arguments and the safe function behind it. The same table answers
//! `cuGetProcAddress`.
//!
//! `unlocked` entries do not wait while the process is locked. `streamed` entries have two symbols that differ only in
//! what stream 0 means.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_void};

use simgpu::LookUp;

use crate::launch::{Config, KernelShape, Parameters};
use crate::lookup::DefaultStream;
use crate::memory::{alloc, external, host, ipc, managed, multicast, pointer, pool, virt};
use crate::wall::{Host, HostFunction, In, Out, SharedBySize, StreamCallback, Text, guarded, unlocked};
use crate::{
    array, capture, checkpoint, context, device, event, fill, graph, green, launch, link, module, node,
    stream, symbols, transfer, value,
};

/// The instruction that continues elsewhere with the arguments where they are.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}

macro_rules! exports {
    (
        unlocked { $($free:ident($($taken:ident: $sort:ty),* $(,)?) = $acts:expr;)* }
        plain { $($symbol:ident($($name:ident: $type:ty),* $(,)?) = $body:expr;)* }
        streamed($default:ident) {
            $($legacy:ident / $per_thread:ident($($given:ident: $kind:ty),* $(,)?) = $does:expr;)*
        }
    ) => {
        $(
            // SAFETY: the names are those of the CUDA driver API, which this library defines in the place of the
            // driver's.
            #[unsafe(no_mangle)]
            extern "C" fn $free($($taken: $sort),*) -> i32 {
                unlocked(|| $acts)
            }
        )*
        $(
            // SAFETY: the names are those of the CUDA driver API, which this library defines in the place of the
            // driver's.
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($name: $type),*) -> i32 {
                guarded(|| $body)
            }
        )*
        $(
            // SAFETY: the name is one of the CUDA driver API, which this library defines in the place of the driver's.
            #[unsafe(no_mangle)]
            extern "C" fn $legacy($($given: $kind),*) -> i32 {
                let $default = DefaultStream::Legacy;
                guarded(|| $does)
            }
            // SAFETY: the name is one of the CUDA driver API, which this library defines in the place of the driver's.
            #[unsafe(no_mangle)]
            extern "C" fn $per_thread($($given: $kind),*) -> i32 {
                let $default = DefaultStream::PerThread;
                guarded(|| $does)
            }
        )*

        /// The same functions at addresses of their own, as a driver's look-up may answer.
        mod foreign {
            $(
                #[unsafe(naked)]
                pub(super) extern "C" fn $free() {
                    core::arch::naked_asm!(jump!(), sym super::$free)
                }
            )*
            $(
                #[unsafe(naked)]
                pub(super) extern "C" fn $symbol() {
                    core::arch::naked_asm!(jump!(), sym super::$symbol)
                }
            )*
            $(
                #[unsafe(naked)]
                pub(super) extern "C" fn $legacy() {
                    core::arch::naked_asm!(jump!(), sym super::$legacy)
                }
                #[unsafe(naked)]
                pub(super) extern "C" fn $per_thread() {
                    core::arch::naked_asm!(jump!(), sym super::$per_thread)
                }
            )*
        }

        /// Every symbol with its address, and its foreign one.
        static SYMBOLS: &[(&str, fn() -> Host, fn() -> Host)] = &[
            $((
                stringify!($free),
                || Host($free as *mut c_void),
                || Host(foreign::$free as *mut c_void),
            ),)*
            $((
                stringify!($symbol),
                || Host($symbol as *mut c_void),
                || Host(foreign::$symbol as *mut c_void),
            ),)*
            $(
                (
                    stringify!($legacy),
                    || Host($legacy as *mut c_void),
                    || Host(foreign::$legacy as *mut c_void),
                ),
                (
                    stringify!($per_thread),
                    || Host($per_thread as *mut c_void),
                    || Host(foreign::$per_thread as *mut c_void),
                ),
            )*
        ];
    };
}

/// The address of a symbol of this library, as a look-up answers it.
pub(crate) fn address(symbol: &str, look_up: LookUp) -> Option<Host> {
    SYMBOLS.iter().find(|(name, _, _)| *name == symbol).map(|(_, exported, foreign)| match look_up {
        LookUp::Exported => exported(),
        LookUp::Foreign => foreign(),
    })
}

/// All symbols of this library.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SYMBOLS.iter().map(|(name, _, _)| *name)
}

exports! {
    unlocked {
        // The driver and its devices: nothing that a GPU is needed for.
        cuDriverGetVersion(out: Out<i32>) = device::version(out);
        cuGetErrorName(status: i32, out: Out<Host>) = device::error_name(status, out);
        cuGetErrorString(status: i32, out: Out<Host>) = device::error_text(status, out);
        cuGetExportTable(out: Out<u64>, id: In<[u8; 16]>) = device::export_table(out, id);
        cuGetProcAddress(name: Text, out: Out<Host>, version: i32, flags: u64) =
            symbols::get(address, name, out, version, flags);
        cuGetProcAddress_v2(name: Text, out: Out<Host>, version: i32, flags: u64, status: Out<i32>) =
            symbols::get_v2(address, name, out, version, flags, status);
        cuDeviceGetCount(out: Out<i32>) = device::count(out);
        cuDeviceGet(out: Out<i32>, ordinal: i32) = device::get(out, ordinal);
        cuDeviceGetName(out: Out<c_char>, room: i32, device: i32) = device::name(out, room, device);
        cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) = device::uuid(out, device);
        cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) = device::uuid(out, device);
        cuDeviceGetPCIBusId(out: Out<c_char>, room: i32, device: i32) = device::bus_id(out, room, device);
        cuDeviceTotalMem_v2(out: Out<usize>, device: i32) = device::total_memory(out, device);
        cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) =
            device::capability(major, minor, device);
        cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) = device::attribute(out, attribute, device);

        // Processes, this one or another: locked, checkpointed, restored.
        cuCheckpointProcessGetState(pid: i32, out: Out<i32>) = checkpoint::calls::state(pid, out);
        cuCheckpointProcessGetRestoreThreadId(pid: i32, out: Out<i32>) = checkpoint::calls::thread(pid, out);
        cuCheckpointProcessLock(pid: i32, arguments: In<checkpoint::calls::LockArguments>) =
            checkpoint::calls::lock(pid, arguments);
        cuCheckpointProcessCheckpoint(pid: i32, arguments: In<[u64; 8]>) =
            checkpoint::calls::checkpoint(pid, arguments);
        cuCheckpointProcessRestore(pid: i32, arguments: In<checkpoint::calls::RestoreArguments>) =
            checkpoint::calls::restore(pid, arguments);
        cuCheckpointProcessUnlock(pid: i32, arguments: In<[u64; 8]>) = checkpoint::calls::unlock(pid, arguments);
    }

    plain {
        // The driver and its devices.
        cuInit(flags: u32) = device::init(flags);
        cuDeviceGetLuid(out: Out<[u8; 8]>, mask: Out<u32>, device: i32) = device::luid(out, mask, device);
        cuDeviceGetByPCIBusId(out: Out<i32>, name: Text) = device::by_bus_id(out, name);
        cuDeviceTotalMem(out: Out<u32>, device: i32) = device::total_memory_low(out, device);
        cuDeviceGetProperties(out: Out<device::Properties>, device: i32) = device::properties(out, device);
        cuDeviceCanAccessPeer(out: Out<i32>, one: i32, other: i32) = device::can_access_peer(out, one, other);
        cuDeviceGetP2PAttribute(out: Out<i32>, attribute: i32, one: i32, other: i32) =
            device::peer_attribute(out, attribute, one, other);

        // Contexts.
        cuCtxCreate(out: Out<u64>, flags: u32, device: i32) = context::create(out, flags, device);
        cuCtxCreate_v2(out: Out<u64>, flags: u32, device: i32) = context::create(out, flags, device);
        cuCtxCreate_v3(out: Out<u64>, affinities: In<u64>, count: i32, flags: u32, device: i32) =
            context::create_v3(out, affinities, count, flags, device);
        cuCtxCreate_v4(out: Out<u64>, parameters: In<context::Creation>, flags: u32, device: i32) =
            context::create_v4(out, parameters, flags, device);
        cuCtxDestroy(context: u64) = context::destroy(context);
        cuCtxDestroy_v2(context: u64) = context::destroy(context);
        cuCtxPushCurrent(context: u64) = context::push(context);
        cuCtxPushCurrent_v2(context: u64) = context::push(context);
        cuCtxPopCurrent(out: Out<u64>) = context::pop(out);
        cuCtxPopCurrent_v2(out: Out<u64>) = context::pop(out);
        cuCtxSetCurrent(context: u64) = context::set_current(context);
        cuCtxGetCurrent(out: Out<u64>) = context::get_current(out);
        cuCtxGetDevice(out: Out<i32>) = context::get_device(out);
        cuCtxGetFlags(out: Out<u32>) = context::get_flags(out);
        cuCtxGetId(context: u64, out: Out<u64>) = context::get_id(context, out);
        cuCtxGetApiVersion(context: u64, out: Out<u32>) = context::get_api_version(context, out);
        cuCtxGetLimit(out: Out<usize>, limit: i32) = context::get_limit(out, limit);
        cuCtxSetLimit(limit: i32, value: usize) = context::set_limit(limit, value);
        cuCtxGetCacheConfig(out: Out<i32>) = context::cache_config(out);
        cuCtxSetCacheConfig(config: i32) = context::set_cache_config(config);
        cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) = context::priority_range(least, greatest);
        cuCtxSynchronize() = context::synchronize();
        cuCtxSynchronize_v2(context: u64) = context::synchronize_other(context);
        cuCtxGetDevice_v2(out: Out<i32>, context: u64) = context::device_of(out, context);
        cuCtxEnablePeerAccess(context: u64, flags: u32) = device::enable_peer(context, flags);
        cuCtxDisablePeerAccess(context: u64) = device::disable_peer(context);
        cuDevicePrimaryCtxRetain(out: Out<u64>, device: i32) = context::primary_retain(out, device);
        cuDevicePrimaryCtxRelease(device: i32) = context::primary_release(device);
        cuDevicePrimaryCtxRelease_v2(device: i32) = context::primary_release(device);
        cuDevicePrimaryCtxReset(device: i32) = context::primary_reset(device);
        cuDevicePrimaryCtxReset_v2(device: i32) = context::primary_reset(device);
        cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) =
            context::primary_state(device, flags, active);
        cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) = context::primary_set_flags(device, flags);
        cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) = context::primary_set_flags(device, flags);

        cuDeviceGetDevResource(device: i32, out: Out<green::Resource>, kind: i32) = green::of_device(device, out, kind);
        cuCtxGetDevResource(context: u64, out: Out<green::Resource>, kind: i32) =
            green::of_context(context, out, kind);
        cuGreenCtxGetDevResource(green: u64, out: Out<green::Resource>, kind: i32) = green::of_green(green, out, kind);
        cuDevSmResourceSplitByCount(
            out: Out<green::Resource>, groups: Out<u32>, input: In<green::Resource>, left: Out<green::Resource>,
            flags: u32, least: u32,
        ) = green::split(out, groups, input, left, flags, least);
        cuDevResourceGenerateDesc(out: Out<u64>, list: In<green::Resource>, count: u32) =
            green::describe(out, list, count);
        cuGreenCtxCreate(out: Out<u64>, description: u64, device: i32, flags: u32) =
            green::create(out, description, device, flags);
        cuGreenCtxDestroy(green: u64) = green::destroy(green);
        cuCtxFromGreenCtx(out: Out<u64>, green: u64) = green::context_of(out, green);

        // Device memory.
        cuMemGetInfo(free: Out<u32>, total: Out<u32>) = alloc::info_low(free, total);
        cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) = alloc::info(free, total);
        cuMemAlloc(out: Out<u32>, size: u32) = alloc::alloc_low(out, size);
        cuMemAlloc_v2(out: Out<u64>, size: usize) = alloc::alloc(out, size);
        cuMemAllocPitch(out: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32) =
            alloc::alloc_pitch_low(out, pitch, width, height, element);
        cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) =
            alloc::alloc_pitch(out, pitch, width, height, element);
        cuMemAllocManaged(out: Out<u64>, size: usize, flags: u32) = alloc::alloc_managed(out, size, flags);
        cuMemFree(address: u32) = alloc::free_low(address);
        cuMemFree_v2(address: u64) = alloc::free(address);
        cuMemGetAddressRange(base: Out<u32>, size: Out<u32>, address: u32) =
            pointer::address_range_low(base, size, address);
        cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) =
            pointer::address_range(base, size, address);
        cuPointerGetAttribute(out: Host, attribute: i32, address: u64) = pointer::attribute(out, attribute, address);
        cuPointerGetAttributes(count: u32, wanted: In<i32>, out: In<Host>, address: u64) =
            pointer::attributes(count, wanted, out, address);

        cuMemAdvise(address: u64, size: usize, advice: i32, device: i32) =
            managed::advise(address, size, advice, device);
        cuMemAdvise_v2(address: u64, size: usize, advice: i32, location: managed::Location) =
            managed::advise_at(address, size, advice, location);

        // Host memory.
        cuMemAllocHost(out: Out<Host>, size: u32) = host::alloc_low(out, size);
        cuMemAllocHost_v2(out: Out<Host>, size: usize) = host::alloc(out, size);
        cuMemHostAlloc(out: Out<Host>, size: usize, flags: u32) = host::alloc_with_flags(out, size, flags);
        cuMemFreeHost(at: Host) = host::free(at);
        cuMemHostRegister(at: Host, size: usize, flags: u32) = host::register(at, size, flags);
        cuMemHostRegister_v2(at: Host, size: usize, flags: u32) = host::register(at, size, flags);
        cuMemHostUnregister(at: Host) = host::unregister(at);
        cuMemHostGetDevicePointer_v2(out: Out<u64>, at: Host, flags: u32) = host::device_pointer(out, at, flags);
        cuMemHostGetFlags(out: Out<u32>, at: Host) = host::flags(out, at);

        // Pools.
        cuDeviceGetDefaultMemPool(out: Out<u64>, device: i32) = pool::default_of(out, device);
        cuDeviceGetMemPool(out: Out<u64>, device: i32) = pool::current_of(out, device);
        cuDeviceSetMemPool(device: i32, pool: u64) = pool::set_current(device, pool);
        cuMemGetDefaultMemPool(out: Out<u64>, location: pool::AnyLocation, allocation: i32) =
            pool::default_at(out, location, allocation);
        cuMemGetMemPool(out: Out<u64>, location: pool::AnyLocation, allocation: i32) =
            pool::current_at(out, location, allocation);
        cuMemSetMemPool(location: pool::AnyLocation, allocation: i32, pool: u64) =
            pool::set_current_at(location, allocation, pool);
        cuMemPoolCreate(out: Out<u64>, properties: In<pool::PoolProperties>) = pool::create(out, properties);
        cuMemPoolDestroy(pool: u64) = pool::destroy(pool);
        cuMemPoolExportToShareableHandle(out: Host, pool: u64, kind: i32, flags: u64) =
            ipc::export_pool(out, pool, kind, flags);
        cuMemPoolImportFromShareableHandle(out: Out<u64>, shared: Host, kind: i32, flags: u64) =
            ipc::import_pool(out, shared, kind, flags);
        cuMemPoolExportPointer(out: Out<ipc::Handle>, address: u64) = ipc::export_pointer(out, address);
        cuMemPoolImportPointer(out: Out<u64>, pool: u64, shared: In<ipc::Handle>) =
            ipc::import_pointer(out, pool, shared);
        cuMemPoolTrimTo(pool: u64, keep: usize) = pool::trim_to(pool, keep);
        cuMemPoolGetAttribute(pool: u64, attribute: i32, out: Host) = pool::attribute(pool, attribute, out);
        cuMemPoolSetAttribute(pool: u64, attribute: i32, value: Host) = pool::set_attribute(pool, attribute, value);
        cuMemPoolSetAccess(pool: u64, list: In<virt::Access>, count: usize) = pool::set_access(pool, list, count);
        cuMemPoolGetAccess(out: Out<i32>, pool: u64, location: pool::AnyLocation) = pool::access(out, pool, location);
        cuDeviceGraphMemTrim(device: i32) = pool::graph_trim(device);
        cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: In<u64>) =
            pool::set_graph_attribute(device, attribute, value);
        cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, out: Out<u64>) =
            pool::graph_attribute(device, attribute, out);

        // Virtual memory.
        cuMemGetAllocationGranularity(out: Out<usize>, properties: In<virt::Properties>, option: i32) =
            virt::granularity(out, properties, option);
        cuMemAddressReserve(out: Out<u64>, size: usize, align: usize, at: u64, flags: u64) =
            virt::reserve(out, size, align, at, flags);
        cuMemAddressFree(address: u64, size: usize) = virt::unreserve(address, size);
        cuMemCreate(out: Out<u64>, size: usize, properties: In<virt::Properties>, flags: u64) =
            virt::create(out, size, properties, flags);
        cuMemRelease(handle: u64) = virt::release(handle);
        cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) =
            virt::map(address, size, offset, handle, flags);
        cuMemUnmap(address: u64, size: usize) = virt::unmap(address, size);
        cuMemSetAccess(address: u64, size: usize, list: In<virt::Access>, count: usize) =
            virt::set_access(address, size, list, count);
        cuMemRetainAllocationHandle(out: Out<u64>, address: Host) = virt::retain(out, address);
        cuMemGetAllocationPropertiesFromHandle(out: Out<virt::Properties>, handle: u64) =
            virt::properties(out, handle);
        cuMemExportToShareableHandle(out: Host, handle: u64, kind: i32, flags: u64) =
            virt::export(out, handle, kind, flags);
        cuMemImportFromShareableHandle(out: Out<u64>, shared: Host, kind: i32) = virt::import(out, shared, kind);

        cuMulticastGetGranularity(out: Out<usize>, properties: In<multicast::Properties>, option: i32) =
            multicast::granularity(out, properties, option);
        cuMulticastCreate(out: Out<u64>, properties: In<multicast::Properties>) = multicast::create(out, properties);
        cuMulticastAddDevice(object: u64, device: i32) = multicast::add_device(object, device);
        cuMulticastBindMem(object: u64, offset: usize, memory: u64, from: usize, size: usize, flags: u64) =
            multicast::bind(object, offset, memory, from, size, flags);
        cuMulticastBindAddr(object: u64, offset: usize, address: u64, size: usize, flags: u64) =
            multicast::bind_address(object, offset, address, size, flags);
        cuMulticastUnbind(object: u64, device: i32, offset: usize, size: usize) =
            multicast::unbind(object, device, offset, size);

        // Memory of other processes.
        cuIpcGetMemHandle(out: Out<ipc::Handle>, address: u64) = ipc::export(out, address);
        cuIpcOpenMemHandle(out: Out<u64>, handle: ipc::Handle, flags: u32) = ipc::open(out, handle, flags);
        cuIpcOpenMemHandle_v2(out: Out<u64>, handle: ipc::Handle, flags: u32) = ipc::open(out, handle, flags);
        cuIpcCloseMemHandle(address: u64) = ipc::close(address);
        cuIpcGetEventHandle(out: Out<ipc::Handle>, event: u64) = event::export(out, event);
        cuIpcOpenEventHandle(out: Out<u64>, handle: ipc::Handle) = event::open(out, handle);

        cuImportExternalMemory(out: Out<u64>, asked: In<external::Import>) = external::import(out, asked);
        cuExternalMemoryGetMappedBuffer(out: Out<u64>, external: u64, view: In<external::View>) =
            external::view(out, external, view);
        cuExternalMemoryGetMappedMipmappedArray(out: Out<u64>, external: u64, view: In<external::ArrayView>) =
            external::array(out, external, view);
        cuDestroyExternalMemory(external: u64) = external::destroy(external);

        // Arrays.
        cuArrayCreate_v2(out: Out<u64>, shape: In<array::FlatShape>) = array::create(out, shape);
        cuArray3DCreate_v2(out: Out<u64>, shape: In<array::Shape>) = array::create_3d(out, shape);
        cuArrayGetDescriptor_v2(out: Out<array::FlatShape>, array: u64) = array::describe(out, array);
        cuArray3DGetDescriptor_v2(out: Out<array::Shape>, array: u64) = array::describe_3d(out, array);
        cuArrayDestroy(array: u64) = array::destroy(array);
        cuMipmappedArrayCreate(out: Out<u64>, shape: In<array::Shape>, levels: u32) =
            array::create_mipmapped(out, shape, levels);
        cuMipmappedArrayGetLevel(out: Out<u64>, array: u64, level: u32) = array::level(out, array, level);
        cuMipmappedArrayDestroy(array: u64) = array::destroy_mipmapped(array);

        // The 32-bit forms of copies and fills.
        cuMemcpyHtoD(to: u32, from: Host, bytes: u32) = transfer::to_device_low(to, from, bytes);
        cuMemcpyDtoH(to: Host, from: u32, bytes: u32) = transfer::to_host_low(to, from, bytes);
        cuMemcpyDtoD(to: u32, from: u32, bytes: u32) = transfer::on_devices_low(to, from, bytes);
        cuMemcpyHtoDAsync(to: u32, from: Host, bytes: u32, stream: u64) =
            transfer::to_device_async_low(to, from, bytes, stream);
        cuMemcpyDtoHAsync(to: Host, from: u32, bytes: u32, stream: u64) =
            transfer::to_host_async_low(to, from, bytes, stream);
        cuMemcpyDtoDAsync(to: u32, from: u32, bytes: u32, stream: u64) =
            transfer::on_devices_async_low(to, from, bytes, stream);
        cuMemsetD8(to: u32, value: u8, count: u32) = fill::bytes_low(to, value, count);
        cuMemsetD16(to: u32, value: u16, count: u32) = fill::halves_low(to, value, count);
        cuMemsetD32(to: u32, value: u32, count: u32) = fill::words_low(to, value, count);

        // Code.
        cuModuleLoad(out: Out<u64>, name: Text) = module::load_file(out, name);
        cuModuleLoadData(out: Out<u64>, image: Host) = module::load_data(out, image);
        cuModuleLoadDataEx(out: Out<u64>, image: Host, count: u32, options: In<i32>, values: In<u64>) =
            module::load_data_ex(out, image, count, options, values);
        cuModuleLoadFatBinary(out: Out<u64>, image: Host) = module::load_data(out, image);
        cuModuleUnload(module: u64) = module::unload(module);
        cuModuleGetLoadingMode(out: Out<i32>) = module::loading_mode(out);
        cuModuleGetFunction(out: Out<u64>, module: u64, name: Text) = module::function(out, module, name);
        cuModuleGetFunctionCount(out: Out<u32>, module: u64) = module::function_count(out, module);
        cuModuleEnumerateFunctions(out: Out<u64>, count: u32, module: u64) = module::functions(out, count, module);
        cuModuleGetGlobal_v2(address: Out<u64>, size: Out<usize>, module: u64, name: Text) =
            module::global(address, size, module, name);
        cuLibraryLoadData(
            out: Out<u64>, image: Host, jit: In<i32>, jit_values: In<u64>, jit_count: u32,
            options: In<i32>, values: In<u64>, count: u32,
        ) = module::library_load(out, image, (jit, jit_values, jit_count), (options, values, count));
        cuLibraryLoadFromFile(
            out: Out<u64>, name: Text, jit: In<i32>, jit_values: In<u64>, jit_count: u32,
            options: In<i32>, values: In<u64>, count: u32,
        ) = module::library_load_file(out, name, (jit, jit_values, jit_count), (options, values, count));
        cuLibraryUnload(library: u64) = module::library_unload(library);
        cuLibraryGetKernel(out: Out<u64>, library: u64, name: Text) = module::kernel(out, library, name);
        cuLibraryGetKernelCount(out: Out<u32>, library: u64) = module::function_count(out, library);
        cuLibraryEnumerateKernels(out: Out<u64>, count: u32, library: u64) = module::functions(out, count, library);
        cuLibraryGetModule(out: Out<u64>, library: u64) = module::library_module(out, library);
        cuLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: u64, name: Text) =
            module::global(address, size, library, name);
        cuLibraryGetManaged(address: Out<u64>, size: Out<usize>, library: u64, name: Text) =
            module::managed(address, size, library, name);
        cuKernelGetFunction(out: Out<u64>, kernel: u64) = module::kernel_function(out, kernel);
        cuKernelGetName(out: Out<Host>, kernel: u64) = module::name(out, kernel);
        cuKernelGetAttribute(out: Out<i32>, attribute: i32, kernel: u64, device: i32) =
            launch::kernel_attribute(out, attribute, kernel, device);
        cuKernelSetAttribute(attribute: i32, value: i32, kernel: u64, device: i32) =
            launch::set_kernel_attribute(attribute, value, kernel, device);
        cuFuncGetAttribute(out: Out<i32>, attribute: i32, function: u64) = launch::attribute(out, attribute, function);
        cuFuncSetAttribute(function: u64, attribute: i32, value: i32) =
            launch::set_attribute(function, attribute, value);
        cuFuncSetCacheConfig(function: u64, config: i32) = launch::set_cache_config(function, config);
        cuFuncGetModule(out: Out<u64>, function: u64) = module::module_of(out, function);
        cuFuncGetName(out: Out<Host>, function: u64) = module::name(out, function);
        cuLinkCreate(count: u32, options: In<i32>, values: In<u64>, out: Out<u64>) =
            link::create(count, options, values, out);
        cuLinkCreate_v2(count: u32, options: In<i32>, values: In<u64>, out: Out<u64>) =
            link::create(count, options, values, out);
        cuLinkAddData(
            link: u64, kind: i32, data: Host, size: usize, name: In<u8>, count: u32, options: In<i32>,
            values: In<u64>,
        ) = link::add_data(link, kind, data, size, name, (count, options, values));
        cuLinkAddData_v2(
            link: u64, kind: i32, data: Host, size: usize, name: In<u8>, count: u32, options: In<i32>,
            values: In<u64>,
        ) = link::add_data(link, kind, data, size, name, (count, options, values));
        cuLinkAddFile(link: u64, kind: i32, path: Text, count: u32, options: In<i32>, values: In<u64>) =
            link::add_file(link, kind, path, (count, options, values));
        cuLinkAddFile_v2(link: u64, kind: i32, path: Text, count: u32, options: In<i32>, values: In<u64>) =
            link::add_file(link, kind, path, (count, options, values));
        cuLinkComplete(link: u64, image: Out<Host>, size: Out<usize>) = link::complete(link, image, size);
        cuLinkDestroy(link: u64) = link::destroy(link);

        // Occupancy.
        cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, function: u64, threads: i32, shared: usize) =
            launch::active_blocks(out, function, threads, shared);
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            out: Out<i32>, function: u64, threads: i32, shared: usize, flags: u32,
        ) = launch::active_blocks_with_flags(out, function, threads, shared, flags);
        cuOccupancyMaxPotentialBlockSize(
            grid: Out<i32>, block: Out<i32>, function: u64, by_size: SharedBySize, shared: usize, limit: i32,
        ) = launch::best_block(grid, block, function, by_size, shared, limit);
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            grid: Out<i32>, block: Out<i32>, function: u64, by_size: SharedBySize, shared: usize, limit: i32,
            flags: u32,
        ) = launch::best_block_with_flags(grid, block, function, by_size, shared, limit, flags);
        cuOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, function: u64, blocks: i32, threads: i32) =
            launch::available_shared(out, function, blocks, threads);

        // Streams and events.
        cuStreamCreate(out: Out<u64>, flags: u32) = stream::create(out, flags);
        cuStreamCreateWithPriority(out: Out<u64>, flags: u32, priority: i32) =
            stream::create_with_priority(out, flags, priority);
        cuStreamDestroy(stream: u64) = stream::destroy(stream);
        cuStreamDestroy_v2(stream: u64) = stream::destroy(stream);
        cuEventCreate(out: Out<u64>, flags: u32) = event::create(out, flags);
        cuEventDestroy(event: u64) = event::destroy(event);
        cuEventDestroy_v2(event: u64) = event::destroy(event);
        cuEventQuery(event: u64) = event::query(event);
        cuEventSynchronize(event: u64) = event::synchronize(event);
        cuEventElapsedTime(out: Out<f32>, start: u64, end: u64) = event::elapsed(out, start, end);
        cuThreadExchangeStreamCaptureMode(mode: Out<i32>) = capture::exchange_mode(mode);

        // Graphs.
        cuGraphCreate(out: Out<u64>, flags: u32) = graph::create(out, flags);
        cuGraphClone(out: Out<u64>, graph: u64) = graph::clone(out, graph);
        cuGraphDestroy(graph: u64) = graph::destroy(graph);
        cuGraphDestroyNode(node: u64) = graph::destroy_node(node);
        cuGraphChildGraphNodeGetGraph(node: u64, out: Out<u64>) = graph::child_of(node, out);
        cuGraphMemAllocNodeGetParams(node: u64, out: Out<node::AllocNode>) = node::alloc_parameters(node, out);
        cuGraphNodeGetType(node: u64, out: Out<i32>) = graph::node_type(node, out);
        cuGraphGetNodes(graph: u64, out: Out<u64>, count: Out<usize>) = graph::nodes(graph, out, count);
        cuGraphGetRootNodes(graph: u64, out: Out<u64>, count: Out<usize>) = graph::roots(graph, out, count);
        cuGraphGetEdges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) =
            graph::edges(graph, from, to, count);
        cuGraphGetEdges_v2(graph: u64, from: Out<u64>, to: Out<u64>, kinds: Out<u64>, count: Out<usize>) =
            graph::edges_v2(graph, from, to, kinds, count);
        cuGraphNodeGetDependencies(node: u64, out: Out<u64>, count: Out<usize>) = graph::dependencies(node, out, count);
        cuGraphNodeGetDependencies_v2(node: u64, out: Out<u64>, kinds: Out<u64>, count: Out<usize>) =
            graph::dependencies_v2(node, out, kinds, count);
        cuGraphAddDependencies(graph: u64, from: In<u64>, to: In<u64>, count: usize) =
            graph::add_edges(graph, from, to, count);
        cuGraphAddDependencies_v2(graph: u64, from: In<u64>, to: In<u64>, edges: In<u64>, count: usize) =
            capture::known_edges(edges, count).and_then(|()| graph::add_edges(graph, from, to, count));
        cuGraphAddEmptyNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize) =
            node::add_empty(node::NewNode { out, graph, before, count });
        cuGraphAddKernelNode(
            out: Out<u64>, graph: u64, before: In<u64>, count: usize, parameters: In<node::KernelNode>,
        ) = node::add_kernel(node::NewNode { out, graph, before, count }, parameters);
        cuGraphAddKernelNode_v2(
            out: Out<u64>, graph: u64, before: In<u64>, count: usize, parameters: In<node::KernelNode2>,
        ) = node::add_kernel_2(node::NewNode { out, graph, before, count }, parameters);
        cuGraphAddMemcpyNode(
            out: Out<u64>, graph: u64, before: In<u64>, count: usize, copy: In<transfer::DeepCopy>, context: u64,
        ) = node::add_copy(node::NewNode { out, graph, before, count }, copy, context);
        cuGraphAddMemsetNode(
            out: Out<u64>, graph: u64, before: In<u64>, count: usize, fill: In<node::FillNode>, context: u64,
        ) = node::add_fill(node::NewNode { out, graph, before, count }, fill, context);
        cuGraphAddHostNode(
            out: Out<u64>, graph: u64, before: In<u64>, count: usize, parameters: In<node::HostNode>,
        ) = node::add_host(node::NewNode { out, graph, before, count }, parameters);
        cuGraphAddEventRecordNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize, event: u64) =
            node::add_record(node::NewNode { out, graph, before, count }, event);
        cuGraphAddEventWaitNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize, event: u64) =
            node::add_wait(node::NewNode { out, graph, before, count }, event);
        cuGraphAddChildGraphNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize, child: u64) =
            node::add_child(node::NewNode { out, graph, before, count }, child);
        cuGraphAddMemAllocNode(
            out: Out<u64>, graph: u64, before: In<u64>, count: usize, parameters: Out<node::AllocNode>,
        ) = node::add_alloc(node::NewNode { out, graph, before, count }, parameters);
        cuGraphAddMemFreeNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize, address: u64) =
            node::add_free(node::NewNode { out, graph, before, count }, address);
        cuGraphAddNode(out: Out<u64>, graph: u64, before: In<u64>, count: usize, parameters: Out<node::AnyNode>) =
            node::add_any(node::NewNode { out, graph, before, count }, parameters);
        cuGraphAddNode_v2(
            out: Out<u64>, graph: u64, before: In<u64>, edges: In<u64>, count: usize,
            parameters: Out<node::AnyNode>,
        ) = capture::known_edges(edges, count)
            .and_then(|()| node::add_any(node::NewNode { out, graph, before, count }, parameters));
        cuGraphInstantiate(out: Out<u64>, graph: u64, failed: Out<u64>, log: Out<u8>, room: usize) =
            graph::instantiate(out, graph, failed, log, room);
        cuGraphInstantiate_v2(out: Out<u64>, graph: u64, failed: Out<u64>, log: Out<u8>, room: usize) =
            graph::instantiate(out, graph, failed, log, room);
        cuGraphInstantiateWithFlags(out: Out<u64>, graph: u64, flags: u64) =
            graph::instantiate_with_flags(out, graph, flags);
        cuGraphExecKernelNodeSetParams(executable: u64, node: u64, parameters: In<node::KernelNode>) =
            node::set_kernel(executable, node, parameters);
        cuGraphExecKernelNodeSetParams_v2(executable: u64, node: u64, parameters: In<node::KernelNode2>) =
            node::set_kernel_2(executable, node, parameters);
        cuGraphExecMemcpyNodeSetParams(executable: u64, node: u64, copy: In<transfer::DeepCopy>, context: u64) =
            node::set_copy(executable, node, copy, context);
        cuGraphExecMemsetNodeSetParams(executable: u64, node: u64, fill: In<node::FillNode>, context: u64) =
            node::set_fill(executable, node, fill, context);
        cuGraphExecHostNodeSetParams(executable: u64, node: u64, parameters: In<node::HostNode>) =
            node::set_host(executable, node, parameters);
        cuGraphExecChildGraphNodeSetParams(executable: u64, node: u64, child: u64) =
            node::set_child(executable, node, child);
        cuGraphExecGetFlags(executable: u64, out: Out<u64>) = graph::executable_flags(executable, out);
        cuGraphExecDestroy(executable: u64) = graph::destroy_executable(executable);

        // Profilers find nothing to profile, and starting one that isn't there is no error.
        cuProfilerStart() = device::profiler();
        cuProfilerStop() = device::profiler();
    }

    streamed(default) {
        // Copies.
        cuMemcpy / cuMemcpy_ptds(to: u64, from: u64, bytes: usize) = transfer::unified(default, to, from, bytes);
        cuMemcpyAsync / cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: u64) =
            transfer::unified_async(default, to, from, bytes, stream);
        cuMemcpyPeer / cuMemcpyPeer_ptds(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) =
            transfer::peer(default, to, to_context, from, from_context, bytes);
        cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
            to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
        ) = transfer::peer_async(default, to, to_context, from, from_context, bytes, stream);
        cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: u64, from: Host, bytes: usize) =
            transfer::to_device(default, to, from, bytes);
        cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: Host, bytes: usize, stream: u64) =
            transfer::to_device_async(default, to, from, bytes, stream);
        cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: Host, from: u64, bytes: usize) =
            transfer::to_host(default, to, from, bytes);
        cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(to: Host, from: u64, bytes: usize, stream: u64) =
            transfer::to_host_async(default, to, from, bytes, stream);
        cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) =
            transfer::on_devices(default, to, from, bytes);
        cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: u64) =
            transfer::on_devices_async(default, to, from, bytes, stream);
        cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds(to: Host, from: u64, offset: usize, bytes: usize) =
            transfer::array_to_host(default, to, from, offset, bytes);
        cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz(
            to: Host, from: u64, offset: usize, bytes: usize, stream: u64,
        ) = transfer::array_to_host_async(default, to, from, offset, bytes, stream);
        cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds(to: u64, offset: usize, from: Host, bytes: usize) =
            transfer::host_to_array(default, to, offset, from, bytes);
        cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz(
            to: u64, offset: usize, from: Host, bytes: usize, stream: u64,
        ) = transfer::host_to_array_async(default, to, offset, from, bytes, stream);
        cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds(to: u64, from: u64, offset: usize, bytes: usize) =
            transfer::array_to_device(default, to, from, offset, bytes);
        cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds(to: u64, offset: usize, from: u64, bytes: usize) =
            transfer::device_to_array(default, to, offset, from, bytes);
        cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds(
            to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize,
        ) = transfer::array_to_array(default, to, to_offset, from, from_offset, bytes);
        cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: In<transfer::FlatCopy>) = transfer::flat(default, copy);
        cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: In<transfer::FlatCopy>) =
            transfer::flat(default, copy);
        cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: In<transfer::FlatCopy>, stream: u64) =
            transfer::flat_async(default, copy, stream);
        cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: In<transfer::DeepCopy>) = transfer::deep(default, copy);
        cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(copy: In<transfer::DeepCopy>, stream: u64) =
            transfer::deep_async(default, copy, stream);
        cuMemcpy3DPeer / cuMemcpy3DPeer_ptds(copy: In<transfer::DeepCopy>) = transfer::deep(default, copy);
        cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz(copy: In<transfer::DeepCopy>, stream: u64) =
            transfer::deep_async(default, copy, stream);

        // Fills.
        cuMemsetD8_v2 / cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) =
            fill::bytes(default, to, value, count);
        cuMemsetD16_v2 / cuMemsetD16_v2_ptds(to: u64, value: u16, count: usize) =
            fill::halves(default, to, value, count);
        cuMemsetD32_v2 / cuMemsetD32_v2_ptds(to: u64, value: u32, count: usize) =
            fill::words(default, to, value, count);
        cuMemsetD8Async / cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: u64) =
            fill::bytes_async(default, to, value, count, stream);
        cuMemsetD16Async / cuMemsetD16Async_ptsz(to: u64, value: u16, count: usize, stream: u64) =
            fill::halves_async(default, to, value, count, stream);
        cuMemsetD32Async / cuMemsetD32Async_ptsz(to: u64, value: u32, count: usize, stream: u64) =
            fill::words_async(default, to, value, count, stream);
        cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(to: u64, pitch: usize, value: u8, width: usize, height: usize) =
            fill::bytes_2d(default, to, pitch, value, width, height);
        cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(to: u64, pitch: usize, value: u16, width: usize, height: usize) =
            fill::halves_2d(default, to, pitch, value, width, height);
        cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(to: u64, pitch: usize, value: u32, width: usize, height: usize) =
            fill::words_2d(default, to, pitch, value, width, height);
        cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
            to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64,
        ) = fill::bytes_2d_async(default, to, pitch, value, width, height, stream);
        cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
            to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64,
        ) = fill::halves_2d_async(default, to, pitch, value, width, height, stream);
        cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
            to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64,
        ) = fill::words_2d_async(default, to, pitch, value, width, height, stream);

        // Managed memory.
        cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(address: u64, size: usize, device: i32, stream: u64) =
            managed::prefetch(default, address, size, device, stream);
        cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
            address: u64, size: usize, location: managed::Location, flags: u32, stream: u64,
        ) = managed::prefetch_to(default, address, size, location, flags, stream);
        cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(stream: u64, address: u64, size: usize, flags: u32) =
            managed::attach(default, stream, address, size, flags);

        // Memory of arrays.
        cuMemMapArrayAsync / cuMemMapArrayAsync_ptsz(list: In<array::MapInfo>, count: u32, stream: u64) =
            array::map(default, list, count, stream);

        // Stream-ordered memory.
        cuMemAllocAsync / cuMemAllocAsync_ptsz(out: Out<u64>, size: usize, stream: u64) =
            pool::alloc_async(default, out, size, stream);
        cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(out: Out<u64>, size: usize, pool: u64, stream: u64) =
            pool::alloc_from_pool(default, out, size, pool, stream);
        cuMemFreeAsync / cuMemFreeAsync_ptsz(address: u64, stream: u64) = pool::free_async(default, address, stream);

        // Launches.
        cuLaunchKernel / cuLaunchKernel_ptsz(
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: u64, addresses: In<Host>, extra: In<u64>,
        ) = launch::kernel(
            default,
            function,
            KernelShape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared },
            stream,
            Parameters { addresses, extra },
        );
        cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: u64, addresses: In<Host>,
        ) = launch::cooperative(
            default,
            function,
            KernelShape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared },
            stream,
            Parameters { addresses, extra: In::NULL },
        );
        cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
            config: In<Config>, function: u64, addresses: In<Host>, extra: In<u64>,
        ) = launch::configured(default, config, function, Parameters { addresses, extra });
        cuLaunchHostFunc / cuLaunchHostFunc_ptsz(stream: u64, function: HostFunction, data: Host) =
            stream::host_function(default, stream, function, data);

        // Streams and events.
        cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: u64) = stream::synchronize(default, stream);
        cuStreamQuery / cuStreamQuery_ptsz(stream: u64) = stream::query(default, stream);
        cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: u64, out: Out<u64>) = stream::context(default, stream, out);
        cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: u64, out: Out<i32>) = stream::device(default, stream, out);
        cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: u64, out: Out<u32>) = stream::flags(default, stream, out);
        cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: u64, out: Out<i32>) =
            stream::priority(default, stream, out);
        cuStreamGetId / cuStreamGetId_ptsz(stream: u64, out: Out<u64>) = stream::id(default, stream, out);
        cuStreamAddCallback / cuStreamAddCallback_ptsz(
            stream: u64, function: StreamCallback, data: Host, flags: u32,
        ) = stream::add_callback(default, stream, function, data, flags);
        cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: u64, event: u64, flags: u32) =
            event::stream_wait(default, stream, event, flags);
        cuEventRecord / cuEventRecord_ptsz(event: u64, stream: u64) = event::record(default, event, stream);
        cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: u64, stream: u64, flags: u32) =
            event::record_with_flags(default, event, stream, flags);

        // Values in memory.
        cuStreamWaitValue32 / cuStreamWaitValue32_ptsz(stream: u64, address: u64, value: u32, flags: u32) =
            value::wait32(default, stream, address, value, flags);
        cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz(stream: u64, address: u64, value: u32, flags: u32) =
            value::wait32(default, stream, address, value, flags);
        cuStreamWaitValue64 / cuStreamWaitValue64_ptsz(stream: u64, address: u64, value: u64, flags: u32) =
            value::wait64(default, stream, address, value, flags);
        cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz(stream: u64, address: u64, value: u64, flags: u32) =
            value::wait64(default, stream, address, value, flags);
        cuStreamWriteValue32 / cuStreamWriteValue32_ptsz(stream: u64, address: u64, value: u32, flags: u32) =
            value::write32(default, stream, address, value, flags);
        cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(stream: u64, address: u64, value: u32, flags: u32) =
            value::write32(default, stream, address, value, flags);
        cuStreamWriteValue64 / cuStreamWriteValue64_ptsz(stream: u64, address: u64, value: u64, flags: u32) =
            value::write64(default, stream, address, value, flags);
        cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz(stream: u64, address: u64, value: u64, flags: u32) =
            value::write64(default, stream, address, value, flags);
        cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz(stream: u64, count: u32, list: In<value::Batched>, flags: u32) =
            value::batch(default, stream, count, list, flags);
        cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz(
            stream: u64, count: u32, list: In<value::Batched>, flags: u32,
        ) = value::batch(default, stream, count, list, flags);

        // Capture and graphs.
        cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: u64) = capture::begin_globally(default, stream);
        cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: u64, mode: i32) =
            capture::begin(default, stream, mode);
        cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: u64, out: Out<u64>) =
            capture::end(default, stream, out);
        cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: u64, out: Out<i32>) =
            capture::is_capturing(default, stream, out);
        cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(stream: u64, status: Out<i32>, id: Out<u64>) =
            capture::info(default, stream, status, id);
        cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
            stream: u64, status: Out<i32>, id: Out<u64>, graph: Out<u64>, tail: Out<u64>, count: Out<usize>,
        ) = capture::info_v2(default, stream, status, id, graph, (tail, count));
        cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
            stream: u64, status: Out<i32>, id: Out<u64>, graph: Out<u64>, tail: Out<u64>, edges: Out<u64>,
            count: Out<usize>,
        ) = capture::info_v3(default, stream, status, id, graph, (tail, edges, count));
        cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
            out: Out<u64>, graph: u64, parameters: Out<graph::Instantiation>,
        ) = graph::instantiate_with_params(default, out, graph, parameters);
        cuGraphLaunch / cuGraphLaunch_ptsz(executable: u64, stream: u64) = graph::launch(default, executable, stream);
        cuGraphUpload / cuGraphUpload_ptsz(executable: u64, stream: u64) = graph::upload(default, executable, stream);
    }
}
