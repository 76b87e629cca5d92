//! Refusals of the simulated driver.
#![forbid(unsafe_code)]

use thiserror::Error;

use crate::units::{Blocks, Gpu};

/// Why the simulated driver refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Not enough memory is free: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("{wanted} wanted on {gpu}, {free} free")]
    OutOfMemory {
        /// GPU of the request.
        gpu: Gpu,
        /// Memory that was wanted.
        wanted: Blocks,
        /// Memory that was free.
        free: Blocks,
    },
    /// The GPU is lost: CUDA_ERROR_DEVICE_UNAVAILABLE or, with work, CUDA_ERROR_UNKNOWN.
    #[error("{0} is lost")]
    Lost(Gpu),
    /// The GPU's compute mode allows no (further) process: CUDA_ERROR_DEVICE_UNAVAILABLE.
    #[error("the compute mode of {0} allows no further process")]
    ComputeMode(Gpu),
    /// The GPU has as many contexts as it can have: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("{0} can hold no more contexts")]
    Contexts(Gpu),
    /// The node has as many processes as it can have: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("the node can hold no more processes")]
    Processes,
    /// The GPU has as many shared pieces of memory as it can have: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("{0} can hold no more shared pieces of memory")]
    Shared(Gpu),
    /// The last holder of shared memory has let go of it: CUDA_ERROR_INVALID_VALUE.
    #[error("the shared memory on {0} is gone")]
    Gone(Gpu),
    /// The context is gone: CUDA_ERROR_CONTEXT_IS_DESTROYED.
    #[error("the context is destroyed")]
    Destroyed,
}
