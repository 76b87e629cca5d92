//! Reaching the daemon over its unix socket.

use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::v1::jobs_client::JobsClient;
use crate::v1::node_client::NodeClient;

/// A list of a hundred thousand jobs, or a year's history of them, in bytes.
const LONGEST_ANSWER: usize = 64 << 20;

/// Why the daemon could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to tranched at {}: {cause}", .socket.display())]
pub struct ConnectError {
    /// The socket that was tried.
    pub socket: PathBuf,
    /// What the kernel said.
    pub cause: std::io::Error,
}

/// Connects to the daemon at `socket`, once: a daemon that is not there is an answer, not a reason to wait.
pub async fn connect(socket: &Path) -> Result<NodeClient<Channel>, ConnectError> {
    dial(socket).await.map(NodeClient::new)
}

/// The same for its jobs.
pub async fn connect_to_jobs(socket: &Path) -> Result<JobsClient<Channel>, ConnectError> {
    dial(socket).await.map(|channel| JobsClient::new(channel).max_decoding_message_size(LONGEST_ANSWER))
}

async fn dial(socket: &Path) -> Result<Channel, ConnectError> {
    let failed = |cause| ConnectError { socket: socket.to_owned(), cause };
    let first = UnixStream::connect(socket).await.map_err(failed)?;
    drop(first); // tells why it fails far better than the channel would
    let path = socket.to_owned();
    let dial = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The name is never resolved; HTTP/2 only wants one.
    let channel = Endpoint::from_static("http://tranched").connect_with_connector(dial).await;
    channel.map_err(|error| failed(std::io::Error::other(error)))
}
