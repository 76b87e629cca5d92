//! Launches on the gate's slow path: those of a thread without launches left, and graphs.

use core::ffi::{c_int, c_void};

use tranche_policy::Work;

use super::stream::Stream;
use crate::launch::through;

/// Type of `cuLaunchKernel`.
pub(crate) type Kernel = unsafe extern "C" fn(
    u64,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u64,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
/// `cuLaunchCooperativeKernel`
pub(crate) type Cooperative =
    unsafe extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut *mut c_void) -> c_int;
/// `cuLaunchKernelEx`
pub(crate) type Configured =
    unsafe extern "C" fn(*const LaunchConfig, u64, *mut *mut c_void, *mut *mut c_void) -> c_int;

/// The head of `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    shape: [u32; 7],
    stream: u64,
}

macro_rules! with_stream {
    ($($name:ident as $type:ty: ($($argument:ident: $of:ty),*) in $stream:expr;)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the driver's")]
        pub(crate) unsafe fn $name(real: $type, $($argument: $of),*) -> c_int {
            // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
            through($stream, Work::Kernel, &|| unsafe { real($($argument),*) })
        }
    )*};
}

with_stream! {
    kernel as Kernel: (f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void, e: *mut *mut c_void)
        in Some(Stream(stream));
    kernel_ptsz as Kernel: (f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void, e: *mut *mut c_void)
        in Some(Stream::per_thread(stream));
    cooperative as Cooperative: (f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void)
        in Some(Stream(stream));
    cooperative_ptsz as Cooperative: (f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64, p: *mut *mut c_void)
        in Some(Stream::per_thread(stream));
    configured as Configured: (config: *const LaunchConfig, f: u64, p: *mut *mut c_void, e: *mut *mut c_void)
        in stream_of(config).map(Stream);
    configured_ptsz as Configured: (config: *const LaunchConfig, f: u64, p: *mut *mut c_void, e: *mut *mut c_void)
        in stream_of(config).map(Stream::per_thread);
    several as unsafe extern "C" fn(*mut c_void, u32, u32) -> c_int: (list: *mut c_void, count: u32, flags: u32)
        in None;
    plain as unsafe extern "C" fn(u64) -> c_int: (f: u64) in Some(Stream(0));
    grid as unsafe extern "C" fn(u64, c_int, c_int) -> c_int: (f: u64, width: c_int, height: c_int)
        in Some(Stream(0));
    grid_async as unsafe extern "C" fn(u64, c_int, c_int, u64) -> c_int: (f: u64, width: c_int, height: c_int, stream: u64)
        in Some(Stream(stream));
}

/// Stream in a launch's description; the driver refuses a launch without one.
fn stream_of(config: *const LaunchConfig) -> Option<u64> {
    // SAFETY: null, or a description that the driver itself is about to read, so readable by the launch's contract.
    unsafe { config.as_ref() }.map(|config| config.stream)
}
