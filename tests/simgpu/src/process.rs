//! What one process holds: contexts and memory.

use thiserror::Error;

use crate::node::Node;
use crate::units::{Blocks, Gpu};

/// Why the simulated driver refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Not enough memory is free: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("{wanted} wanted on {gpu}, {free} free")]
    OutOfMemory {
        /// Where.
        gpu: Gpu,
        /// What was wanted.
        wanted: Blocks,
        /// What was free.
        free: Blocks,
    },
    /// The GPU is lost: CUDA_ERROR_DEVICE_UNAVAILABLE or, with work, CUDA_ERROR_UNKNOWN.
    #[error("{0} is lost")]
    Lost(Gpu),
    /// The GPU's compute mode allows no (further) process: CUDA_ERROR_DEVICE_UNAVAILABLE.
    #[error("the compute mode of {0} allows no further process")]
    ComputeMode(Gpu),
    /// The GPU has as many contexts as it can have: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("{0} can hold no more contexts")]
    Contexts(Gpu),
    /// The node has as many processes as it can have: CUDA_ERROR_OUT_OF_MEMORY.
    #[error("the node can hold no more processes")]
    Processes,
    /// The context is gone: CUDA_ERROR_CONTEXT_IS_DESTROYED.
    #[error("the context is destroyed")]
    Destroyed,
}

/// The calling process's record on a node. Cheap to clone, shared by threads. What it holds is reaped when the
/// process is dead, never on drop. After `fork` the child must not use it ([`Process::is_mine`]).
#[derive(Clone, Debug)]
pub struct Process {
    node: Node,
}

/// A context of this process on a GPU. A plain name: destroying it is [`Process::destroy_context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    pub(crate) gpu: Gpu,
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

impl Context {
    /// The GPU it is on.
    pub const fn gpu(self) -> Gpu {
        self.gpu
    }

    /// A number that no other context of the node's GPU ever had.
    pub const fn serial(self) -> u64 {
        self.serial
    }
}

impl Process {
    /// The node it is on.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Whether the caller is still the process that registered, and not a child that `fork` made of it.
    pub fn is_mine(&self) -> bool {
        todo!()
    }

    /// Makes a context and charges what the model says a context costs.
    pub fn create_context(&self, _gpu: Gpu) -> Result<Context, Refusal> {
        todo!()
    }

    /// Drops a context, its queued work and its charge. Memory taken with [`Process::take_blocks`] stays: it is
    /// counted by process, and giving it back is the caller's business.
    pub fn destroy_context(&self, _context: Context) {
        todo!()
    }

    /// Takes memory, all of it or none.
    pub fn take_blocks(&self, _gpu: Gpu, _blocks: Blocks) -> Result<(), Refusal> {
        todo!()
    }

    /// Gives memory back; never more than was taken.
    pub fn give_blocks(&self, _gpu: Gpu, _blocks: Blocks) {
        todo!()
    }

    /// Charges what the model says a loaded module costs.
    pub fn load_module(&self, gpu: Gpu) -> Result<(), Refusal> {
        self.take_blocks(gpu, self.node.gpu_spec(gpu).model.module())
    }

    /// Takes the charge of a module back.
    pub fn unload_module(&self, gpu: Gpu) {
        self.give_blocks(gpu, self.node.gpu_spec(gpu).model.module());
    }
}
