//! Failures of commands, and the look-up of the GPU that a command names.

use std::path::PathBuf;

use simgpu::{BadNode, BadPreset, Gpu, Node};
use thiserror::Error;

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Node(#[from] BadNode),
    #[error(transparent)]
    Preset(#[from] BadPreset),
    #[error("{file} has no GPU {gpu}; its GPUs are 0 to {last}")]
    NoGpu { file: PathBuf, gpu: usize, last: usize },
    #[error("{gpu} is a {model}, which has no MIG")]
    NoMig { gpu: Gpu, model: String },
    #[error("can't remove the old node {path}: {source}")]
    Remove { path: PathBuf, source: std::io::Error },
    #[error("process {pid} is not known to the driver of {file}; it has to begin with CUDA first")]
    NoProcess { file: PathBuf, pid: u32 },
    #[error("the simulated driver refused: {0}")]
    Refused(#[from] simgpu::Refusal),
    #[error("can't write the answer: {0}")]
    Write(#[from] std::io::Error),
}

pub(crate) fn find(node: &Node, file: PathBuf, index: usize) -> Result<Gpu, Failure> {
    let last = node.spec().gpus.len() - 1;
    node.gpu(index).ok_or(Failure::NoGpu { file, gpu: index, last })
}
