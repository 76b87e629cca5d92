//! Calls of the daemon without a command in between, for parts that make thousands of them.

use std::path::Path;

use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use tonic::transport::Channel;
use tranche_rpc::v1::node_client::NodeClient;
use tranche_rpc::v1::share::Kind;
use tranche_rpc::v1::{CreateSliceRequest, DeleteSliceRequest, Share, SnapshotRequest};

/// One connection to the daemon.
pub(crate) struct Client {
    runtime: Runtime,
    node: NodeClient<Channel>,
}

impl Client {
    /// Connects to the socket; panics if the daemon does not answer.
    pub(crate) fn of(socket: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        let node = runtime.block_on(tranche_rpc::connect(socket)).expect("the daemon takes connections");
        Self { runtime, node }
    }

    /// Creates a slice with `memory` bytes of a GPU.
    pub(crate) fn create(
        &mut self,
        name: &str,
        memory: u64,
        gpu: usize,
        ephemeral: bool,
    ) -> Result<(), Status> {
        let request = CreateSliceRequest {
            name: Some(name.into()),
            share: Some(Share { kind: Some(Kind::MemoryBytes(memory)) }),
            compute_permille: Some(10),
            gpus: vec![gpu.to_string()],
            ephemeral,
            ..CreateSliceRequest::default()
        };
        self.runtime.block_on(self.node.create_slice(request)).map(drop)
    }

    /// Deletes a slice without force.
    pub(crate) fn delete(&mut self, name: &str) -> Result<(), Status> {
        let request = DeleteSliceRequest { name: name.into(), force: false };
        self.runtime.block_on(self.node.delete_slice(request)).map(drop)
    }

    /// Requests a snapshot of the node.
    pub(crate) fn look(&mut self) -> Result<(), Status> {
        self.runtime.block_on(self.node.snapshot(SnapshotRequest {})).map(drop)
    }
}
