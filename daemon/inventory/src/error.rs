//! Errors of reading GPUs.

use tranche_domain::id::GpuUuid;

/// Error of a driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// No driver is installed.
    #[error(
        "no NVIDIA driver to ask: {reason}; load the driver (`nvidia-smi` should answer), \
         or try the simulated node with `make play`"
    )]
    NoDriver {
        /// Error of loading or initialising NVML.
        reason: String,
    },
    /// No such GPU exists.
    #[error("no GPU {0} on this node; `tranche smi` lists what there is")]
    UnknownGpu(GpuUuid),
    /// The GPU is known but does not respond.
    #[error("GPU {gpu} is lost: {cause}; reset it or reboot the node")]
    Lost {
        /// UUID of the GPU.
        gpu: GpuUuid,
        /// Error that NVML returned.
        cause: String,
    },
    /// A query to the driver failed.
    #[error("could not read {what} of {subject}: {cause}")]
    Query {
        /// Property that was queried.
        what: &'static str,
        /// GPU, or the driver.
        subject: String,
        /// Error that NVML returned.
        cause: String,
    },
    /// The cost of a context could not be measured.
    #[error("could not measure what a context costs on GPU {gpu}: {cause}")]
    Calibration {
        /// UUID of the GPU.
        gpu: GpuUuid,
        /// Cause of the failure.
        cause: String,
    },
}
