//! Interface between the scheduling loop and a slice.

use tranche_domain::compute::{Instant, Observed};
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Permille;
use tranche_shm::lease::Lease;

use super::account::Account;

/// A slice's regions and its wakeup, as the scheduling loop uses them.
pub trait SliceSite {
    /// Reads the compute records of all attached processes into the account.
    fn look(&self, now: Instant, account: &mut Account) -> Observed;
    /// Publishes the lease, and wakes waiting launches if it is open.
    fn write(&self, lease: Lease);
    /// Publishes what follows the present lease, and when; `None` takes it back.
    ///
    /// With `wakes`, it wakes waiting launches, so that they sleep until then.
    fn announce(&self, next: Option<(Lease, Instant)>, wakes: bool);
    /// Enables or mutes the slice's wakeup. A signal sent while it was muted is delivered when it is enabled.
    fn hear(&self, heard: bool);
    /// Publishes the daemon's heartbeat, and the slice's use of each GPU over the last second.
    fn beat(&self, now: Instant, used: &dyn Fn(GpuUuid) -> Permille);
}
