//! Other nodes with their last known states.
//!
//! Law: each node is read in a thread of its own, so that one that is slow, silent or hostile takes nothing else down.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tranche_nodes::NodeAddress;

use crate::overview::Overview;

/// Last known state of another node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    /// The overview and the time of its arrival.
    pub(crate) last: Option<(Arc<Overview>, Instant)>,
    /// Failure of the last attempt.
    pub(crate) failure: Option<String>,
}

impl NodeState {
    /// Enters the result of an attempt. The overview stays when a later one fails.
    pub(crate) fn enter(&mut self, read: Result<Overview, String>) {
        match read {
            Ok(overview) => *self = Self { last: Some((Arc::new(overview), Instant::now())), failure: None },
            Err(failure) => self.failure = Some(failure),
        }
    }
}

/// Another node with its last known state.
#[derive(Debug)]
pub(crate) struct OtherNode {
    pub(crate) address: NodeAddress,
    state: Mutex<NodeState>,
}

impl OtherNode {
    /// A node that has not been read yet.
    pub(crate) fn new(address: NodeAddress) -> Self {
        Self { address, state: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Last known state, or an empty one before the first attempt.
    pub(crate) fn state(&self) -> NodeState {
        self.held().clone()
    }

    /// Reads the node once; blocks for at most two seconds.
    pub(crate) fn read(&self) {
        let read = self.address.read::<Overview>();
        self.held().enter(read.map(Overview::bounded));
    }
}
