//! Client of the daemon's socket: what the page reads, and nothing else.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonic::Status;
use tonic::transport::Channel;
use tranche_domain::jobs::{JobView, ProjectView};
use tranche_domain::text::visible_within;
use tranche_domain::view::NodeView;
use tranche_rpc::v1::jobs_client::JobsClient;
use tranche_rpc::v1::node_client::NodeClient;
use tranche_rpc::v1::{ListJobsRequest, ListProjectsRequest, ShowHistoryRequest, SnapshotRequest};
use tranche_rpc::{BadMessage, ConnectError};

use crate::columns::allocation;
use crate::limits::LONGEST_REASON;
use crate::overview::Allocation;
use crate::time::now_unix_ms;

/// Time limit of all calls of one reading.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two readings of the history, which the daemon reads from its disk.
const BETWEEN_HISTORIES: Duration = Duration::from_secs(30);

/// Everything that one overview is made of.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) node: NodeView,
    pub(crate) projects: Vec<ProjectView>,
    pub(crate) jobs: Vec<JobView>,
    pub(crate) allocation: Option<Allocation>,
}

/// Failure to read the daemon's state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("tranched refuses: {}", visible_within(.0.message(), LONGEST_REASON))]
    Refused(#[from] Status),
    #[error("tranched sends what cannot be read: {0}")]
    Message(#[from] BadMessage),
    #[error("tranched does not answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// A connection to the daemon that is made again after a failure.
#[derive(Debug)]
pub(crate) struct DaemonClient {
    socket: PathBuf,
    clients: Option<(NodeClient<Channel>, JobsClient<Channel>)>,
    /// Chart of the last history, with the time of its reading.
    allocation: Option<(Instant, Option<Allocation>)>,
}

impl DaemonClient {
    /// A client of the daemon at `socket`, not connected yet.
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), clients: None, allocation: None }
    }

    /// State of the node now.
    pub(crate) async fn read(&mut self) -> Result<Reading, ReadError> {
        self.in_time(async |client| client.try_read().await).await
    }

    /// GPUs and slices of the node now, without jobs.
    pub(crate) async fn sample(&mut self) -> Result<NodeView, ReadError> {
        let sample = async |client: &mut Self| {
            let (mut node, _) = client.clients().await?;
            Ok(node.snapshot(SnapshotRequest {}).await?.into_inner().try_into()?)
        };
        self.in_time(sample).await
    }

    /// The answer to calls within their time limit; connects anew after a failure.
    async fn in_time<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let answer = tokio::time::timeout(PATIENCE, call(self)).await.unwrap_or(Err(ReadError::Silent));
        if answer.is_err() {
            self.clients = None;
        }
        answer
    }

    async fn try_read(&mut self) -> Result<Reading, ReadError> {
        let (mut node, mut jobs) = self.clients().await?;
        let view = node.snapshot(SnapshotRequest {}).await?.into_inner();
        let projects = jobs.list_projects(ListProjectsRequest {}).await?.into_inner().projects;
        let listed = jobs.list_jobs(ListJobsRequest::default()).await?.into_inner().jobs;
        let allocation = self.allocation(&mut jobs).await?;
        Ok(Reading {
            node: view.try_into()?,
            projects: projects.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            jobs: listed.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            allocation,
        })
    }

    async fn clients(&mut self) -> Result<(NodeClient<Channel>, JobsClient<Channel>), ReadError> {
        if let Some(clients) = &self.clients {
            return Ok(clients.clone());
        }
        let node = tranche_rpc::connect(&self.socket).await?;
        let jobs = tranche_rpc::connect_to_jobs(&self.socket).await?;
        Ok(self.clients.insert((node, jobs)).clone())
    }

    async fn allocation(&mut self, jobs: &mut JobsClient<Channel>) -> Result<Option<Allocation>, ReadError> {
        match &self.allocation {
            Some((at, allocation)) if at.elapsed() < BETWEEN_HISTORIES => Ok(allocation.clone()),
            _ => {
                let answer = jobs.show_history(ShowHistoryRequest { since_unix_ms: 0 }).await?;
                let drawn = allocation(&answer.into_inner().points, now_unix_ms());
                self.allocation = Some((Instant::now(), drawn.clone()));
                Ok(drawn)
            }
        }
    }
}
