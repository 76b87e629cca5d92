//! When a slice comes back: its pod was missing twice, at least half a minute apart, and nobody is in it.
//!
//! Once is not enough: a pod that is being admitted has its slice before the kubelet lists it, and a kubelet
//! that just started lists nothing yet. What is watched is found in the daemon's picture, so the slices of pods
//! that ended while the plugin was down come back like the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::allocate::Standing;
use crate::bundle::Bundle;
use crate::device::DeviceId;
use crate::health::{Occupied, Scene};

/// How far apart the two looks at least are, if nobody says otherwise.
pub const GRACE: Duration = Duration::from_secs(30);

/// What has been seen of the pods of slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absences {
    grace: Duration,
    watched: BTreeMap<Bundle, Watch>,
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
    pub fn observe(&mut self, scene: &Scene, listed: &BTreeSet<DeviceId>, now: Duration) -> Vec<Bundle> {
        self.watched.retain(|bundle, _| scene.slices.contains_key(bundle));
        let over = scene.slices.iter().filter(|(bundle, occupied)| {
            let watch = self.watched.entry((*bundle).clone()).or_default();
            let is_listed = bundle.devices().iter().any(|device| listed.contains(device));
            watch.missing(is_listed, now) >= Some(self.grace) && **occupied == Occupied::No
        });
        over.map(|(bundle, _)| bundle.clone()).collect()
    }

    /// Forgets what was seen of a slice: it is new, and so is its pod.
    pub fn begin_anew(&mut self, bundle: &Bundle) {
        self.watched.remove(bundle);
    }

    /// What was last seen of a slice's pod.
    pub fn standing(&self, bundle: &Bundle) -> Standing {
        match self.watched.get(bundle) {
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
