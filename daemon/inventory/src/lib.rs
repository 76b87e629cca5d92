//! Read-only access to the GPUs of a node.
//!
//! Law: this crate never changes a GPU's settings, decides nothing, and caches no value as if it were
//! current. Every read may fail, because GPUs fall off the bus and drivers are reloaded under running
//! programs; an error names the property and the GPU.
//!
//! A node without a driver is supported: [`open`] then returns a [`NullDriver`] with the reason.
#![deny(unsafe_code)]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use tranche_domain::id::GpuUuid;

pub mod calibrate;
mod chosen;
mod error;
mod facts;
mod island;
mod null;
mod nvml;
pub mod scripted;

pub use chosen::{NoSuchGpu, choose};
pub use error::InventoryError;
pub use facts::{
    ComputeCapability, GpuFacts, GpuFault, GpuProcess, GpuState, NodeFacts, NotSliceable, ProcessUtilization,
    Recovery, UnreadableGpu,
};
pub use null::NullDriver;
pub use nvml::NvmlDriver;

/// Source of all of the daemon's data about GPUs.
pub trait Driver: Send + Sync {
    /// Versions of the driver.
    ///
    /// # Errors
    /// [`InventoryError::NoDriver`] without a driver; [`InventoryError::Query`] if it does not respond.
    fn facts(&self) -> Result<NodeFacts, InventoryError>;

    /// All GPUs in NVML's order, including those that take no slices. A GPU observed earlier and now lost
    /// stays in the list as [`NotSliceable::Lost`].
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

/// Opens NVML: the library with this name or path, or the system's `libnvidia-ml.so.1`. On failure returns a
/// [`NullDriver`].
pub fn open(library: Option<&Path>) -> Box<dyn Driver> {
    match NvmlDriver::open(library) {
        Ok(driver) => Box::new(driver),
        Err(error) => Box::new(NullDriver::new(error)),
    }
}
