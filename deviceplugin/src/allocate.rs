//! From the devices that the kubelet gives a container to slices: all of them, or none.
//!
//! The kubelet does not say for whom it allocates. It gives away only what it believes free, or again what the
//! same pod's earlier containers had; within one admission nothing of the pod has run. So a slice that is there
//! already is given again as it is, unless its pod is known to be gone or somebody is in it still: then that
//! was an earlier pod's, and it ends before the next begins.

use std::collections::{BTreeSet, VecDeque};

use crate::bundle::{BadBundle, Bundle};
use crate::device::{BadDevice, DeviceId};
use crate::health::{Occupied, Scene};
use crate::offer::Offer;
use crate::profile::ProfileName;
use crate::release::Absences;

/// Why a container gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
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

/// One thing to have the daemon do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// End a slice and whoever is in it.
    End(Bundle),
    /// Make a slice.
    Make(Bundle),
}

/// What an earlier failure left to say, or success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every container has its slice.
    Done,
    /// None became one; what was made has been undone as far as the daemon would.
    Failed {
        /// What failed.
        bundle: Bundle,
    },
}

/// What each container of a request is to get, read and checked against what is offered as `profile`.
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

/// Whether nobody is on the GPUs of new slices whom no slice bounds: what they hold could be promised to nobody.
///
/// # Errors
/// [`Refusal::Strangers`].
pub fn undisturbed(scene: &Scene, wanted: &[Bundle]) -> Result<(), Refusal> {
    let new = wanted.iter().filter(|bundle| !scene.slices.keys().any(|held| held.overlaps(bundle)));
    for device in new.flat_map(Bundle::devices) {
        match scene.gpus.get(&device.gpu).map_or(0, |room| room.strangers) {
            0 => {}
            count => return Err(Refusal::Strangers { device: device.clone(), count }),
        }
    }
    Ok(())
}

/// A way from what is there to a slice for each container, which leads back if a step of it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    ahead: VecDeque<Step>,
    made: Vec<Bundle>,
    failed: Option<Bundle>,
}

impl Transaction {
    /// Plans it.
    ///
    /// # Errors
    /// [`Refusal::InUse`] if a device is somebody's who is still there.
    pub fn plan(scene: &Scene, absences: &Absences, wanted: &[Bundle]) -> Result<Self, Refusal> {
        let mut ahead = VecDeque::new();
        for bundle in wanted {
            for step in steps(scene, absences, bundle)? {
                if !ahead.contains(&step) {
                    ahead.push_back(step);
                }
            }
        }
        Ok(Self { ahead, made: Vec::new(), failed: None })
    }

    /// What to do next; nothing once it is over.
    pub fn next(&self) -> Option<&Step> {
        self.ahead.front()
    }

    /// Whether the next step did what it should. A failure turns around: what was made is ended.
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

    /// How it ended; nothing while there is something to do.
    pub fn outcome(&self) -> Option<Outcome> {
        let outcome = self.failed.clone().map_or(Outcome::Done, |bundle| Outcome::Failed { bundle });
        self.ahead.is_empty().then_some(outcome)
    }
}

/// What has to be done for one container. Whatever has a device of it and is not the same slice ends: it was an
/// earlier pod's, or that of an init container of the same pod, which may have been given more of them or fewer.
fn steps(scene: &Scene, absences: &Absences, bundle: &Bundle) -> Result<Vec<Step>, Refusal> {
    let (mut steps, mut is_there) = (Vec::new(), false);
    for (held, occupied) in scene.slices.iter().filter(|(held, _)| held.overlaps(bundle)) {
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

/// What the kubelet says of a slice's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A pod has a device of it.
    Listed,
    /// A pod had one, and none has any now.
    Vanished,
    /// No pod was ever seen with any: just admitted, or gone before anybody looked.
    Unknown,
}

#[cfg(test)]
mod tests;
