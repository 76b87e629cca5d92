//! Faults: what a GPU that fell off the bus answers.

use simgpu::Gpu;

use crate::driver::Driver;
use crate::status::{Outcome, Status};

/// Refuses everything on a lost GPU.
pub(crate) fn check(driver: &Driver, gpu: Gpu) -> Outcome {
    if driver.node().is_lost(gpu) { Err(Status::Unknown) } else { Ok(()) }
}
