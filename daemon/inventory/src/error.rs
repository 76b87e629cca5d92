//! Why a look at the GPUs failed.

use tranche_domain::id::GpuUuid;

/// Why the driver did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// There is no driver to ask.
    #[error(
        "no NVIDIA driver to ask: {reason}; load the driver (`nvidia-smi` should answer), \
         or try the simulated node with `make play`"
    )]
    NoDriver {
        /// What loading or starting NVML said.
        reason: String,
    },
    /// NVML knows no such GPU.
    #[error("no GPU {0} on this node; `tranche smi` lists what there is")]
    UnknownGpu(GpuUuid),
    /// The GPU is known but does not answer any more.
    #[error("GPU {gpu} is lost: {cause}; reset it or reboot the node")]
    Lost {
        /// Which.
        gpu: GpuUuid,
        /// What NVML said.
        cause: String,
    },
    /// A question that failed.
    #[error("could not read {what} of {subject}: {cause}")]
    Query {
        /// What was asked.
        what: &'static str,
        /// Of which GPU, or of the driver.
        subject: String,
        /// What NVML said.
        cause: String,
    },
    /// The cost of a context could not be measured.
    #[error("could not measure what a context costs on GPU {gpu}: {cause}")]
    Calibration {
        /// Which.
        gpu: GpuUuid,
        /// What went wrong.
        cause: String,
    },
}
