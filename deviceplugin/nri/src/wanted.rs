//! The part of a GPU that a pod's annotations request for a container.
//!
//! Two families are read. KAI's request a part for one container of the pod: `gpu-fraction` or `gpu-memory`.
//! gpu-fractioning's are a container's own: `nvidia.com/container.NAME.gpu-memory.request` and its like; a scheduler may
//! write them beside KAI's, and then their memory and GPUs count. An annotation of theirs that is not known refuses the
//! container, since what it requests would not be enforced.

use std::collections::HashMap;
use std::num::NonZeroU32;

use tranche_adapter::quantity;
use tranche_domain::id::GpuSelector;
use tranche_domain::request::{Fraction, Share};
use tranche_domain::units::{Bytes, MIB, Permille};

use crate::visible::{BadGpu, VisibleGpus};

const FRACTION: &str = "gpu-fraction";
const MEMORY: &str = "gpu-memory";
const COUNT: &str = "gpu-fraction-num-devices";
const CONTAINER: &str = "gpu-fraction-container-name";

/// Annotations of a pod.
pub(crate) type Annotations = HashMap<String, String>;

/// Part of each of some GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedPart {
    /// Part by fraction or memory.
    pub(crate) share: Share,
    /// Memory that replaces the share's.
    pub(crate) memory: Option<Bytes>,
    /// Compute that replaces the share's.
    pub(crate) compute: Option<Permille>,
    /// GPUs that a scheduler chose; if empty, the daemon chooses one.
    pub(crate) gpus: Vec<GpuSelector>,
}

/// Reason for which annotations request no part that can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAnnotation {
    #[error("annotation {key}: {given:?} is not {what}")]
    Value { key: String, given: String, what: &'static str },
    #[error("annotations {FRACTION} and {MEMORY}: only one of them may be there")]
    Both,
    #[error("annotation {0} is not known to this version, so it would not be enforced: remove it")]
    Unknown(String),
    #[error("annotation {key}: {error}")]
    Gpus { key: String, error: BadGpu },
    #[error("{0} in NVIDIA_VISIBLE_DEVICES")]
    Variable(BadGpu),
    #[error(
        "{chosen} GPUs are chosen for {wanted} parts: a scheduler has to choose as many, in NVIDIA_VISIBLE_DEVICES or \
         nvidia.com/container.NAME.gpus.devices"
    )]
    Count { wanted: u32, chosen: usize },
    #[error(
        "annotations of container {0:?} request no memory: add nvidia.com/container.{0}.gpu-memory.request"
    )]
    NoMemory(String),
    #[error("{memory} of the container's own annotation are more than the {fraction} of {FRACTION}")]
    More { memory: Bytes, fraction: Fraction },
    #[error("compute {compute} of the container's own annotation is more than the {fraction} of {FRACTION}")]
    MoreCompute { compute: Permille, fraction: Fraction },
}

impl WantedPart {
    /// The part for this container with these variables; `None` if none is requested.
    pub(crate) fn of(
        annotations: &Annotations,
        container: &str,
        variables: &[String],
    ) -> Result<Option<Self>, BadAnnotation> {
        let own = OwnAnnotations::read(annotations, container)?;
        let visible = VisibleGpus::of_variables(variables).map_err(BadAnnotation::Variable);
        let is_meant = match annotations.get(CONTAINER) {
            Some(name) => name == container,
            None => !matches!(visible, Ok(VisibleGpus::None)),
        };
        let shared = if is_meant { PodAnnotations::read(annotations)? } else { None };
        let Some((share, memory)) = size(&own, shared.as_ref()) else {
            return if own.any { Err(BadAnnotation::NoMemory(container.to_owned())) } else { Ok(None) };
        };
        if let (Share::Fraction(fraction), Some(compute), Some(_)) = (share, own.compute, &shared)
            && compute > fraction.permille()
        {
            return Err(BadAnnotation::MoreCompute { compute, fraction });
        }
        let gpus = match own.gpus {
            Some(gpus) => gpus,
            None => visible?,
        };
        let gpus = if let VisibleGpus::Chosen(gpus) = gpus { gpus } else { Vec::new() };
        let wanted = shared.map_or(1, |shared| shared.count.get());
        let several = if gpus.is_empty() { wanted > 1 } else { gpus.len() != wanted as usize };
        // Without a count, a list of GPUs is one.
        if several && (annotations.contains_key(COUNT) || gpus.is_empty()) {
            return Err(BadAnnotation::Count { wanted, chosen: gpus.len() });
        }
        Ok(Some(Self { share, memory, compute: own.compute, gpus }))
    }
}

/// Share and memory of both families together.
fn size(own: &OwnAnnotations, shared: Option<&PodAnnotations>) -> Option<(Share, Option<Bytes>)> {
    match (own.memory, shared.map(|shared| shared.share)) {
        (Some(OwnMemory::Bytes(bytes)), Some(share @ Share::Fraction(_))) => Some((share, Some(bytes))),
        (Some(OwnMemory::Bytes(bytes)), _) => Some((Share::Memory(bytes), None)),
        (Some(OwnMemory::Part(part)), _) => Some((Share::Fraction(part), None)),
        (None, share) => share.map(|share| (share, None)),
    }
}

/// KAI's annotations, for one container of the pod.
struct PodAnnotations {
    share: Share,
    count: NonZeroU32,
}

impl PodAnnotations {
    fn read(annotations: &Annotations) -> Result<Option<Self>, BadAnnotation> {
        let share = match (annotations.get(FRACTION), annotations.get(MEMORY)) {
            (Some(_), Some(_)) => return Err(BadAnnotation::Both),
            (Some(fraction), None) => Share::Fraction(self::fraction(FRACTION, fraction)?),
            (None, Some(memory)) => {
                let what = "a number of MiB above 0, such as 8000";
                let mib = memory.parse().ok().filter(|mib| (1..=u64::MAX / MIB.get()).contains(mib));
                Share::Memory(Bytes::mib(mib.ok_or_else(|| bad(MEMORY, memory, what))?))
            }
            (None, None) => return Ok(None),
        };
        let count = annotations.get(COUNT).map_or(Ok(NonZeroU32::MIN), |count| {
            count.parse().map_err(|_| bad(COUNT, count, "a number of GPUs above 0"))
        })?;
        Ok(Some(Self { share, count }))
    }
}

#[derive(Clone, Copy)]
enum OwnMemory {
    Bytes(Bytes),
    Part(Fraction),
}

/// gpu-fractioning's annotations, a container's own.
#[derive(Default)]
struct OwnAnnotations {
    /// True if there is one at all.
    any: bool,
    memory: Option<OwnMemory>,
    compute: Option<Permille>,
    gpus: Option<VisibleGpus>,
}

impl OwnAnnotations {
    /// Memory is the request, which a scheduler has counted; or else the limit.
    fn read(annotations: &Annotations, container: &str) -> Result<Self, BadAnnotation> {
        let prefixes =
            [format!("nvidia.com/container.{container}."), format!("kai.scheduler/container.{container}.")];
        let (mut own, mut limit) = (Self::default(), None);
        for (key, value) in annotations {
            let Some(field) = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix.as_str())) else {
                continue;
            };
            own.any = true;
            match field {
                "gpu-memory.request" => own.memory = Some(OwnMemory::Bytes(bytes(key, value)?)),
                "gpu-memory.limit" => limit = Some(OwnMemory::Bytes(bytes(key, value)?)),
                "gpu-memory.portion.limit" => {
                    limit = limit.or(Some(OwnMemory::Part(fraction(key, value)?)));
                }
                "gpu-compute.portion" => own.compute = Some(portion(key, value)?),
                "gpus.devices" => {
                    let gpus = VisibleGpus::of_list(value);
                    own.gpus = Some(gpus.map_err(|error| BadAnnotation::Gpus { key: key.clone(), error })?);
                }
                // Programs of a slice have turns, which either mode permits.
                "gpu-compute.mode" if matches!(value.as_str(), "time-slicing" | "sm-sharing") => {}
                "gpu-compute.mode" => return Err(bad(key, value, "time-slicing or sm-sharing")),
                _ => return Err(BadAnnotation::Unknown(key.clone())),
            }
        }
        own.memory = own.memory.or(limit);
        Ok(own)
    }
}

fn bad(key: &str, given: &str, what: &'static str) -> BadAnnotation {
    BadAnnotation::Value { key: key.to_owned(), given: given.to_owned(), what }
}

fn fraction(key: &str, given: &str) -> Result<Fraction, BadAnnotation> {
    match given.parse() {
        Ok(Share::Fraction(fraction)) => Ok(fraction),
        _ => Err(bad(key, given, "a fraction of 0.001 to 0.999 with at most three decimals")),
    }
}

/// A part of a GPU's time; all of it is one, too.
fn portion(key: &str, given: &str) -> Result<Permille, BadAnnotation> {
    match given.parse() {
        Ok(Share::Fraction(fraction)) => Ok(fraction.permille()),
        Ok(Share::Whole(NonZeroU32::MIN)) => Ok(Permille::WHOLE),
        _ => Err(bad(key, given, "a portion of 0.001 to 1 with at most three decimals")),
    }
}

/// A quantity of Kubernetes, in whole MiB upwards.
fn bytes(key: &str, given: &str) -> Result<Bytes, BadAnnotation> {
    let mib = quantity::whole(given).map(|bytes| bytes.div_ceil(MIB.get()));
    mib.filter(|mib| *mib > 0)
        .map(Bytes::mib)
        .ok_or_else(|| bad(key, given, "an amount of memory, such as 4Gi"))
}

#[cfg(test)]
mod tests;
