//! Slices of containers: made for them, and ended with their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tonic::Code;
use tranche_cdi::names;
use tranche_cdi::spec::Spec;
use tranche_domain::id::SliceName;
use tranche_domain::pod::{PodContainer, PodUid};
use tranche_domain::view::SliceView;
use tranche_domain::word::BadWord;
use tranche_nri::api;
use tranche_rpc::{Daemon, DaemonError};

use crate::adjustment::{self, NotAdjusted};
use crate::config::PluginConfig;
use crate::container;
use crate::metrics::PluginCounters;
use crate::name;
use crate::wanted::{BadAnnotation, WantedPart};

/// The plugin's work with the daemon.
#[derive(Debug)]
pub(crate) struct PodSlices {
    pub(crate) config: PluginConfig,
    pub(crate) daemon: Daemon,
    pub(crate) counters: Arc<PluginCounters>,
    /// Slices that have to end.
    ending: Mutex<BTreeSet<Ended>>,
    /// The last container of each slice.
    holders: Mutex<BTreeMap<SliceName, LastContainer>>,
    /// Held while a slice is made or ended: no slice is ended that a container is about to keep.
    turn: tokio::sync::Mutex<()>,
    pub(crate) changed: Notify,
}

/// Slices that have to end: a pod's, or one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ended {
    Pod(PodUid),
    Slice(SliceName),
}

impl Ended {
    fn includes(&self, slice: &SliceView) -> bool {
        match (self, name::pod(slice)) {
            (Self::Pod(uid), Some(pod)) => uid == pod,
            (Self::Slice(name), Some(_)) => *name == slice.name,
            (_, None) => false,
        }
    }
}

/// A container by time of creation, so that the greatest is the last, and id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LastContainer {
    created_at: i64,
    id: String,
}

/// Reason for which a container is not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerError {
    #[error(transparent)]
    Annotation(#[from] BadAnnotation),
    #[error("its pod cannot have a slice: {0}")]
    Pod(#[from] BadWord),
    #[error("its pod's uid {0:?} is none")]
    Uid(String),
    #[error("slice {0} has processes of another container; end it with `tranche slice delete --force {0}`")]
    InUse(SliceName),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("the document of its slice, {}, cannot be read: {cause}", .path.display())]
    Document { path: PathBuf, cause: std::io::Error },
    #[error("the document of its slice, {}: {cause}", .path.display())]
    Adjustment { path: PathBuf, cause: NotAdjusted },
    #[error("tranched did not make its slice in time")]
    Late,
}

impl ContainerError {
    const fn outcome(&self) -> &'static str {
        match self {
            Self::Annotation(_) | Self::Pod(_) | Self::Uid(_) | Self::InUse(_) => "refused",
            Self::Daemon(DaemonError::Refused(_)) => "refused",
            Self::Daemon(_) | Self::Document { .. } | Self::Adjustment { .. } | Self::Late => "failed",
        }
    }
}

impl PodSlices {
    pub(crate) fn new(config: PluginConfig) -> Self {
        Self {
            daemon: Daemon { socket: config.tranched_socket.clone() },
            counters: Arc::new(PluginCounters::new()),
            ending: Mutex::default(),
            holders: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            config,
        }
    }

    /// Makes the slice that the pod requests for the container. `None` if it requests none.
    pub(crate) async fn create(
        &self,
        pod: &api::PodSandbox,
        container: &api::Container,
    ) -> Result<Option<api::ContainerAdjustment>, ContainerError> {
        let wanted = WantedPart::of(&pod.annotations, &container.name, &container.env)?;
        let Some(wanted) = wanted else { return Ok(None) };
        let label = container::label(pod, container)?;
        let uid = label.uid.clone().ok_or_else(|| ContainerError::Uid(pod.uid.clone()))?;
        let slice = name::of(&uid, &container.name).ok_or_else(|| ContainerError::Uid(pod.uid.clone()))?;
        let _turn = self.turn.lock().await;
        // A pod that begins again keeps its slices.
        let ends = [Ended::Pod(uid), Ended::Slice(slice.clone())];
        self.ending().retain(|one| !ends.contains(one));
        self.make(&slice, wanted, label).await?;
        let created_at = i64::MAX; // the runtime names no time yet
        self.holders().insert(slice.clone(), LastContainer { created_at, id: container.id.clone() });
        let path = self.config.cdi_dir.join(names::file_name(&slice));
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(cause) => return Err(ContainerError::Document { path, cause }),
        };
        let adjusted = serde_json::from_slice::<Spec>(&text)
            .map_err(|error| NotAdjusted::Field(error.to_string()))
            .and_then(|spec| adjustment::of(&spec, &self.config.node_root));
        adjusted.map(Some).map_err(|cause| ContainerError::Adjustment { path, cause })
    }

    /// Counts and logs what became of a container.
    pub(crate) fn note(
        &self,
        pod: &api::PodSandbox,
        container: &api::Container,
        created: &Result<Option<api::ContainerAdjustment>, ContainerError>,
    ) {
        let name = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
        match created {
            Ok(None) => {}
            Ok(Some(_)) => {
                self.counters.container("sliced");
                tracing::info!(container = name, "has its slice");
            }
            Err(error) => {
                self.counters.container(error.outcome());
                tracing::warn!(container = name, "not created: {error}");
            }
        }
    }

    /// Keeps a slice of an earlier container of this name, unless it is another part or on other GPUs.
    async fn make(
        &self,
        slice: &SliceName,
        wanted: WantedPart,
        pod: PodContainer,
    ) -> Result<(), ContainerError> {
        let node = self.daemon.node().await?;
        if let Some(there) = node.slices.iter().find(|one| one.name == *slice) {
            if container::is_part(there, &wanted) {
                return Ok(());
            }
            match self.daemon.end(slice, false).await {
                Err(DaemonError::Refused(status)) if status.code() == Code::FailedPrecondition => {
                    return Err(ContainerError::InUse(slice.clone()));
                }
                ended => ended?,
            }
        }
        Ok(self.daemon.make(container::request(slice, wanted, pod)).await?)
    }

    /// Ends a pod's slices as soon as the daemon does it.
    pub(crate) fn end(&self, uid: &str) {
        if let Ok(uid) = uid.parse() {
            self.ending().insert(Ended::Pod(uid));
            self.changed.notify_one();
        }
    }

    /// Notes a container that has a slice, if no later one has it.
    pub(crate) fn hold(&self, pod: &api::PodSandbox, container: &api::Container) {
        let Some(slice) = container::slice_name(pod, container) else { return };
        let holder = LastContainer { created_at: container.created_at, id: container.id.clone() };
        let mut holders = self.holders();
        if holders.get(&slice).is_none_or(|last| *last < holder) {
            holders.insert(slice, holder);
        }
    }

    /// Ends the slice of a container that is removed, unless a later one has it.
    ///
    /// The kubelet keeps the last container of each name as long as the pod.
    pub(crate) fn remove(&self, pod: &api::PodSandbox, container: &api::Container) {
        let Some(slice) = container::slice_name(pod, container) else { return };
        let mut holders = self.holders();
        if holders.get(&slice).is_some_and(|last| last.id == container.id) {
            holders.remove(&slice);
            self.ending().insert(Ended::Slice(slice));
            self.changed.notify_one();
        }
    }

    /// Ends all slices but these.
    pub(crate) async fn sweep(&self, kept: &BTreeSet<SliceName>) -> Result<(), DaemonError> {
        let node = self.daemon.node().await?;
        let gone =
            node.slices.iter().filter(|slice| name::pod(slice).is_some() && !kept.contains(&slice.name));
        self.ending().extend(gone.map(|slice| Ended::Slice(slice.name.clone())));
        self.changed.notify_one();
        Ok(())
    }

    /// Ends what has to end. The daemon is read in any case.
    pub(crate) async fn end_pending(&self) -> Result<(), DaemonError> {
        let _turn = self.turn.lock().await;
        let node = self.daemon.node().await?;
        let pending = self.ending().clone();
        for one in pending {
            for slice in node.slices.iter().filter(|slice| one.includes(slice)) {
                self.daemon.end(&slice.name, true).await?;
                self.holders().remove(&slice.name);
                self.counters.ended();
                tracing::info!(slice = %slice.name, "ended: its pod is gone");
            }
            self.ending().remove(&one);
        }
        Ok(())
    }

    fn ending(&self) -> MutexGuard<'_, BTreeSet<Ended>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holders(&self) -> MutexGuard<'_, BTreeMap<SliceName, LastContainer>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
