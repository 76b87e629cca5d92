//! C structures that callers and the driver share.

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`, which are the driver's.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Handle {
    pub(crate) words: [u64; 8],
}

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Side {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) memory_type: u64,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Flat {
    pub(crate) from: Side,
    pub(crate) to: Side,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `dim3`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Sides {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// `cudaLaunchConfig_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) grid: Sides,
    pub(crate) block: Sides,
    pub(crate) shared: usize,
    pub(crate) stream: u64,
    pub(crate) attributes: u64,
    pub(crate) count: u32,
}

/// `CUlaunchConfig`, whose attributes have the same layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DriverConfig {
    pub(crate) grid: Sides,
    pub(crate) block: Sides,
    pub(crate) shared: u32,
    pub(crate) stream: u64,
    pub(crate) attributes: u64,
    pub(crate) count: u32,
}
