//! The child process that holds a context during the measurement.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::panic;
use std::process::ExitCode;

use cudarc::driver::{DriverError, result, sys};
use tranche_domain::id::GpuUuid;

use super::READY;

/// Number of bytes filled by the first use.
const TOUCH: usize = 1 << 20;

/// A minimal kernel: loaded code takes memory too, and every program that uses a GPU has some.
const PTX: &CStr =
    c".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";

/// Creates a context on the GPU, and holds it until the input closes.
/// Prints `ready` once the context exists, or one line on failure.
pub fn child_main(gpu: GpuUuid) -> ExitCode {
    // The bindings panic if a driver lacks a function; the parent reads a single line, not a backtrace.
    panic::set_hook(Box::new(|panic| println!("{}", panic.payload_as_str().unwrap_or("a panic").trim())));
    match hold(gpu) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reason for which there is no context.
#[derive(Debug, thiserror::Error)]
enum NoContext {
    #[error("libcuda.so.1 is not installed, or not where the loader looks")]
    NoLibrary,
    #[error("{0} says {error:?}", error = .1.0)]
    Driver(&'static str, DriverError),
    #[error("CUDA does not show GPU {0}, though NVML does")]
    NotVisible(GpuUuid),
    #[error("talking to the parent: {0}")]
    Io(io::Error),
}

fn failed(call: &'static str) -> impl Fn(DriverError) -> NoContext {
    move |error| NoContext::Driver(call, error)
}

fn hold(gpu: GpuUuid) -> Result<(), NoContext> {
    // SAFETY: loading a library runs its initialisers; those of libcuda have no preconditions, and this
    // process exists only to load it. Checked first because the bindings panic if it is missing.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoContext::NoLibrary);
    }
    result::init().map_err(failed("cuInit"))?;
    make_context(device(gpu)?)?;
    wait_for_the_parent().map_err(NoContext::Io)
}

fn device(gpu: GpuUuid) -> Result<sys::CUdevice, NoContext> {
    let count = result::device::get_count().map_err(failed("cuDeviceGetCount"))?;
    for ordinal in 0..count {
        let device = result::device::get(ordinal).map_err(failed("cuDeviceGet"))?;
        let uuid = result::device::get_uuid(device).map_err(failed("cuDeviceGetUuid"))?;
        if GpuUuid::from_bytes(uuid.bytes.map(|byte| byte as u8)) == gpu {
            return Ok(device);
        }
    }
    Err(NoContext::NotVisible(gpu))
}

/// Creates the context and uses it once as any program would: a fill, and a kernel. Released by the process's
/// end.
fn make_context(device: sys::CUdevice) -> Result<(), NoContext> {
    // SAFETY: `device` came from cuDeviceGet after cuInit; the context is current on this thread before the
    // allocation; the pointer filled and freed is the one just allocated, with its own length.
    unsafe {
        let context = result::primary_ctx::retain(device).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        result::ctx::set_current(context).map_err(failed("cuCtxSetCurrent"))?;
        let touched = result::malloc_sync(TOUCH).map_err(failed("cuMemAlloc"))?;
        result::memset_d8_sync(touched, 0, TOUCH).map_err(failed("cuMemsetD8"))?;
        result::free_sync(touched).map_err(failed("cuMemFree"))?;
    }
    run_nothing()?;
    result::ctx::synchronize().map_err(failed("cuCtxSynchronize"))
}

fn run_nothing() -> Result<(), NoContext> {
    // SAFETY: the PTX image is NUL-terminated, as cuModuleLoadData requires, and a context is current; the
    // function belongs to that module, which stays loaded, and takes no parameters, so none are passed.
    unsafe {
        let module = result::module::load_data(PTX.as_ptr().cast()).map_err(failed("cuModuleLoadData"))?;
        let nothing = result::module::get_function(module, c"nothing".into());
        let nothing = nothing.map_err(failed("cuModuleGetFunction"))?;
        let one = (1, 1, 1);
        result::launch_kernel(nothing, one, one, 0, result::stream::null(), &mut [])
            .map_err(failed("cuLaunchKernel"))
    }
}

fn wait_for_the_parent() -> io::Result<()> {
    println!("{READY}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
