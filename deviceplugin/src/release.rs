//! Release of slices: a pod was absent twice, at least half a minute apart, and its slice is empty.
//!
//! Once is not enough: a pod that is being admitted has its slice before the kubelet lists it, and a kubelet
//! that just started lists nothing yet. The daemon's view has all slices to watch, so those of pods that ended while
//! the plugin was down are released too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::bundle::Bundle;
use crate::device::DeviceId;
use crate::health::{NodeHeadroom, Occupied};

/// Default minimum interval between the two observations.
pub const GRACE: Duration = Duration::from_secs(30);

/// Absences of pods observed so far.
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
    /// First observation of the current absence.
    missing_since: Option<Duration>,
}

/// Presence of a slice's pod in the kubelet's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A pod has a device of the slice.
    Listed,
    /// A pod had one, and none has any now.
    Vanished,
    /// No pod was listed with any: just admitted, or gone before the first read.
    Unknown,
}

impl Absences {
    /// No observations; a pod counts as gone after an absence of `grace`.
    pub const fn new(grace: Duration) -> Self {
        Self { grace, watched: BTreeMap::new() }
    }

    /// Records one complete list of the kubelet; returns the slices to end. `now` is a time on a monotonic
    /// clock. It must not be called without a list: an absent kubelet frees no slice.
    pub fn observe(
        &mut self,
        headroom: &NodeHeadroom,
        listed: &BTreeSet<DeviceId>,
        now: Duration,
    ) -> Vec<Bundle> {
        self.watched.retain(|bundle, _| headroom.slices.contains_key(bundle));
        let over = headroom.slices.iter().filter(|(bundle, occupied)| {
            let watch = self.watched.entry((*bundle).clone()).or_default();
            let is_listed = bundle.devices().iter().any(|device| listed.contains(device));
            watch.missing(is_listed, now) >= Some(self.grace) && **occupied == Occupied::No
        });
        over.map(|(bundle, _)| bundle.clone()).collect()
    }

    /// Discards the observations of a slice that was created anew.
    pub fn reset(&mut self, bundle: &Bundle) {
        self.watched.remove(bundle);
    }

    /// Latest observation of a slice's pod.
    pub fn standing(&self, bundle: &Bundle) -> Standing {
        match self.watched.get(bundle) {
            Some(Watch { ever_listed: true, missing_since: None }) => Standing::Listed,
            Some(Watch { ever_listed: true, missing_since: Some(_) }) => Standing::Vanished,
            Some(Watch { ever_listed: false, .. }) | None => Standing::Unknown,
        }
    }
}

impl Watch {
    /// Duration of the current absence, if any.
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
