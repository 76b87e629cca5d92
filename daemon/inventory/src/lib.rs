//! What GPUs exist on this node and how they feel.
//!
//! Law of this crate: it looks and never touches. Nothing here changes a GPU's settings, decides who gets
//! what, or remembers an answer as if it were still true. Every look may fail, because GPUs fall off buses
//! and drivers are reloaded under running programs; an error says what was asked of which GPU.
//!
//! A node without a driver is an ordinary node: [`open`] then gives a [`NullDriver`] that says why.
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

/// The senses: everything the daemon knows of GPUs comes through here.
pub trait Driver: Send + Sync {
    /// Versions, and whether the GPUs are simulated.
    ///
    /// # Errors
    /// [`InventoryError::NoDriver`] without a driver; [`InventoryError::Query`] if it does not answer.
    fn facts(&self) -> Result<NodeFacts, InventoryError>;

    /// The GPUs in NVML's order, also those that cannot be sliced. A GPU that was seen before and is lost
    /// now stays in the list as [`NotSliceable::Lost`].
    ///
    /// # Errors
    /// As for [`Driver::facts`].
    fn gpus(&self) -> Result<Vec<GpuFacts>, InventoryError>;

    /// What a GPU is doing now.
    ///
    /// # Errors
    /// [`InventoryError::UnknownGpu`], [`InventoryError::Lost`], or a failed query.
    fn state(&self, gpu: GpuUuid) -> Result<GpuState, InventoryError>;

    /// The processes that hold a context on a GPU, each once, by ascending pid.
    ///
    /// # Errors
    /// As for [`Driver::state`].
    fn processes(&self, gpu: GpuUuid) -> Result<Vec<GpuProcess>, InventoryError>;

    /// Samples of how much of a GPU each process used, newer than `since_us` microseconds on the clock of
    /// the samples' own timestamps (0: whatever the driver still has). Nothing new is an empty list.
    ///
    /// # Errors
    /// As for [`Driver::state`].
    fn process_utilization(
        &self,
        gpu: GpuUuid,
        since_us: u64,
    ) -> Result<Vec<ProcessUtilization>, InventoryError>;

    /// Tells of each fault that the driver reports from now on, and of nothing whenever none came for `patience`,
    /// until told to break off. Blocks. GPUs that are lost when it begins are not listened to.
    ///
    /// # Errors
    /// [`InventoryError::NoDriver`], or a failed query: nothing is heard until it is called again.
    fn follow_faults(&self, patience: Duration, hear: &mut Hear<'_>) -> Result<(), InventoryError>;
}

/// Who is told of faults.
pub type Hear<'a> = dyn FnMut(Option<GpuFault>) -> ControlFlow<()> + 'a;

/// Opens NVML: the library of that name or path, or the system's `libnvidia-ml.so.1`. Where that fails the
/// node has no driver, which is an answer too.
pub fn open(library: Option<&Path>) -> Box<dyn Driver> {
    match NvmlDriver::open(library) {
        Ok(driver) => Box::new(driver),
        Err(error) => Box::new(NullDriver::new(error)),
    }
}
