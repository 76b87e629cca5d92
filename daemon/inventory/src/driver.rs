//! The trait of all drivers.

use std::ops::ControlFlow;
use std::time::Duration;

use tranche_domain::id::GpuUuid;

use crate::error::InventoryError;
use crate::facts::{GpuFacts, GpuFault, GpuProcess, GpuState, NodeFacts, ProcessUtilization};

/// Source of all of the daemon's data about GPUs.
pub trait Driver: Send + Sync {
    /// Versions of the driver.
    ///
    /// # Errors
    /// [`InventoryError::NoDriver`] without a driver; [`InventoryError::Query`] if it does not respond.
    fn facts(&self) -> Result<NodeFacts, InventoryError>;

    /// All GPUs in NVML's order, including those that take no slices. A GPU observed earlier and now lost
    /// stays in the list as [`NotSliceable::Lost`](crate::NotSliceable::Lost).
    ///
    /// # Errors
    /// As for [`Driver::facts`].
    fn gpus(&self) -> Result<Vec<GpuFacts>, InventoryError>;

    /// Momentary state of a GPU.
    ///
    /// # Errors
    /// [`InventoryError::UnknownGpu`], [`InventoryError::Lost`], or a failed query.
    fn state(&self, gpu: GpuUuid) -> Result<GpuState, InventoryError>;

    /// Processes with a context on a GPU, each once, by ascending pid.
    ///
    /// # Errors
    /// As for [`Driver::state`].
    fn processes(&self, gpu: GpuUuid) -> Result<Vec<GpuProcess>, InventoryError>;

    /// Utilisation samples by process that are newer than `since_us`; empty without new ones.
    /// `since_us` is in microseconds on the clock of their timestamps; 0 selects all that the driver still has.
    ///
    /// # Errors
    /// As for [`Driver::state`].
    fn process_utilization(
        &self,
        gpu: GpuUuid,
        since_us: u64,
    ) -> Result<Vec<ProcessUtilization>, InventoryError>;

    /// Passes each fault reported from now on to `hear`, and blocks until `hear` breaks.
    /// Passes `None` after each `patience` without a fault. GPUs that are lost at the beginning are not covered.
    ///
    /// # Errors
    /// [`InventoryError::NoDriver`], or a failed query; faults are missed until the next call.
    fn follow_faults(&self, patience: Duration, hear: &mut Hear<'_>) -> Result<(), InventoryError>;
}

/// Receiver of faults; of `None` after a time without one.
pub type Hear<'a> = dyn FnMut(Option<GpuFault>) -> ControlFlow<()> + 'a;
