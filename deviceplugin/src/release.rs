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

/// How far apart the two looks at least are, if nobody says otherwise.
pub const GRACE: Duration = Duration::from_secs(30);

/// What has been seen of the pods of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absences {
    grace: Duration,
    watched: BTreeMap<DeviceId, Watch>,
}

impl Default for Absences {
    fn default() -> Self {
        Self::new(GRACE)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Watch {
    ever_listed: bool,
    /// When it was first missing, without having been there since.
    missing_since: Option<Duration>,
}

impl Absences {
    /// Nothing seen yet; a pod has to be missing for so long.
    pub const fn new(grace: Duration) -> Self {
        Self { grace, watched: BTreeMap::new() }
    }

    /// Takes in one complete answer of the kubelet, and says which slices are to be ended now. `now` is the
    /// time since any fixed instant, on a clock that is never set back. Without an answer there is nothing to
    /// take in: a kubelet that is away frees nobody's slice.
    pub fn observe(&mut self, scene: &Scene, listed: &BTreeSet<DeviceId>, now: Duration) -> Vec<DeviceId> {
        self.watched.retain(|device, _| scene.slices.contains_key(device));
        let over = scene.slices.iter().filter(|(device, occupied)| {
            let watch = self.watched.entry((*device).clone()).or_default();
            watch.missing(listed.contains(device), now) >= Some(self.grace) && **occupied == Occupied::No
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
    /// How long its pod has been missing, if it is.
    fn missing(&mut self, listed: bool, now: Duration) -> Option<Duration> {
        if listed {
            *self = Self { ever_listed: true, missing_since: None };
            return None;
        }
        let since = *self.missing_since.get_or_insert(now);
        Some(now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests;
