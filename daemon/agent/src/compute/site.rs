//! Where a slice is for the loop.

use tranche_domain::compute::{Instant, Observed};
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Permille;
use tranche_shm::lease::Lease;

use super::account::Account;

/// A slice's regions and its bell.
pub trait Site {
    /// Takes note of what the records of all who are there say now.
    fn look(&self, now: Instant, account: &mut Account) -> Observed;
    /// Writes down who may launch, and wakes who waits for it.
    fn write(&self, lease: Lease);
    /// Whether its bell is heard from now on. What rang meanwhile is heard as soon as it is.
    fn hear(&self, heard: bool);
    /// Says that the daemon lives, and what the slice used of its GPUs over the last second.
    fn beat(&self, now: Instant, used: &dyn Fn(GpuUuid) -> Permille);
}
