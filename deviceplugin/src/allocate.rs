//! Allocation: turns the devices that the kubelet gives to containers into slices, all of them or none.
//!
//! The kubelet does not identify the pod that it allocates for. It gives only devices that it counts as free,
//! or that earlier containers of the same pod had, and no container runs during one admission. An existing
//! slice is therefore reused as it is, unless its pod is known to be gone or a process is in it: then it
//! belonged to an earlier pod, and is ended first.

use std::collections::{BTreeSet, VecDeque};

use crate::bundle::{BadBundle, Bundle};
use crate::device::{BadDevice, DeviceId};
use crate::health::{NodeHeadroom, Occupied};
use crate::offer::Offer;
use crate::profile::ProfileName;
use crate::release::{Absences, Standing};

/// Reason for rejecting an allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum Refusal {
    #[error(transparent)]
    Unreadable(#[from] BadDevice),
    #[error("{device} is not offered as {profile}: the configuration has changed; let the pod be made again")]
    NotOffered { device: DeviceId, profile: ProfileName },
    #[error("{0} is asked for twice in one request")]
    Twice(DeviceId),
    #[error(transparent)]
    NotOne(#[from] BadBundle),
    #[error(
        "container {container} asks for {one} and {other}: a process is in one slice at a time, so a container gets \
         devices of one profile; ask for one, or use several containers"
    )]
    SeveralProfiles { container: String, one: ProfileName, other: ProfileName },
    #[error("{0} is in use by a pod that the kubelet still lists")]
    InUse(Bundle),
    #[error(
        "{device} is part of a GPU that {count} process(es) outside any slice use, as `tranche smi` shows: none is made \
         there until they have ended"
    )]
    Strangers { device: DeviceId, count: usize },
}

/// One operation for the daemon to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// End a slice and its processes.
    End(Bundle),
    /// Create a slice for the bundle.
    Make(Bundle),
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every container has its slice.
    Done,
    /// No container has a slice; those created were ended again as far as possible.
    Failed {
        /// Devices of the failed step.
        bundle: Bundle,
    },
}

/// Parses and checks the devices of each container in a request for `profile`.
///
/// # Errors
/// See [`Refusal`].
pub fn read(
    offer: &Offer,
    profile: &ProfileName,
    containers: &[Vec<String>],
) -> Result<Vec<Bundle>, Refusal> {
    let mut seen = BTreeSet::new();
    containers.iter().map(|texts| read_container(offer, profile, texts, &mut seen)).collect()
}

fn read_container(
    offer: &Offer,
    profile: &ProfileName,
    texts: &[String],
    seen: &mut BTreeSet<DeviceId>,
) -> Result<Bundle, Refusal> {
    let devices = texts.iter().map(|text| text.parse()).collect::<Result<Vec<DeviceId>, _>>()?;
    for device in &devices {
        if device.profile != *profile || !offer.devices.contains_key(device) {
            return Err(Refusal::NotOffered { device: device.clone(), profile: profile.clone() });
        }
        if !seen.insert(device.clone()) {
            return Err(Refusal::Twice(device.clone()));
        }
    }
    Ok(Bundle::of(devices)?)
}

/// Checks that no foreign process uses the GPUs of new slices: its memory could not be committed.
///
/// # Errors
/// [`Refusal::Strangers`] if there is one.
pub fn undisturbed(headroom: &NodeHeadroom, wanted: &[Bundle]) -> Result<(), Refusal> {
    let new = wanted.iter().filter(|bundle| !headroom.slices.keys().any(|held| held.overlaps(bundle)));
    for device in new.flat_map(Bundle::devices) {
        match headroom.gpus.get(&device.gpu).map_or(0, |room| room.strangers) {
            0 => {}
            count => return Err(Refusal::Strangers { device: device.clone(), count }),
        }
    }
    Ok(())
}

/// Steps from the present slices to one for each container, with rollback on failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    ahead: VecDeque<Step>,
    made: Vec<Bundle>,
    failed: Option<Bundle>,
}

impl Transaction {
    /// Plans the steps.
    ///
    /// # Errors
    /// [`Refusal::InUse`] if a device belongs to a pod that still exists.
    pub fn plan(headroom: &NodeHeadroom, absences: &Absences, wanted: &[Bundle]) -> Result<Self, Refusal> {
        let mut ahead = VecDeque::new();
        for bundle in wanted {
            for step in steps(headroom, absences, bundle)? {
                if !ahead.contains(&step) {
                    ahead.push_back(step);
                }
            }
        }
        Ok(Self { ahead, made: Vec::new(), failed: None })
    }

    /// The next step; `None` once the transaction is over.
    pub fn next(&self) -> Option<&Step> {
        self.ahead.front()
    }

    /// Records the result of the next step. A failure starts the rollback.
    pub fn done(&mut self, success: bool) {
        match self.ahead.pop_front() {
            Some(Step::Make(bundle)) if success => self.made.push(bundle),
            Some(Step::Make(bundle) | Step::End(bundle)) if !success && self.failed.is_none() => {
                self.ahead = self.made.drain(..).rev().map(Step::End).collect();
                self.failed = Some(bundle);
            }
            _ => {}
        }
    }

    /// The result; `None` while steps remain.
    pub fn outcome(&self) -> Option<Outcome> {
        let outcome = self.failed.clone().map_or(Outcome::Done, |bundle| Outcome::Failed { bundle });
        self.ahead.is_empty().then_some(outcome)
    }
}

/// Steps for one container. Any other slice with one of its devices is ended: it belongs to an earlier pod,
/// or to an init container of the same pod with a different set of devices.
fn steps(headroom: &NodeHeadroom, absences: &Absences, bundle: &Bundle) -> Result<Vec<Step>, Refusal> {
    let (mut steps, mut is_there) = (Vec::new(), false);
    for (held, occupied) in headroom.slices.iter().filter(|(held, _)| held.overlaps(bundle)) {
        match (occupied, absences.standing(held)) {
            (Occupied::Yes, Standing::Listed) => return Err(Refusal::InUse(held.clone())),
            (Occupied::No, Standing::Listed | Standing::Unknown) if held == bundle => is_there = true,
            (Occupied::Yes | Occupied::No, _) => steps.push(Step::End(held.clone())),
        }
    }
    if !is_there {
        steps.push(Step::Make(bundle.clone()));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests;
