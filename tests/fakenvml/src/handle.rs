//! Numbers by which callers name GPUs.
#![forbid(unsafe_code)]

use simgpu::Gpu;

use crate::abi::Handle;

/// First handle: indexes and null pointers are lower.
pub(crate) const FIRST_HANDLE: Handle = 0x51_6d00;

/// The handle of a GPU.
pub(crate) const fn handle(gpu: Gpu) -> Handle {
    FIRST_HANDLE + gpu.index()
}
