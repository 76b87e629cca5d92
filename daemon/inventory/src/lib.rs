//! Read-only access to the GPUs of a node.
//!
//! Law: this crate never changes a GPU's settings, decides nothing, and caches no value as if it were
//! current. Every read may fail, because GPUs fall off the bus and drivers are reloaded under running
//! programs; an error names the property and the GPU.
//!
//! A node without a driver is supported: [`open`] then returns a [`NullDriver`] with the reason.
#![deny(unsafe_code)]

use std::path::Path;

pub mod calibrate;
mod chosen;
mod driver;
mod error;
mod facts;
mod island;
mod null;
mod nvml;
#[cfg(any(test, feature = "scripted"))]
#[path = "../tests/scripted/mod.rs"]
pub mod scripted;

pub use chosen::{NoSuchGpu, choose};
pub use driver::{Driver, Hear};
pub use error::InventoryError;
pub use facts::{
    ComputeCapability, GpuFacts, GpuFault, GpuProcess, GpuState, NodeFacts, NotSliceable, ProcessUtilization,
    Recovery, UnreadableGpu,
};
pub use null::NullDriver;
pub use nvml::NvmlDriver;

/// Opens NVML: the library with this name or path, or the system's `libnvidia-ml.so.1`. On failure returns a
/// [`NullDriver`].
pub fn open(library: Option<&Path>) -> Box<dyn Driver> {
    match NvmlDriver::open(library) {
        Ok(driver) => Box::new(driver),
        Err(error) => Box::new(NullDriver::new(error)),
    }
}
