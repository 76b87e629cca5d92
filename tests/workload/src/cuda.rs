//! The CUDA driver API, as far as it is needed here: the one file with unsafe code.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::{DriverError, result, sys};
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;

/// PTX of the kernel, with the NUL that the driver requires at the end of a text.
const PTX: &str = concat!(include_str!("../spin_ns.ptx"), "\0");

/// Failure of a call of the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CudaError {
    /// The driver's library is missing.
    #[error("libcuda.so.1 is not where the loader looks: is the NVIDIA driver installed?")]
    NoLibrary,
    /// The driver refused the call.
    #[error("{call}: {name}")]
    Refused {
        /// Name of the call.
        call: &'static str,
        /// Name of the result code.
        name: String,
    },
}

impl CudaError {
    /// The driver's name for it, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::NoLibrary => "CUDA_ERROR_NOT_INITIALIZED",
            Self::Refused { name, .. } => name,
        }
    }
}

fn from(call: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Refused { call, name: format!("{:?}", error.0) }
}

/// A GPU with its primary context and the kernel loaded.
pub(crate) struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    spin: sys::CUfunction,
    /// Number of GPUs of this process.
    pub(crate) count: i32,
}

// SAFETY: a CUcontext and a CUfunction are handles that the driver lets any thread use; neither is tied to
// the thread that made it, and both live as long as the process, since nothing here releases them.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver serialises calls on a shared context itself.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Starts CUDA, makes the device's primary context current and loads the kernel.
    pub(crate) fn open(ordinal: i32) -> Result<Self, CudaError> {
        // SAFETY: loading a library runs its initialisers, and libcuda's have no precondition. Tested first because the
        // bindings panic where it is missing.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoLibrary);
        }
        result::init().map_err(from("cuInit"))?;
        let count = result::device::get_count().map_err(from("cuDeviceGetCount"))?;
        let device = result::device::get(ordinal).map_err(from("cuDeviceGet"))?;
        // SAFETY: `device` is what cuDeviceGet returned above, and that is all that the call requires.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(from("cuDevicePrimaryCtxRetain"))?;
        enter(context)?;
        Ok(Self { device, context, spin: load()?, count })
    }

    /// Makes the context current on the calling thread, as each thread must before it calls the rest.
    pub(crate) fn enter(&self) -> Result<(), CudaError> {
        enter(self.context)
    }

    /// Product name that CUDA reports.
    pub(crate) fn name(&self) -> Result<String, CudaError> {
        result::device::get_name(self.device).map_err(from("cuDeviceGetName"))
    }

    /// UUID that CUDA reports.
    pub(crate) fn uuid(&self) -> Result<GpuUuid, CudaError> {
        let uuid = result::device::get_uuid(self.device).map_err(from("cuDeviceGetUuid"))?;
        Ok(GpuUuid::from_bytes(uuid.bytes.map(|byte| byte as u8)))
    }

    /// Total memory by `cuDeviceTotalMem`.
    pub(crate) fn device_total(&self) -> Result<Bytes, CudaError> {
        // SAFETY: `self.device` is what cuDeviceGet returned in `open`, and that is all that the call requires.
        unsafe { result::device::total_mem(self.device) }.map(bytes).map_err(from("cuDeviceTotalMem"))
    }

    /// Free and total memory by `cuMemGetInfo`.
    pub(crate) fn memory(&self) -> Result<(Bytes, Bytes), CudaError> {
        let (free, total) = result::mem_get_info().map_err(from("cuMemGetInfo"))?;
        Ok((bytes(free), bytes(total)))
    }

    /// A stream of the calling thread's own.
    pub(crate) fn stream(&self) -> Result<Stream<'_>, CudaError> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(from("cuStreamCreate"))?;
        Ok(Stream { gpu: self, stream })
    }
}

fn bytes(size: usize) -> Bytes {
    Bytes::new(size as u64)
}

fn enter(context: sys::CUcontext) -> Result<(), CudaError> {
    // SAFETY: `context` came from cuDevicePrimaryCtxRetain and is never released.
    unsafe { result::ctx::set_current(context) }.map_err(from("cuCtxSetCurrent"))
}

fn load() -> Result<sys::CUfunction, CudaError> {
    // SAFETY: the image is a text that ends with NUL, as cuModuleLoadData wants PTX; a context is current.
    let module =
        unsafe { result::module::load_data(PTX.as_ptr().cast()) }.map_err(from("cuModuleLoadData"))?;
    // SAFETY: `module` was loaded by the line above and is never unloaded.
    unsafe { result::module::get_function(module, c"spin_ns".into()) }.map_err(from("cuModuleGetFunction"))
}

/// A piece of device memory, freed when dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    address: sys::CUdeviceptr,
    /// Size as it was requested.
    pub(crate) size: Bytes,
}

impl Piece {
    /// Takes device memory from the current context.
    pub(crate) fn take(size: Bytes) -> Result<Self, CudaError> {
        let length = usize::try_from(size.get()).unwrap_or(usize::MAX);
        // SAFETY: nothing reads the memory; the address is only ever freed.
        let address = unsafe { result::malloc_sync(length) }.map_err(from("cuMemAlloc"))?;
        Ok(Self { address, size })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the address came from cuMemAlloc, is freed once, and no kernel here touches memory. The
        // process's end would free it as well, so that a refusal needs no answer.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// A stream to launch on.
pub(crate) struct Stream<'gpu> {
    gpu: &'gpu Gpu,
    stream: sys::CUstream,
}

impl Stream<'_> {
    /// Launches a kernel that takes this many nanoseconds.
    pub(crate) fn spin(&self, mut nanoseconds: u64) -> Result<(), CudaError> {
        let mut parameters = [(&raw mut nanoseconds).cast::<c_void>()];
        // SAFETY: `spin_ns` has one parameter of 64 bits, which the driver copies before the call returns;
        // function and stream belong to the current context.
        unsafe { result::launch_kernel(self.gpu.spin, (1, 1, 1), (1, 1, 1), 0, self.stream, &mut parameters) }
            .map_err(from("cuLaunchKernel"))
    }

    /// Waits until all launches on it are done.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the stream came from cuStreamCreate and is destroyed only when dropped.
        unsafe { result::stream::synchronize(self.stream) }.map_err(from("cuStreamSynchronize"))
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream came from cuStreamCreate and this is its only owner. A failure leaks it until the process
        // ends, which is soon.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}
