//! Profiles: sizes of devices, each a resource of its own.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use tranche_domain::compute::Priority;
use tranche_domain::id::GpuSelector;
use tranche_domain::node::{Gpu, Node, Origin, Refusal};
use tranche_domain::request::{ComputeMode, Share, SliceRequest};
use tranche_domain::slice::Slice;
use tranche_domain::units::{Bytes, Permille};

use crate::bundle::Bundle;
use crate::device::DeviceId;

/// Name of a profile, and part of its resource's name.
/// It is 1 to 16 of `a-z 0-9 -`, beginning and ending with a letter or digit. The limit keeps device ids within 63
/// characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileName(String);

/// Error for a text that is not a profile name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a profile: use 1 to 16 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
)]
pub struct BadProfileName(pub String);

impl FromStr for ProfileName {
    type Err = BadProfileName;

    fn from_str(text: &str) -> Result<Self, BadProfileName> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = (1..=16).contains(&text.len())
            && text.chars().all(|c| plain(c) || c == '-')
            && text.starts_with(plain)
            && text.ends_with(plain);
        if good { Ok(Self(text.to_owned())) } else { Err(BadProfileName(text.to_owned())) }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Parameters of a profile's slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name, which is part of the resource's name.
    pub name: ProfileName,
    /// Share of one GPU.
    pub share: Share,
    /// Memory that replaces that of the share.
    pub memory: Option<Bytes>,
    /// Compute request that replaces that of the share.
    pub compute: Option<Permille>,
    /// Compute limit; `None` leaves it to the mode.
    pub limit: Option<Permille>,
    /// Use of compute beyond the request.
    pub mode: ComputeMode,
    /// Scheduling priority; higher first.
    pub priority: Priority,
}

/// Resources of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Memory; whole MiB unless it is the whole GPU.
    pub memory: Bytes,
    /// Guaranteed compute, in permille of a GPU.
    pub compute: Permille,
}

impl Profile {
    /// Slice request for a bundle: the same part of each of its GPUs.
    pub fn request(&self, bundle: &Bundle) -> SliceRequest {
        let gpus = bundle.devices().iter().map(|device| GpuSelector::Uuid(device.gpu)).collect::<Vec<_>>();
        let count = u32::try_from(gpus.len()).ok().and_then(NonZeroU32::new);
        SliceRequest {
            name: Some(bundle.slice().clone()),
            share: if self.is_whole() { count.map_or(self.share, Share::Whole) } else { self.share },
            memory: self.memory,
            compute: self.compute,
            limit: self.limit,
            mode: self.mode,
            priority: self.priority,
            gang: None,
            gpus,
            ephemeral: false,
            pod: None,
        }
    }

    /// Places devices on an empty GPU in turn, with the daemon's placement; returns the resources of each.
    ///
    /// # Errors
    /// The placement's rejection of the first device that does not fit.
    pub fn place<'a>(
        gpu: &Gpu,
        devices: impl IntoIterator<Item = (&'a Self, &'a DeviceId)>,
    ) -> Result<Vec<Claim>, Refusal> {
        let mut node = Node::new(vec![gpu.clone()]);
        let claims = devices.into_iter().map(|(profile, device)| {
            let alone = Bundle::of(vec![device.clone()]).expect("one device always has a name");
            node.create(&profile.request(&alone), Origin { uid: 0, now_unix_ms: 0, job: None }).map(Claim::of)
        });
        claims.collect()
    }

    /// Tests if a device is a whole GPU, which requires an unused one.
    pub const fn is_whole(&self) -> bool {
        matches!(self.share, Share::Whole(_))
    }

    /// Share of one whole GPU.
    pub const WHOLE: Share = Share::Whole(NonZeroU32::MIN);
}

impl Claim {
    fn of(slice: &Slice) -> Self {
        Self { memory: slice.parts.iter().map(|part| part.cap).sum(), compute: slice.guaranteed() }
    }
}
