//! When a slice comes back: its pod was missing twice, at least half a minute apart, and nobody is in it.
//!
//! Once is not enough: a pod that is being admitted has its slice before the kubelet lists it, and a kubelet
//! that just started lists nothing yet. What is watched is found in the daemon's picture, so the slices of pods
//! that ended while the plugin was down come back like the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::allocate::Standing;
use crate::device::DeviceId;
use crate::health::{Occupied, Scene};

/// How far apart the two looks at least are.
pub const GRACE: Duration = Duration::from_secs(30);

/// What has been seen of the pods of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absences {
    watched: BTreeMap<DeviceId, Watch>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Watch {
    ever_listed: bool,
    /// When it was first missing, without having been there since.
    missing_since: Option<Duration>,
}

impl Absences {
    /// Takes in one complete answer of the kubelet, and says which slices are to be ended now. `now` is the
    /// time since any fixed instant, on a clock that is never set back. Without an answer there is nothing to
    /// take in: a kubelet that is away frees nobody's slice.
    pub fn observe(&mut self, scene: &Scene, listed: &BTreeSet<DeviceId>, now: Duration) -> Vec<DeviceId> {
        self.watched.retain(|device, _| scene.slices.contains_key(device));
        let over = scene.slices.iter().filter(|(device, occupied)| {
            let watch = self.watched.entry((*device).clone()).or_default();
            watch.see(listed.contains(device), now) && **occupied == Occupied::No
        });
        over.map(|(device, _)| device.clone()).collect()
    }

    /// Forgets what was seen of a device: its slice is new, and so is its pod.
    pub fn begin_anew(&mut self, device: &DeviceId) {
        self.watched.remove(device);
    }

    /// What was last seen of a device's pod.
    pub fn standing(&self, device: &DeviceId) -> Standing {
        match self.watched.get(device) {
            Some(Watch { ever_listed: true, missing_since: None }) => Standing::Listed,
            Some(Watch { ever_listed: true, missing_since: Some(_) }) => Standing::Vanished,
            Some(Watch { ever_listed: false, .. }) | None => Standing::Unknown,
        }
    }
}

impl Watch {
    /// Whether its pod has been missing for long enough.
    fn see(&mut self, listed: bool, now: Duration) -> bool {
        if listed {
            *self = Self { ever_listed: true, missing_since: None };
            return false;
        }
        let since = *self.missing_since.get_or_insert(now);
        now.saturating_sub(since) >= GRACE
    }
}

#[cfg(test)]
mod tests;
