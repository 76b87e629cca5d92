//! A session: the attached node and its event sets.
#![forbid(unsafe_code)]

use simgpu::{Gpu, Node};

use crate::abi::Handle;
use crate::events::Listeners;
use crate::handle::handle;
use crate::status::{Answer, Failure};

/// Node and event sets of an initialised library.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) node: Node,
    pub(crate) listeners: Listeners,
}

impl Session {
    /// Handle of the first GPU that fulfils the condition; an error for a lost one.
    pub(crate) fn find(&self, otherwise: Failure, wanted: impl Fn(&Node, Gpu) -> bool) -> Answer<Handle> {
        let gpu = self.node.gpus().find(|gpu| wanted(&self.node, *gpu)).ok_or(otherwise)?;
        if self.node.is_lost(gpu) { Err(Failure::GpuIsLost) } else { Ok(handle(gpu)) }
    }
}
