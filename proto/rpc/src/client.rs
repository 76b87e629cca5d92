//! Client of the daemon for the kubelet's adapters.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::{Code, Status};
use tranche_domain::id::SliceName;
use tranche_domain::pod::PodContainer;
use tranche_domain::request::SliceRequest;
use tranche_domain::view::NodeView;

use crate::{BadMessage, ConnectError, connect, v1};

/// Time limit of a call; ending a slice includes the end of its processes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Client of the daemon at this socket, which connects anew for each call.
#[derive(Debug)]
pub struct Daemon {
    /// Path of its socket.
    pub socket: PathBuf,
}

/// Failure of a call to the daemon.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum DaemonError {
    #[error("{0}; it is tried again")]
    Away(#[from] ConnectError),
    #[error("tranched does not answer within {:?}; it is tried again", PATIENCE)]
    Silent,
    #[error("tranched: {}", .0.message())]
    Refused(Box<Status>),
    #[error("tranched's answer makes no sense: {0}; are it and its client of the same version?")]
    Unreadable(#[from] BadMessage),
}

impl From<Status> for DaemonError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

impl From<DaemonError> for Status {
    /// Status for the kubelet, which shows its message with the pod.
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Refused(ref status) => Self::new(status.code(), error.to_string()),
            DaemonError::Away(_) | DaemonError::Silent => Self::unavailable(error.to_string()),
            DaemonError::Unreadable(_) => Self::internal(error.to_string()),
        }
    }
}

type Client = v1::node_client::NodeClient<tonic::transport::Channel>;

impl Daemon {
    /// View of the node.
    ///
    /// # Errors
    /// If the daemon is away, is silent, or refuses.
    pub async fn node(&self) -> Result<NodeView, DaemonError> {
        let view =
            self.ask(|mut node: Client| async move { node.snapshot(v1::SnapshotRequest {}).await }).await?;
        Ok(view.try_into()?)
    }

    /// Creates a slice without waiting for room.
    ///
    /// # Errors
    /// If the daemon is away, is silent, or refuses.
    pub async fn make(&self, request: SliceRequest) -> Result<(), DaemonError> {
        let request = v1::CreateSliceRequest::from(request);
        self.ask(|mut node: Client| async move { node.create_slice(request).await }).await.map(drop)
    }

    /// Sets the pod of a slice.
    ///
    /// # Errors
    /// If the daemon is away, is silent, or refuses.
    pub async fn label(&self, name: &SliceName, pod: PodContainer) -> Result<(), DaemonError> {
        let request = v1::LabelSliceRequest { name: name.to_string(), pod: Some(pod.into()) };
        self.ask(|mut node: Client| async move { node.label_slice(request).await }).await.map(drop)
    }

    /// Ends a slice; with `force`, its processes too. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the daemon is away, is silent, or refuses.
    pub async fn end(&self, name: &SliceName, force: bool) -> Result<(), DaemonError> {
        let request = v1::DeleteSliceRequest { name: name.to_string(), force };
        match self.ask(|mut node: Client| async move { node.delete_slice(request).await }).await {
            Err(DaemonError::Refused(status)) if status.code() == Code::NotFound => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Notifies of changes in the health of GPUs, at first immediately, until the daemon disconnects.
    ///
    /// # Errors
    /// If the daemon is away, is silent, or refuses.
    pub async fn follow(&self, changed: &Notify) -> Result<(), DaemonError> {
        let mut node = connect(&self.socket).await?;
        let mut turns = node.follow_gpus(v1::FollowGpusRequest {}).await?.into_inner();
        while turns.message().await?.is_some() {
            changed.notify_one();
        }
        Ok(())
    }

    async fn ask<T, F>(&self, question: impl FnOnce(Client) -> F) -> Result<T, DaemonError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let asked = async {
            let node = connect(&self.socket).await?;
            Ok::<_, DaemonError>(question(node).await?.into_inner())
        };
        timeout(PATIENCE, asked).await.unwrap_or(Err(DaemonError::Silent))
    }
}
