//! gRPC server: the connection settings and the services of all the daemon's sockets.

use std::sync::Arc;
use std::time::Duration;

use tonic::service::Routes;
use tonic::transport::Server;
use tranche_rpc::v1::jobs_server::JobsServer;
use tranche_rpc::v1::node_server::NodeServer;

use crate::agent::Agent;
use crate::jobs::JobsService;
use crate::service::NodeService;

/// Time granted to calls in progress when the daemon ends.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Concurrent calls on one connection.
const MOST_CALLS: u32 = 64;
/// Largest headers of a call, in bytes; the clients send a few hundred.
const MOST_HEADERS: u32 = 16 << 10;
/// Interval of keep-alive pings on a silent connection, and the longest wait for the reply.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// Largest message, in bytes: the largest sensible request names sixteen GPUs and a pod.
const LONGEST_MESSAGE: usize = 16 << 10;
/// Largest message with a job, in bytes: its command and its environment.
const LONGEST_JOB: usize = 1 << 20;
/// Connection settings of all the daemon's servers. Unresponsive peers are disconnected.
pub(crate) fn server() -> Server {
    Server::builder()
        .max_concurrent_streams(MOST_CALLS)
        .http2_max_header_list_size(MOST_HEADERS)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PONG_WITHIN))
}

/// The gRPC services of node and jobs, each with its largest message.
pub(crate) fn routes(agent: &Arc<Agent>, jobs: JobsService) -> Routes {
    let node = NodeServer::new(NodeService(Arc::clone(agent))).max_decoding_message_size(LONGEST_MESSAGE);
    Routes::new(JobsServer::new(jobs).max_decoding_message_size(LONGEST_JOB)).add_service(node)
}
