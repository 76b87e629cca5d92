//! From an allocated claim to the slices that it is.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use k8s_openapi::api::resource::v1::{DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim};

use tranche_domain::id::{GpuSelector, GpuUuid, SliceName};
use tranche_domain::request::{ComputeMode, Share, SliceRequest};
use tranche_domain::units::{Bytes, MIB, Permille};

use crate::device::{self, COMPUTE, MEMORY};
use crate::parameters::{BadSliceParameters, SliceParameters};
use crate::profile::{self, PartProfile};
use crate::quantity;

/// First part of the names of the driver's slices.
const PREFIX: &str = "dra-";

/// Part of a claim: the devices of one request, which are one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimPart {
    pub(crate) slice: SliceName,
    /// Name of the request, without that of a subrequest.
    pub(crate) request: String,
    /// Devices with the ids of their shares, in the order of the allocation.
    pub(crate) devices: Vec<(String, Option<String>)>,
    /// Their GPUs, each another one.
    pub(crate) gpus: Vec<GpuUuid>,
    /// Memory cap on each GPU.
    memory: Bytes,
    /// Compute request on each GPU.
    compute: Permille,
    parameters: SliceParameters,
    /// True if nothing of the GPUs is left to others.
    whole: bool,
}

/// Reason for which a claim cannot be slices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadClaim {
    #[error("it is not allocated")]
    NotAllocated,
    #[error("its uid {0:?} is none")]
    Uid(String),
    #[error("request {0:?} has adminAccess, which gives no slice: leave it out, and look with `tranche smi`")]
    AdminAccess(String),
    #[error("request {request:?} has device {device:?} of pool {pool:?}, which is not of this node")]
    Foreign { request: String, device: String, pool: String },
    #[error("request {request:?} has no {what} that can be read: {given:?}")]
    Capacity { request: String, what: &'static str, given: String },
    #[error(
        "request {request:?} has two parts of one GPU, which would not be one larger GPU: add the constraint \
         distinctAttribute {driver}/uuid for several GPUs, or request one larger part"
    )]
    SameGpu { request: String, driver: String },
    #[error("request {0:?} has parts of different sizes, which are no slice")]
    Uneven(String),
    #[error("request {request:?}: {why}")]
    BadParameters { request: String, why: BadSliceParameters },
    #[error(
        "request {0:?} has compute and the mode best-effort, which guarantees none: request compute 0, or another mode"
    )]
    BestEffort(String),
    #[error(
        "request {0:?} has compute 0, which is best-effort, and another mode: request at least 1, or leave the mode out"
    )]
    NoCompute(String),
}

/// Allocations that concern this driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPool<'a> {
    pub(crate) driver: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) profiles: &'a [PartProfile],
}

/// Slices of a claim, in the order of its allocation. None if nothing of it is this driver's.
pub(crate) fn parts(
    claim: &ResourceClaim,
    scope: OwnPool<'_>,
    capacities: &BTreeMap<GpuUuid, Bytes>,
) -> Result<Vec<ClaimPart>, BadClaim> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.ok_or(BadClaim::NotAllocated)?.devices.as_ref();
    let none = DeviceAllocationResult::default();
    let devices = devices.unwrap_or(&none);
    let ours = devices.results.iter().flatten().filter(|result| result.driver == scope.driver);
    let mut requests: Vec<(&str, Vec<&DeviceRequestAllocationResult>)> = Vec::new();
    for result in ours {
        match requests.iter_mut().find(|(name, _)| *name == result.request) {
            Some((_, results)) => results.push(result),
            None => requests.push((&result.request, vec![result])),
        }
    }
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let several = requests.len() > 1;
    let part = |(index, (request, results)): (usize, (&str, Vec<_>))| {
        let slice = name(uid, several.then_some(index)).ok_or_else(|| BadClaim::Uid(uid.to_owned()))?;
        let why = |why| BadClaim::BadParameters { request: request.to_owned(), why };
        let configurations = devices.config.as_deref().unwrap_or_default();
        let parameters = SliceParameters::of(scope.driver, request, configurations).map_err(why)?;
        ClaimPart::of(slice, request, &results, scope, capacities, parameters)
    };
    requests.into_iter().enumerate().map(part).collect()
}

/// Name of a claim's slice; with several requests, each has a number.
fn name(uid: &str, index: Option<usize>) -> Option<SliceName> {
    let is_uid = uid.len() == 36 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let index = index.map_or_else(String::new, |index| format!(".{index}"));
    is_uid.then(|| format!("{PREFIX}{uid}{index}").parse().ok())?
}

/// Uid of the claim whose slice has this name; `None` for slices that are not the driver's.
pub(crate) fn uid(slice: &SliceName) -> Option<&str> {
    let rest = slice.as_str().strip_prefix(PREFIX)?;
    let (uid, index) = rest.split_once('.').map_or((rest, None), |(uid, index)| (uid, Some(index)));
    let index = index.map(str::parse).transpose().ok()?;
    (name(uid, index).as_ref() == Some(slice)).then_some(uid)
}

impl ClaimPart {
    fn of(
        slice: SliceName,
        request: &str,
        results: &[&DeviceRequestAllocationResult],
        scope: OwnPool<'_>,
        capacities: &BTreeMap<GpuUuid, Bytes>,
        parameters: SliceParameters,
    ) -> Result<Self, BadClaim> {
        // A container names the request, and never its subrequest; the kubelet compares the two.
        let request = request.split('/').next().unwrap_or(request).to_owned();
        if results.iter().any(|result| result.admin_access == Some(true)) {
            return Err(BadClaim::AdminAccess(request));
        }
        let mut sizes = BTreeSet::new();
        let mut gpus = Vec::new();
        for result in results {
            let foreign = || BadClaim::Foreign {
                request: request.clone(),
                device: result.device.clone(),
                pool: result.pool.clone(),
            };
            let is_ours = result.pool == scope.pool;
            // Part of a profile's size, or of the size that was requested.
            if let Some((gpu, profile)) = profile::parse(&result.device, scope.profiles).filter(|_| is_ours) {
                gpus.push(gpu);
                sizes.insert(profile.size(*capacities.get(&gpu).ok_or_else(foreign)?));
            } else {
                gpus.push(device::gpu(&result.device).filter(|_| is_ours).ok_or_else(foreign)?);
                sizes.insert(size(&request, result)?);
            }
        }
        let (Some((memory, compute)), 1) = (sizes.first().copied(), sizes.len()) else {
            return Err(BadClaim::Uneven(request));
        };
        if gpus.iter().collect::<BTreeSet<_>>().len() < gpus.len() {
            return Err(BadClaim::SameGpu { request, driver: scope.driver.to_owned() });
        }
        if parameters.mode == Some(ComputeMode::BestEffort) && compute != Permille::ZERO {
            return Err(BadClaim::BestEffort(request));
        }
        if compute == Permille::ZERO && parameters.mode.is_some_and(|mode| mode != ComputeMode::BestEffort) {
            return Err(BadClaim::NoCompute(request));
        }
        let all = |gpu: &GpuUuid| capacities.get(gpu).is_some_and(|capacity| memory >= *capacity);
        let whole = compute == Permille::WHOLE && gpus.iter().all(all);
        let devices = results.iter().map(|result| (result.device.clone(), result.share_id.clone()));
        let devices = devices.collect();
        Ok(Self { slice, request, devices, gpus, memory, compute, parameters, whole })
    }

    /// Request that makes the slice, with the class's and the claim's parameters.
    pub(crate) fn slice_request(&self) -> SliceRequest {
        let count = u32::try_from(self.gpus.len()).ok().and_then(NonZeroU32::new);
        let idle_only = self.compute == Permille::ZERO;
        let (share, compute) = match count.filter(|_| self.whole) {
            Some(count) => (Share::Whole(count), None),
            None => (Share::Memory(self.memory), (!idle_only).then_some(self.compute)),
        };
        let mode = if idle_only { ComputeMode::BestEffort } else { self.parameters.mode.unwrap_or_default() };
        SliceRequest {
            name: Some(self.slice.clone()),
            compute,
            limit: self.parameters.limit,
            mode,
            priority: self.parameters.priority.unwrap_or_default(),
            latency: self.parameters.latency,
            gpus: self.gpus.iter().copied().map(GpuSelector::Uuid).collect(),
            several_containers: true,
            ..SliceRequest::of(share)
        }
    }
}

/// Memory, rounded up to MiB, and compute of a share.
fn size(request: &str, result: &DeviceRequestAllocationResult) -> Result<(Bytes, Permille), BadClaim> {
    let consumed = result.consumed_capacity.as_ref();
    let read = |what: &'static str| {
        let given = consumed.and_then(|consumed| consumed.get(what));
        given.and_then(quantity::whole).ok_or_else(|| BadClaim::Capacity {
            request: request.to_owned(),
            what,
            given: given.map(|quantity| quantity.0.clone()).unwrap_or_default(),
        })
    };
    let memory = read(MEMORY)?;
    let given = read(COMPUTE)?;
    let compute = u32::try_from(given).ok().and_then(|given| Permille::try_from(given).ok());
    let compute = compute.ok_or_else(|| BadClaim::Capacity {
        request: request.to_owned(),
        what: COMPUTE,
        given: given.to_string(),
    })?;
    Ok((Bytes::mib(memory.div_ceil(MIB.get())), compute))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{DRIVER, NODE, claim, node, result};
    use proptest::prelude::*;

    const UID: &str = "5d8c3c1a-0000-4000-8000-000000000001";
    const HALF: u64 = 16255 << 20;

    fn capacities() -> BTreeMap<GpuUuid, Bytes> {
        node(4).gpus.iter().map(|gpu| (gpu.uuid, device::memory(gpu))).collect()
    }

    fn read(results: Vec<DeviceRequestAllocationResult>) -> Result<Vec<ClaimPart>, BadClaim> {
        parts(&claim(UID, results), OwnPool { driver: DRIVER, pool: NODE, profiles: &[] }, &capacities())
    }

    #[test]
    fn request_is_one_slice_of_its_gpus() {
        let parts = read(vec![
            result("a", 0, HALF, 500),
            result("a", 1, HALF, 500),
            result("b", 0, 1 << 20, 0),
            DeviceRequestAllocationResult { driver: "other".into(), ..result("c", 2, 1, 1) },
        ])
        .unwrap();
        let [a, b] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!((a.slice.to_string(), a.gpus.len()), (format!("dra-{UID}.0"), 2));
        assert_eq!((uid(&a.slice), uid(&b.slice)), (Some(UID), Some(UID)));
        let (a, b) = (a.slice_request(), b.slice_request());
        assert_eq!((a.share, a.compute), (Share::Memory(Bytes::mib(16255)), Permille::try_from(500).ok()));
        assert_eq!((b.compute, b.mode), (None, ComputeMode::BestEffort));
    }

    #[test]
    fn all_of_a_gpu_is_a_whole_one() {
        let parts = read(vec![result("a", 3, 32510 << 20, 1000)]).unwrap();
        assert_eq!(parts[0].slice.to_string(), format!("dra-{UID}"));
        assert_eq!(parts[0].slice_request().share, Share::Whole(NonZeroU32::MIN));
        let parts = read(vec![result("a", 3, 32510 << 20, 999)]).unwrap();
        assert_eq!(parts[0].slice_request().share, Share::Memory(Bytes::mib(32510)));
    }

    #[test]
    fn subrequest_is_known_to_containers_by_its_request() {
        let parts = read(vec![result("a/small", 0, HALF, 500)]).unwrap();
        assert_eq!(parts[0].request, "a");
    }

    #[test]
    fn part_of_a_profile_has_its_size() {
        let profiles = [PartProfile::new("gpu-50".into(), 500).unwrap()];
        let scope = OwnPool { driver: DRIVER, pool: NODE, profiles: &profiles };
        let device = |ordinal| format!("{}-gpu-50-{ordinal}", device::name(node(1).gpus[0].uuid));
        let result = |ordinal| DeviceRequestAllocationResult {
            device: device(ordinal),
            consumed_capacity: None,
            ..result("a", 0, 0, 0)
        };
        let read = |results| parts(&claim(UID, results), scope, &capacities());
        let request = read(vec![result(1)]).unwrap()[0].slice_request();
        assert_eq!(request.share, Share::Memory(Bytes::mib(16255)));
        assert_eq!(request.compute, Permille::try_from(500).ok());
        assert_eq!(
            read(vec![result(0), result(1)]),
            Err(BadClaim::SameGpu { request: "a".into(), driver: DRIVER.into() })
        );
        assert!(matches!(read(vec![result(2)]), Err(BadClaim::Foreign { .. })));
    }

    #[test]
    fn what_is_no_slice_is_refused() {
        let none = claim(UID, Vec::new());
        let unallocated = ResourceClaim { status: None, ..none.clone() };
        let scope = OwnPool { driver: DRIVER, pool: NODE, profiles: &[] };
        assert_eq!(parts(&unallocated, scope, &capacities()), Err(BadClaim::NotAllocated));
        assert_eq!(parts(&none, scope, &capacities()), Ok(Vec::new()));
        let bad_uid = claim("../../etc", vec![result("a", 0, HALF, 500)]);
        assert_eq!(parts(&bad_uid, scope, &capacities()), Err(BadClaim::Uid("../../etc".into())));
        let same = read(vec![result("a", 0, HALF, 500), result("a", 0, HALF, 500)]);
        assert_eq!(same, Err(BadClaim::SameGpu { request: "a".into(), driver: DRIVER.into() }));
        let uneven = read(vec![result("a", 0, HALF, 500), result("a", 1, HALF, 400)]);
        assert_eq!(uneven, Err(BadClaim::Uneven("a".into())));
        let foreign = DeviceRequestAllocationResult { pool: "n2".into(), ..result("a", 0, HALF, 500) };
        assert!(matches!(read(vec![foreign]), Err(BadClaim::Foreign { .. })));
        let much = read(vec![result("a", 0, HALF, 1001)]);
        assert!(matches!(much, Err(BadClaim::Capacity { what: COMPUTE, .. })), "{much:?}");
        let admin = DeviceRequestAllocationResult { admin_access: Some(true), ..result("a", 0, HALF, 500) };
        assert_eq!(read(vec![admin]), Err(BadClaim::AdminAccess("a".into())));
    }

    proptest! {
        #[test]
        fn name_determines_the_uid(hex in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", index in proptest::option::of(0..99usize)) {
            let name = name(&hex, index).unwrap();
            prop_assert_eq!(uid(&name), Some(hex.as_str()));
        }

        #[test]
        fn other_names_have_no_uid(text in "(dra-)?[0-9a-f.-]{1,44}") {
            if let Ok(slice) = text.parse::<SliceName>()
                && let Some(uid) = uid(&slice)
            {
                prop_assert!(text.starts_with("dra-") && uid.len() == 36);
            }
        }
    }
}
