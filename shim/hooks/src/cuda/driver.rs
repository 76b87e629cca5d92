//! Functions of the driver that the hooks call on their own behalf.
#![allow(non_snake_case, reason = "the driver's names")]

use core::ffi::{c_int, c_void};

use super::abi::checked;
use crate::driver_call::number;
use crate::libraries::{Library, RealAddress, Symbol, SymbolName, unresolved};

/// Declares functions of a library that are resolved at their first call.
///
/// A missing one returns the library's error.
#[macro_export]
#[doc(hidden)]
macro_rules! real_functions {
    ($library:ident { $($name:ident($($argument:ident: $type:ty),*);)* }) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "one per function")]
        enum Index { $($name,)* }

        const COUNT: usize = [$(stringify!($name)),*].len();
        static NAMES: [SymbolName; COUNT] = [$(SymbolName::new(Library::$library, stringify!($name)),)*];
        static REAL: [RealAddress; COUNT] = unresolved();

        /// The symbols of these functions.
        pub(crate) fn symbols() -> impl Iterator<Item = Symbol> + Clone {
            NAMES.iter().zip(&REAL).map(|(name, real)| Symbol::new(name, real))
        }

        $(
            /// # Safety
            /// As the library documents for the function.
            pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                let symbol = Symbol::new(&NAMES[Index::$name as usize], &REAL[Index::$name as usize]);
                let Some(real) = symbol.real() else {
                    return Library::$library.absent();
                };
                // SAFETY: the library's function of this name has this type; its other preconditions are this
                // function's contract.
                unsafe {
                    let real: unsafe extern "C" fn($($type),*) -> c_int = core::mem::transmute(real);
                    real($($argument),*)
                }
            }
        )*
    };
}

real_functions! {
    Cuda {
        cuCtxGetDevice(device: *mut c_int);
        cuCtxGetCurrent(context: *mut u64);
        cuCtxDestroy_v2(context: u64);
        cuCtxGetLimit(value: *mut usize, limit: c_int);
        cuCtxPushCurrent_v2(context: u64);
        cuCtxPopCurrent_v2(context: *mut u64);
        cuEventCreate(event: *mut u64, flags: u32);
        cuEventRecord(event: u64, stream: u64);
        cuEventQuery(event: u64);
        cuEventDestroy_v2(event: u64);
        cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
        cuGreenCtxDestroy(green: u64);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut u64);
        cuDeviceGraphMemTrim(device: c_int);
        cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize);
        cuGraphNodeGetType(node: u64, kind: *mut c_int);
        cuGraphMemAllocNodeGetParams(node: u64, parameters: *mut c_void);
        cuGraphChildGraphNodeGetGraph(node: u64, graph: *mut u64);
        cuGraphExecDestroy(graph: u64);
        cuGraphUpload(graph: u64, stream: u64);
        cuModuleGetLoadingMode(mode: *mut c_int);
        cuModuleUnload(module: u64);
        cuLibraryUnload(library: u64);
        cuStreamIsCapturing(stream: u64, status: *mut c_int);
        cuStreamWriteValue32_v2(stream: u64, address: u64, value: u32, flags: u32);
        cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: u32);
        cuMemHostUnregister(start: *mut c_void);
        cuMemHostGetDevicePointer_v2(address: *mut u64, start: *mut c_void, flags: u32);
        cuPointerGetAttribute(value: *mut c_void, attribute: c_int, pointer: u64);
        cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, pointer: u64);
        cuMemGetAllocationPropertiesFromHandle(properties: *mut c_void, handle: u64);
        cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const super::abi::Properties, option: c_int);
        cuIpcCloseMemHandle(pointer: u64);
        cuDestroyExternalMemory(memory: u64);
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut c_int, ordinal: c_int);
        cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int);
        cuDeviceGetDefaultMemPool(pool: *mut u64, device: c_int);
        cuDeviceGetMemPool(pool: *mut u64, device: c_int);
        cuDevicePrimaryCtxGetState(device: c_int, flags: *mut u32, active: *mut c_int);
        cuStreamGetCtx(stream: u64, context: *mut u64);
        cuStreamGetCtx_v2(stream: u64, context: *mut u64, green: *mut u64);
        cuStreamGetGreenCtx(stream: u64, green: *mut u64);
        cuCtxFromGreenCtx(context: *mut u64, green: u64);
        cuStreamGetDevice(stream: u64, device: *mut c_int);
        cuMemFree_v2(pointer: u64);
        cuMemFreeAsync(pointer: u64, stream: u64);
        cuMemAllocFromPoolAsync(pointer: *mut u64, bytes: usize, pool: u64, stream: u64);
        cuMemPoolCreate(pool: *mut u64, properties: *const c_void);
        cuMemPoolDestroy(pool: u64);
        cuStreamCreate(stream: *mut u64, flags: u32);
        cuStreamSynchronize(stream: u64);
        cuStreamDestroy_v2(stream: u64);
        cuMemRelease(handle: u64);
        cuArrayDestroy(array: u64);
        cuMipmappedArrayDestroy(array: u64);
        cuMemPoolGetAttribute(pool: u64, attribute: c_int, value: *mut c_void);
        cuMemPoolTrimTo(pool: u64, keep: usize);
    }
}

/// Device and context that are current in the calling thread.
pub(crate) fn current() -> Result<(c_int, u64), c_int> {
    Ok((device()?, context()?))
}

/// Device of the calling thread's current context.
pub(crate) fn device() -> Result<c_int, c_int> {
    // SAFETY: the driver writes one value into a local.
    number(|device| unsafe { cuCtxGetDevice(device) })()
}

/// The calling thread's current context; 0 if it has none.
#[inline(always)]
pub(crate) fn context() -> Result<u64, c_int> {
    // SAFETY: the driver writes one value into a local.
    number(|context| unsafe { cuCtxGetCurrent(context) })()
}

/// Calls with a context current, and restores the one before.
pub(crate) fn within<T>(context: u64, call: impl FnOnce() -> T) -> Option<T> {
    let mut popped = 0;
    // SAFETY: the driver checks the context; what is pushed here is popped here.
    unsafe {
        checked(cuCtxPushCurrent_v2(context)).ok()?;
        let answer = call();
        let _ = cuCtxPopCurrent_v2(&mut popped);
        Some(answer)
    }
}

/// Bytes of the allocation at a pointer; 0 if the driver knows none.
pub(crate) fn size_at(pointer: u64) -> u64 {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: the driver writes two values into locals.
    let _ = unsafe { cuMemGetAddressRange_v2(&mut base, &mut bytes, pointer) };
    bytes as u64
}

/// The UUID of one of the driver's devices.
pub(crate) fn uuid(device: c_int) -> Result<[u8; 16], c_int> {
    // SAFETY: the driver writes 16 bytes into a local of that size.
    number(|uuid| unsafe { cuDeviceGetUuid(uuid, device) })()
}

/// The driver's devices, in its order.
pub(crate) fn devices() -> Result<impl Iterator<Item = c_int> + Clone, c_int> {
    // SAFETY: the driver writes one value into a local.
    let count = number(|count| unsafe { cuDeviceGetCount(count) })()?;
    // SAFETY: the driver writes one value into a local, as above.
    Ok((0..count).filter_map(|ordinal| number(|device| unsafe { cuDeviceGet(device, ordinal) })().ok()))
}
