//! Captures and graphs, in the forms of CUDA 12 and 13 where these differ.

use crate::code::kernel;
use crate::device::{ready, version};
use crate::driver;
use crate::shapes::Sides;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// `cudaStreamGetCaptureInfo`: of CUDA 13 all of it, of CUDA 12 the first two answers.
pub(crate) fn capture_info(
    stream: u64,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    tail: Out<u64>,
    edges: Out<u64>,
    count: Out<usize>,
) -> Outcome {
    status.check()?;
    ready()?;
    if version() < 13000 {
        return driver::cuStreamGetCaptureInfo_v2(stream, status, id, Out::NULL, Out::NULL, Out::NULL);
    }
    driver::cuStreamGetCaptureInfo_v3(stream, status, id, graph, tail, edges, count)
}

/// `cudaStreamUpdateCaptureDependencies` of CUDA 13, with edges.
pub(crate) fn update_dependencies(
    stream: u64,
    list: In<u64>,
    edges: In<u64>,
    count: usize,
    flags: u32,
) -> Outcome {
    ready()?;
    driver::cuStreamUpdateCaptureDependencies_v2(stream, list, edges, count, flags)
}

/// `cudaGraphNodeParams`, of which each kind of node has its own use.
pub(crate) type NodeParameters = [u64; 32];

/// Parameters of a kernel node, `cudaKernelNodeParamsV2`.
#[derive(Clone, Copy)]
#[repr(C)]
struct KernelNode {
    function: u64,
    grid: Sides,
    block: Sides,
    shared: u32,
    arguments: u64,
    extra: u64,
}

/// The same for the driver, `CUDA_KERNEL_NODE_PARAMS_v3`.
#[derive(Clone, Copy)]
#[repr(C)]
struct DriverKernelNode {
    node: KernelNode,
    kernel: u64,
    context: u64,
}

/// `cudaGraphAddNode` of CUDA 13, for nodes whose parameters are the driver's, and kernels.
pub(crate) fn add_node(
    out: Out<u64>,
    graph: u64,
    before: In<u64>,
    edges: In<u64>,
    count: usize,
    parameters: Out<NodeParameters>,
) -> Outcome {
    ready()?;
    let words = parameters.get()?;
    match words[0] as u32 {
        // A host function, a graph, nothing, an event that is waited for or recorded.
        3..=7 => driver::cuGraphAddNode_v2(out, graph, before, edges, count, parameters),
        0 => {
            let mut words = words;
            // Behind the kind and three reserved words of 32 bits.
            let node: KernelNode = In::at(&raw const words[2] as u64).get()?;
            let node = DriverKernelNode { kernel: kernel(node.function)?, node, context: 0 };
            let node = DriverKernelNode {
                node: KernelNode { function: node.kernel, ..node.node },
                kernel: 0,
                ..node
            };
            Out::to(&mut words[2]).cast().put(node)?;
            driver::cuGraphAddNode_v2(out, graph, before, edges, count, Out::to(&mut words))
        }
        _ => Err(Status::NOT_SUPPORTED),
    }
}

/// `cudaGraphNodeGetDependencies`: with edges in CUDA 13.
///
/// CUDA 12 has the count in their place.
pub(crate) fn node_dependencies(node: u64, out: Out<u64>, third: Out<u64>, count: Out<usize>) -> Outcome {
    ready()?;
    if version() < 13000 {
        return driver::cuGraphNodeGetDependencies(node, out, third.cast());
    }
    driver::cuGraphNodeGetDependencies_v2(node, out, third, count)
}
