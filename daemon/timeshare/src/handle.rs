//! Handle of a slice for the scheduling loop: its regions and its wakeup.

use std::sync::Arc;

use tranche_domain::compute::{Instant, Observed};
use tranche_domain::id::GpuUuid;
use tranche_domain::slice::Seat;
use tranche_domain::units::Permille;
use tranche_shm::Slot;
use tranche_shm::lease::Lease;

use super::account::Account;
use super::site::SliceSite;
use super::wakeups::{Number, Wakeups};
use tranche_linux::sys;
use tranche_slices::slice_runtime::SliceRuntime;

/// A slice's regions, and its eventfd among the loop's wakeups.
pub(super) struct SliceHandle {
    pub(super) runtime: Arc<SliceRuntime>,
    pub(super) number: Number,
    wakeups: Arc<Wakeups>,
}

impl SliceHandle {
    /// Handle of a slice whose eventfd has this number.
    pub(super) const fn new(runtime: Arc<SliceRuntime>, number: Number, wakeups: Arc<Wakeups>) -> Self {
        Self { runtime, number, wakeups }
    }
}

impl SliceSite for SliceHandle {
    fn look(&self, now: Instant, account: &mut Account) -> Observed {
        let control = self.runtime.regions.control().reader();
        let compute = self.runtime.regions.compute();
        let seated = (0..control.slots_high()).filter_map(Slot::new);
        let clock_offsets = self.runtime.clock_offsets();
        let ahead = |slot: Slot| Some(*clock_offsets.get(&Seat(u16::try_from(slot.index()).ok()?))?);
        let seated = seated.filter_map(|slot| {
            let clock = now.ahead_by(ahead(slot).unwrap_or_default());
            Some((slot, control.identity(slot)?, compute.record(slot), clock))
        });
        account.look_by_clocks(now, seated)
    }

    fn write(&self, lease: Lease) {
        let control = self.runtime.regions.control();
        control.set_lease(lease);
        if lease.open {
            sys::futex_wake_all(control.reader().lease_word());
        }
    }

    fn announce(&self, next: Option<(Lease, Instant)>, wakes: bool) {
        let control = self.runtime.regions.control();
        match next {
            Some((lease, at)) => control.announce(lease, at.nanos()),
            None => control.withdraw(),
        }
        if wakes {
            sys::futex_wake_all(control.reader().lease_word());
        }
    }

    fn hear(&self, heard: bool) {
        self.wakeups.enable(self.runtime.regions.bell(), self.number, heard);
    }

    /// Also publishes the slice's own use, which the shim shows in place of the GPU's utilization.
    fn beat(&self, now: Instant, used: &dyn Fn(GpuUuid) -> Permille) {
        self.runtime.beat(now.nanos());
        for (device, gpu) in self.runtime.devices() {
            self.runtime.set_own_use(device, (used(gpu).get() + 5) / 10);
        }
    }
}
