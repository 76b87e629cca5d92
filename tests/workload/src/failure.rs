//! Failures of the program.

use std::io;

use crate::{cuda, nvml};

/// Failure of the program's work. Refused memory is none: it is part of the report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A call of CUDA failed.
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    /// A call of NVML failed.
    #[error(transparent)]
    Nvml(#[from] nvml::NvmlFailure),
    /// Input or output failed.
    #[error("{what}: {cause}")]
    Io {
        /// Action that was attempted.
        what: String,
        /// Error that the kernel returned.
        cause: io::Error,
    },
}
