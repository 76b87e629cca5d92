//! Context reserve of one slice. The measured cost, or what the slice's own processes were seen to need.

use tranche_domain::reserve::{SeenReserve, cost_of_each, most};
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;

use super::SliceRuntime;
use super::units::context_units;

impl SliceRuntime {
    /// Reserve for a context on a device whose measured cost is `measured`.
    pub fn reserve(&self, device: DeviceSlot, measured: Bytes) -> Bytes {
        let mut seen = self.reserves.seen();
        seen.get_mut(device.index()).map_or(measured, |seen| seen.reserve(measured, self.reserves.now()))
    }

    /// Upper bound of what a process was charged for a context by this daemon or the previous one.
    pub fn most_charged(&self, device: DeviceSlot, measured: Bytes) -> Bytes {
        let earlier = self.reserves.earlier.get(device.index()).copied().unwrap_or_default();
        self.reserve(device, measured).max(earlier.min(most(measured)))
    }

    /// Takes in a sample of a process: its charge for contexts, and what it holds beyond its charge.
    /// From now on this slice alone is charged what each of its contexts took.
    pub fn saw_contexts(&self, device: DeviceSlot, charged: Bytes, beyond: Bytes) {
        let reserved = Bytes::new(self.regions.control().reader().limits(device).context.bytes());
        if charged == Bytes::ZERO {
            return;
        }
        if let Some(seen) = self.reserves.seen().get_mut(device.index()) {
            seen.see(cost_of_each(charged, reserved, beyond), self.reserves.now());
        }
    }

    /// Discards what samples showed; returns true if there was anything.
    pub fn forget_reserves(&self) -> bool {
        let mut seen = self.reserves.seen();
        let had = seen.iter().any(|seen| !seen.is_blank());
        seen.fill(SeenReserve::default());
        had
    }

    /// Publishes reserves that have changed. Returns each device whose reserve exceeds the measured cost, with both
    /// values.
    pub fn review_reserves(&self, parts: &[(Part, Bytes)]) -> Vec<(DeviceSlot, Bytes, Bytes)> {
        let control = self.regions.control().reader();
        let reserves = self
            .devices()
            .zip(parts)
            .map(|((device, _), (_, measured))| (device, self.reserve(device, *measured), *measured));
        let reserves: Vec<_> = reserves.collect();
        let is_published = |(device, reserve, _): &(DeviceSlot, Bytes, Bytes)| {
            control.limits(*device).context == context_units(*reserve)
        };
        if !reserves.iter().all(is_published) {
            self.set_limits(parts);
        }
        reserves.into_iter().filter(|(_, reserve, measured)| reserve > measured).collect()
    }
}
