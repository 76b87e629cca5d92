//! The driver: carries out what the kubelet wants done with claims.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::time::Instant;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::units::Bytes;
use tranche_domain::view::{NodeView, SliceView};
use tranche_kubelet::dra as api;
use tranche_rpc::{Daemon, DaemonError};

use crate::claim::{self, BadClaim, ClaimPart, OwnPool};
use crate::config::DriverConfig;
use crate::device;
use crate::metrics::DriverCounters;
use crate::turns::ClaimTurns;

/// Prefix of the CDI device of a slice; the daemon writes its description.
pub(crate) const CDI_KIND: &str = "tranche.dev/slice=";

/// Client of daemon and API server that turns claims into slices.
#[derive(Debug)]
pub(crate) struct DraDriver {
    pub(crate) config: DriverConfig,
    pub(crate) daemon: Daemon,
    pub(crate) client: DebugClient,
    pub(crate) counters: Arc<DriverCounters>,
    /// Wakes the main loop, which then reads everything again.
    pub(crate) changed: Notify,
    /// Wakes the main loop soon after a claim was prepared, to set the pod of its slices.
    pub(crate) prepared: Notify,
    /// Held while slices are made or ended.
    pub(crate) turns: ClaimTurns,
    /// Memory of the node's GPUs, as the daemon last listed them.
    capacities: Mutex<BTreeMap<GpuUuid, Bytes>>,
}

/// Client of the API server, which has no text form.
#[derive(Clone)]
pub(crate) struct DebugClient(pub(crate) Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Reason for which a claim is not prepared, or not unprepared. The kubelet shows it with the pod and tries again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("claim {claim} cannot be read: {cause}")]
    Unread { claim: String, cause: Box<kube::Error> },
    #[error("claim {claim} is gone, or another one has its name")]
    Replaced { claim: String },
    #[error("claim {claim}: {cause}")]
    Bad { claim: String, cause: BadClaim },
    #[error(
        "claim {claim}: slice {slice} is in use on other GPUs; end it with `tranche slice delete --force {slice}`"
    )]
    Elsewhere { claim: String, slice: SliceName },
    #[error("claim {claim}: {cause}")]
    Daemon { claim: String, cause: DaemonError },
}

impl ClaimError {
    /// Outcome in the metrics: an error that passes by itself is a failure, and another one a refusal.
    const fn outcome(&self) -> &'static str {
        match self {
            Self::Bad { .. } | Self::Replaced { .. } | Self::Elsewhere { .. } => "refused",
            Self::Daemon { cause: DaemonError::Refused(_), .. } => "refused",
            Self::Unread { .. } | Self::Daemon { .. } => "failed",
        }
    }
}

impl DraDriver {
    pub(crate) fn new(config: DriverConfig, client: Client) -> Self {
        Self {
            daemon: Daemon { socket: config.tranched_socket.clone() },
            client: DebugClient(client),
            counters: Arc::new(DriverCounters::new()),
            changed: Notify::new(),
            prepared: Notify::new(),
            turns: ClaimTurns::default(),
            capacities: Mutex::default(),
            config,
        }
    }

    /// Makes the slices of a claim, all or none; those that are there already stay as they are.
    pub(crate) async fn prepare(&self, claim: &api::Claim) -> Result<Vec<api::Device>, ClaimError> {
        let begun = Instant::now();
        let prepared = self.try_to_prepare(claim).await;
        self.counters.prepare(prepared.as_ref().map_or_else(ClaimError::outcome, |_| "prepared"));
        match &prepared {
            Ok(_) => {
                self.counters.prepared_within(begun.elapsed());
                self.prepared.notify_one();
                tracing::info!(claim = %named(claim), uid = claim.uid, "prepared");
            }
            Err(error) => tracing::warn!("{error}"),
        }
        prepared
    }

    async fn try_to_prepare(&self, claim: &api::Claim) -> Result<Vec<api::Device>, ClaimError> {
        let object = self.read(claim).await?;
        let _turn = self.turns.at(&claim.uid).await;
        let capacities = self.capacities(claim).await?;
        let scope =
            OwnPool { driver: &self.config.driver, pool: &self.config.node, profiles: &self.config.profiles };
        let parts = claim::parts(&object, scope, &capacities)
            .map_err(|cause| ClaimError::Bad { claim: named(claim), cause })?;
        self.make(claim, &parts).await?;
        Ok(parts.iter().flat_map(|part| self.devices(part)).collect())
    }

    /// Takes the memory of the node's GPUs from a view of the daemon. One without any GPU is of a daemon without a driver.
    pub(crate) fn observe(&self, node: &NodeView) {
        if node.gpus.is_empty() {
            return;
        }
        *self.known() = node.gpus.iter().map(|gpu| (gpu.uuid, device::memory(gpu))).collect();
    }

    /// Memory of the node's GPUs, which is constant as long as the daemon runs.
    async fn capacities(&self, claim: &api::Claim) -> Result<BTreeMap<GpuUuid, Bytes>, ClaimError> {
        let known = self.known().clone();
        if !known.is_empty() {
            return Ok(known);
        }
        let node = self.daemon.node().await;
        self.observe(&node.map_err(|cause| ClaimError::Daemon { claim: named(claim), cause })?);
        Ok(self.known().clone())
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, Bytes>> {
        self.capacities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claim as the API server has it now, and not as a cache had it.
    async fn read(&self, claim: &api::Claim) -> Result<ResourceClaim, ClaimError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.0.clone(), &claim.namespace);
        let read = claims.get_opt(&claim.name).await;
        let object =
            read.map_err(|cause| ClaimError::Unread { claim: named(claim), cause: Box::new(cause) })?;
        let same = object.filter(|object| object.metadata.uid.as_deref() == Some(&claim.uid));
        same.ok_or_else(|| ClaimError::Replaced { claim: named(claim) })
    }

    async fn make(&self, claim: &api::Claim, parts: &[ClaimPart]) -> Result<(), ClaimError> {
        for part in parts {
            if let Err(error) = self.make_part(claim, part).await {
                self.take_back(parts).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes a slice, without a snapshot of the node before: the daemon refuses one that exists.
    async fn make_part(&self, claim: &api::Claim, part: &ClaimPart) -> Result<(), ClaimError> {
        let failed = |cause| ClaimError::Daemon { claim: named(claim), cause };
        let refusal = match self.daemon.make(part.slice_request()).await {
            Ok(()) => return Ok(()),
            Err(refusal @ DaemonError::Refused(_)) => refusal,
            Err(error) => return Err(failed(error)),
        };
        let node = self.daemon.node().await.map_err(failed)?;
        match node.slices.iter().find(|slice| slice.name == part.slice) {
            Some(slice) if has_gpus_of(slice, part) => Ok(()),
            // Left of an earlier allocation of the same claim, whose end was never requested.
            Some(_) => {
                let ended = self.daemon.end(&part.slice, false).await;
                ended
                    .map_err(|_| ClaimError::Elsewhere { claim: named(claim), slice: part.slice.clone() })?;
                self.daemon.make(part.slice_request()).await.map_err(failed)
            }
            None => Err(failed(refusal)),
        }
    }

    /// Ends the slices of a claim that is not prepared after all.
    ///
    /// Those of an attempt that was broken off are included, and one with a process stays.
    async fn take_back(&self, parts: &[ClaimPart]) {
        for part in parts {
            if let Err(error) = self.daemon.end(&part.slice, false).await {
                tracing::warn!(slice = %part.slice, %error, "cannot be ended; the next attempt finds it");
            }
        }
    }

    /// Devices for the kubelet. The first names the slice, which is one for all of them.
    fn devices(&self, part: &ClaimPart) -> Vec<api::Device> {
        let device = |(index, (device, share)): (usize, &(String, Option<String>))| api::Device {
            request_names: vec![part.request.clone()],
            pool_name: self.config.node.clone(),
            device_name: device.clone(),
            cdi_device_ids: if index == 0 { vec![format!("{CDI_KIND}{}", part.slice)] } else { Vec::new() },
            share_id: share.clone(),
        };
        part.devices.iter().enumerate().map(device).collect()
    }

    /// Ends the slices of a claim. The kubelet has ended its containers; a program that is left is killed.
    pub(crate) async fn unprepare(&self, claim: &api::Claim) -> Result<(), ClaimError> {
        let ended = self.try_to_unprepare(claim).await;
        self.counters.unprepare(ended.is_ok());
        match &ended {
            Ok(()) => tracing::info!(claim = %named(claim), uid = claim.uid, "unprepared"),
            Err(error) => tracing::warn!("{error}"),
        }
        ended
    }

    async fn try_to_unprepare(&self, claim: &api::Claim) -> Result<(), ClaimError> {
        let failed = |cause| ClaimError::Daemon { claim: named(claim), cause };
        let _turn = self.turns.at(&claim.uid).await;
        let node = self.daemon.node().await.map_err(failed)?;
        for slice in node.slices.iter().filter(|slice| claim::uid(&slice.name) == Some(&claim.uid)) {
            self.daemon.end(&slice.name, true).await.map_err(failed)?;
        }
        Ok(())
    }
}

fn has_gpus_of(slice: &SliceView, part: &ClaimPart) -> bool {
    let mut is: Vec<_> = slice.devices.iter().map(|device| device.gpu_uuid).collect();
    let mut wanted = part.gpus.clone();
    is.sort_unstable();
    wanted.sort_unstable();
    is == wanted
}

fn named(claim: &api::Claim) -> String {
    format!("{}/{}", claim.namespace, claim.name)
}
