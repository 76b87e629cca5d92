//! Reserve for contexts of one slice: the measured one, or what the slice's own processes were seen to need.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::reserve::{SeenReserve, cost_of_each, most};
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

use super::Tenancy;

/// Reserves of a slice, by device.
#[derive(Debug)]
pub(super) struct Reserves {
    begun: Instant,
    seen: Mutex<Vec<SeenReserve>>,
    /// Published by an earlier daemon: processes may have been charged so much.
    earlier: Vec<Bytes>,
}

impl Reserves {
    /// Of a slice whose processes may have been charged `earlier` for a context.
    pub(super) fn new(earlier: Vec<Bytes>) -> Self {
        let seen = Mutex::new(vec![SeenReserve::default(); earlier.len()]);
        Self { begun: Instant::now(), seen, earlier }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn seen(&self) -> MutexGuard<'_, Vec<SeenReserve>> {
        self.seen.lock().expect("nothing panics while it holds the reserves")
    }
}

impl Tenancy {
    /// Reserve for a context on a device where `measured` is reserved in general.
    pub(crate) fn reserve(&self, device: DeviceSlot, measured: Bytes) -> Bytes {
        let mut seen = self.reserves.seen();
        seen.get_mut(device.index()).map_or(measured, |seen| seen.reserve(measured, self.reserves.now()))
    }

    /// Most that a process can have been charged for a context, by this daemon or the one before.
    pub(crate) fn most_charged(&self, device: DeviceSlot, measured: Bytes) -> Bytes {
        let earlier = self.reserves.earlier.get(device.index()).copied().unwrap_or_default();
        self.reserve(device, measured).max(earlier.min(most(measured)))
    }

    /// A process that is charged `charged` for its contexts was seen to hold `beyond` more than it is charged for: from
    /// now on the slice, and no other, is charged what each of them took.
    pub(crate) fn saw_contexts(&self, device: DeviceSlot, charged: Bytes, beyond: Bytes) {
        let reserved = Bytes::new(self.regions.control().reader().limits(device).context.bytes());
        if charged == Bytes::ZERO {
            return;
        }
        if let Some(seen) = self.reserves.seen().get_mut(device.index()) {
            seen.see(cost_of_each(charged, reserved, beyond), self.reserves.now());
        }
    }

    /// Forgets what the slice's processes were seen to need; says whether that was anything.
    pub(crate) fn forget_reserves(&self) -> bool {
        let mut seen = self.reserves.seen();
        let had = seen.iter().any(|seen| !seen.is_blank());
        seen.fill(SeenReserve::default());
        had
    }

    /// Publishes the reserves where they have changed. Returns each that is above the measured one, with that one.
    pub(crate) fn review_reserves(&self, parts: &[(Part, Bytes)]) -> Vec<(DeviceSlot, Bytes, Bytes)> {
        let control = self.regions.control().reader();
        let reserves = self
            .devices()
            .zip(parts)
            .map(|((device, _), (_, measured))| (device, self.reserve(device, *measured), *measured));
        let reserves: Vec<_> = reserves.collect();
        let is_published = |(device, reserve, _): &(DeviceSlot, Bytes, Bytes)| {
            control.limits(*device).context == super::limits::context_units(*reserve)
        };
        if !reserves.iter().all(is_published) {
            self.set_limits(parts);
        }
        reserves.into_iter().filter(|(_, reserve, measured)| reserve > measured).collect()
    }
}
