//! A node without a driver.

use std::time::Duration;

use tranche_domain::id::GpuUuid;

use crate::driver::{Driver, Hear};
use crate::error::InventoryError;
use crate::facts::{GpuFacts, GpuProcess, GpuState, NodeFacts, ProcessUtilization};

/// A driver that fails every query with the reason for its absence.
#[derive(Clone, Debug)]
pub struct NullDriver {
    reason: InventoryError,
}

impl NullDriver {
    /// A missing driver, with the reason.
    pub const fn new(reason: InventoryError) -> Self {
        Self { reason }
    }

    /// Reason for which the driver is missing.
    pub const fn reason(&self) -> &InventoryError {
        &self.reason
    }
}

impl Driver for NullDriver {
    fn facts(&self) -> Result<NodeFacts, InventoryError> {
        Err(self.reason.clone())
    }

    fn gpus(&self) -> Result<Vec<GpuFacts>, InventoryError> {
        Err(self.reason.clone())
    }

    fn state(&self, _: GpuUuid) -> Result<GpuState, InventoryError> {
        Err(self.reason.clone())
    }

    fn processes(&self, _: GpuUuid) -> Result<Vec<GpuProcess>, InventoryError> {
        Err(self.reason.clone())
    }

    fn process_utilization(&self, _: GpuUuid, _: u64) -> Result<Vec<ProcessUtilization>, InventoryError> {
        Err(self.reason.clone())
    }

    fn follow_faults(&self, _: Duration, _: &mut Hear<'_>) -> Result<(), InventoryError> {
        Err(self.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn missing_driver_error_names_reason_and_remedy() {
        let driver = crate::open(Some(Path::new("/nonexistent/libnvidia-ml.so.1")));
        let message = driver.gpus().unwrap_err().to_string();
        assert!(message.starts_with("no NVIDIA driver to ask"), "{message}");
        assert!(
            message.contains("/nonexistent/libnvidia-ml.so.1") && message.contains("make play"),
            "{message}"
        );
    }
}
