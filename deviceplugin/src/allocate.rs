//! From the devices that the kubelet gives a container to slices: all of them, or none.
//!
//! The kubelet does not say for whom it allocates. It gives away only what it believes free, or again what the
//! same pod's earlier containers had; within one admission nothing of the pod has run. So a slice that is there
//! already is given again as it is, unless its pod is known to be gone or somebody is in it still: then that
//! was an earlier pod's, and it ends before the next begins.

use std::collections::{BTreeSet, VecDeque};

use tranche_domain::id::GpuUuid;

use crate::device::{BadDevice, DeviceId};
use crate::health::{Occupied, Scene};
use crate::offer::Offer;
use crate::profile::ProfileName;
use crate::release::Absences;

/// Why a container gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Refusal {
    #[error("no device is asked for")]
    Nothing,
    #[error(transparent)]
    Unreadable(#[from] BadDevice),
    #[error("{device} is not offered as {profile}: the configuration has changed; let the pod be made again")]
    NotOffered { device: DeviceId, profile: ProfileName },
    #[error("{0} is asked for twice in one request")]
    Twice(DeviceId),
    #[error(
        "{a} and {b} are parts of one GPU: a container that asks for several devices gets them on as many GPUs; \
         ask for one of a larger profile, or for fewer"
    )]
    SameGpu { a: DeviceId, b: DeviceId },
    #[error("{0} is in use by a pod that the kubelet still lists")]
    InUse(DeviceId),
}

/// One thing to have the daemon do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// End the slice of a device and whoever is in it.
    End(DeviceId),
    /// Make the slice of a device.
    Make(DeviceId),
}

/// What an earlier failure left to say, or success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every device is a slice.
    Done,
    /// None became one; what was made has been undone as far as the daemon would.
    Failed {
        /// The device that failed.
        device: DeviceId,
    },
}

/// The devices of each container of a request, read and checked against what is offered as `profile`.
///
/// # Errors
/// See [`Refusal`].
pub fn read(
    offer: &Offer,
    profile: &ProfileName,
    containers: &[Vec<String>],
) -> Result<Vec<Vec<DeviceId>>, Refusal> {
    let mut seen = BTreeSet::new();
    containers.iter().map(|texts| read_container(offer, profile, texts, &mut seen)).collect()
}

fn read_container(
    offer: &Offer,
    profile: &ProfileName,
    texts: &[String],
    seen: &mut BTreeSet<DeviceId>,
) -> Result<Vec<DeviceId>, Refusal> {
    if texts.is_empty() {
        return Err(Refusal::Nothing);
    }
    let devices = texts.iter().map(|text| text.parse()).collect::<Result<Vec<DeviceId>, _>>()?;
    for (at, device) in devices.iter().enumerate() {
        if device.profile != *profile || !offer.devices.contains_key(device) {
            return Err(Refusal::NotOffered { device: device.clone(), profile: profile.clone() });
        }
        if !seen.insert(device.clone()) {
            return Err(Refusal::Twice(device.clone()));
        }
        if let Some(other) = sharing(&devices[..at], device.gpu) {
            return Err(Refusal::SameGpu { a: other.clone(), b: device.clone() });
        }
    }
    Ok(devices)
}

fn sharing(devices: &[DeviceId], gpu: GpuUuid) -> Option<&DeviceId> {
    devices.iter().find(|device| device.gpu == gpu)
}

/// A way from what is there to a slice for each device, which leads back if a step of it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    ahead: VecDeque<Step>,
    made: Vec<DeviceId>,
    failed: Option<DeviceId>,
}

impl Transaction {
    /// Plans it.
    ///
    /// # Errors
    /// [`Refusal::InUse`] if a device is somebody's who is still there.
    pub fn plan(scene: &Scene, absences: &Absences, devices: &[DeviceId]) -> Result<Self, Refusal> {
        let mut ahead = VecDeque::new();
        for device in devices {
            match (scene.slices.get(device), absences.standing(device)) {
                (None, _) => ahead.push_back(Step::Make(device.clone())),
                (Some(Occupied::Yes), Standing::Listed) => return Err(Refusal::InUse(device.clone())),
                (Some(Occupied::Yes), _) | (Some(Occupied::No), Standing::Vanished) => {
                    ahead.extend([Step::End(device.clone()), Step::Make(device.clone())]);
                }
                (Some(Occupied::No), Standing::Listed | Standing::Unknown) => {}
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
            Some(Step::Make(device)) if success => self.made.push(device),
            Some(Step::Make(device) | Step::End(device)) if !success && self.failed.is_none() => {
                self.ahead = self.made.drain(..).rev().map(Step::End).collect();
                self.failed = Some(device);
            }
            _ => {}
        }
    }

    /// How it ended; nothing while there is something to do.
    pub fn outcome(&self) -> Option<Outcome> {
        let outcome = self.failed.clone().map_or(Outcome::Done, |device| Outcome::Failed { device });
        self.ahead.is_empty().then_some(outcome)
    }
}

/// What the kubelet says of a device's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A pod has it.
    Listed,
    /// A pod had it, and none has it now.
    Vanished,
    /// No pod was ever seen with it: just admitted, or gone before anybody looked.
    Unknown,
}

#[cfg(test)]
mod tests;
