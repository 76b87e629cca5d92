//! Slices of containers: made for them, and ended with their pods.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tonic::Code;
use tranche_cdi::names;
use tranche_cdi::spec::Spec;
use tranche_domain::id::SliceName;
use tranche_domain::pod::PodContainer;
use tranche_domain::word::BadWord;
use tranche_nri::api;
use tranche_rpc::{Daemon, DaemonError};

use crate::adjustment::{self, NotAdjusted};
use crate::config::PluginConfig;
use crate::container;
use crate::metrics::PluginCounters;
use crate::name;
use crate::record::{LastContainer, SliceRecord};
use crate::wanted::{BadAnnotation, WantedPart};

/// The plugin's work with the daemon.
#[derive(Debug)]
pub(crate) struct PodSlices {
    pub(crate) config: PluginConfig,
    pub(crate) daemon: Daemon,
    pub(crate) counters: Arc<PluginCounters>,
    record: Mutex<SliceRecord>,
    /// Held during a response, so that the program does not end within one.
    pub(crate) responding: tokio::sync::Mutex<()>,
    pub(crate) changed: Notify,
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
    #[error("its earlier slice {0} is being ended; it is tried again")]
    Ending(SliceName),
    #[error("tranched did not make its slice in time")]
    Late,
}

impl ContainerError {
    const fn outcome(&self) -> &'static str {
        match self {
            Self::Annotation(_) | Self::Pod(_) | Self::Uid(_) | Self::InUse(_) => "refused",
            Self::Daemon(DaemonError::Refused(_)) => "refused",
            Self::Daemon(_)
            | Self::Document { .. }
            | Self::Adjustment { .. }
            | Self::Ending(_)
            | Self::Late => "failed",
        }
    }
}

impl PodSlices {
    pub(crate) fn new(config: PluginConfig) -> Self {
        Self {
            daemon: Daemon { socket: config.tranched_socket.clone() },
            counters: Arc::new(PluginCounters::new()),
            record: Mutex::default(),
            responding: tokio::sync::Mutex::default(),
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
        let mut making = MakingSlice::begin(self, &slice)?;
        self.make(&slice, wanted, label).await?;
        making.container = Some(LastContainer {
            pod: uid,
            sandbox: pod.id.clone(),
            id: container.id.clone(),
            created_at: i64::MAX, // the runtime names no time yet
            stopped: false,
        });
        let path = self.config.cdi_dir.join(names::file_name(&slice));
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(cause) => return Err(ContainerError::Document { path, cause }),
        };
        let adjusted = serde_json::from_slice::<Spec>(&text)
            .map_err(|error| NotAdjusted::Field(error.to_string()))
            .and_then(|spec| adjustment::of(&spec, &self.config.node_root, &container.env));
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
        container::check_memory(&wanted, &node)?;
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
        let stopped = pod.uid.as_ref().map(|uid| self.record().stopped(uid)).unwrap_or_default();
        let request = container::request(slice, wanted, pod);
        match self.daemon.make(request.clone()).await {
            // An init container's part is the next one's.
            Err(DaemonError::Refused(_)) if !stopped.is_empty() => {
                for slice in &stopped {
                    self.daemon.end(slice, false).await?;
                }
                Ok(self.daemon.make(request).await?)
            }
            made => Ok(made?),
        }
    }

    /// Ends the slices of a pod's sandbox as soon as the daemon does it.
    pub(crate) fn end(&self, pod: &api::PodSandbox) {
        if let Ok(uid) = pod.uid.parse() {
            self.record().end_sandbox(uid, &pod.id);
            self.changed.notify_one();
        }
    }

    /// Ends the slice of a container that is removed, unless a later one has it.
    pub(crate) fn remove(&self, pod: &api::PodSandbox, container: &api::Container) {
        if let Some(slice) = container::slice_name(pod, container) {
            self.record().remove(&slice, &container.id);
            self.changed.notify_one();
        }
    }

    /// Ends what has to end. The daemon is read in any case.
    pub(crate) async fn end_pending(&self) -> Result<(), DaemonError> {
        let node = self.daemon.node().await?;
        let due = self.record().due(&node.slices);
        let mut result = Ok(());
        for (slice, forced) in due {
            match self.daemon.end(&slice, forced).await {
                Ok(()) => {
                    self.counters.ended();
                    tracing::info!(%slice, "ended: its pod is gone");
                }
                Err(DaemonError::Refused(status)) if !forced && status.code() == Code::FailedPrecondition => {
                    self.record().except(&slice);
                }
                Err(error) => result = Err(error),
            }
            self.record().over(&slice);
        }
        result
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, SliceRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slice that is being made, also if the making is given up half-way.
struct MakingSlice<'a> {
    slices: &'a PodSlices,
    slice: &'a SliceName,
    container: Option<LastContainer>,
}

impl<'a> MakingSlice<'a> {
    fn begin(slices: &'a PodSlices, slice: &'a SliceName) -> Result<Self, ContainerError> {
        if !slices.record().begin(slice) {
            return Err(ContainerError::Ending(slice.clone()));
        }
        Ok(Self { slices, slice, container: None })
    }
}

impl Drop for MakingSlice<'_> {
    fn drop(&mut self) {
        self.slices.record().done(self.slice, self.container.take());
    }
}
