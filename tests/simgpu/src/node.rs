//! A node: its file, its GPUs, its clock.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::model::{GpuSpec, NodeSpec};
use crate::process::{Process, Refusal};
use crate::units::{Blocks, Gpu, Time};

/// Why a node can't be made or attached.
#[derive(Debug, Error)]
pub enum BadNode {
    /// The environment names none.
    #[error("SIMGPU_NODE is not set; make a node with `simgpu create --preset NAME FILE` and set it to FILE")]
    NotNamed,
    /// The file can't be opened, made or mapped.
    #[error("can't {action} the node file {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a node of this build.
    #[error("{path} is not a simulated node: {reason}; make one with `simgpu create --preset NAME {path}`")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// A simulated node, attached. Cheap to clone; every clone is the same mapping, kept until the process ends.
#[derive(Clone, Debug)]
pub struct Node(());

impl Node {
    /// Makes a node's file in one step: it is there whole or not at all. Fails if it exists.
    pub fn create(_path: &Path, _spec: &NodeSpec) -> Result<Self, BadNode> {
        todo!()
    }

    /// Attaches to a node's file.
    pub fn attach(_path: &Path) -> Result<Self, BadNode> {
        todo!()
    }

    /// Attaches to the node that the environment names in [`crate::NODE_VARIABLE`].
    pub fn from_env() -> Result<Self, BadNode> {
        todo!()
    }

    /// What the node is made of.
    pub fn spec(&self) -> &NodeSpec {
        todo!()
    }

    /// The GPU with an index, if there is one.
    pub fn gpu(&self, index: usize) -> Option<Gpu> {
        (index < self.spec().gpus.len()).then_some(Gpu(index))
    }

    /// All GPUs in NVML's order.
    pub fn gpus(&self) -> impl Iterator<Item = Gpu> + use<> {
        (0..self.spec().gpus.len()).map(Gpu)
    }

    /// What a GPU is.
    pub fn gpu_spec(&self, gpu: Gpu) -> &GpuSpec {
        &self.spec().gpus[gpu.index()]
    }

    /// The time now, by the node's clock.
    pub fn now(&self) -> Time {
        todo!()
    }

    /// What all processes may have of a GPU's memory together: `cuDeviceTotalMem`.
    pub fn capacity(&self, gpu: Gpu) -> Blocks {
        self.gpu_spec(gpu).model.capacity()
    }

    /// What is in use now, by living processes (the dead are reaped first). `cuMemGetInfo` is capacity less this.
    pub fn used(&self, _gpu: Gpu) -> Blocks {
        todo!()
    }

    /// Whether a fault took the GPU off the bus: every call on it then fails.
    pub fn is_lost(&self, _gpu: Gpu) -> bool {
        todo!()
    }

    /// Makes a record of the calling process, which it needs to hold anything. To be done once per process, at
    /// `cuInit`; an earlier record of the same process (before `execve`) is cleared away with all it held.
    pub fn register(&self) -> Result<Process, Refusal> {
        todo!()
    }
}
