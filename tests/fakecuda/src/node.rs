//! Nodes: the parameters of each kind, and the operation that it becomes.

use crate::driver::{Driver, driver};
use crate::launch::{KernelShape, Parameters};
use crate::lookup::find;
use crate::memory::graph::reserve_graph_memory;
use crate::memory::pool::PoolProperties;
use crate::state::location::Site;
use crate::state::stream::{GraphMemory, Op};
use crate::status::{Outcome, Status};
use crate::transfer::DeepCopy;
use crate::wall::{Callee, Host, HostFunction, In, Out};

/// `CUDA_KERNEL_NODE_PARAMS`; the second form has two more fields at its end.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelNode {
    function: u64,
    shape: KernelShape,
    addresses: In<Host>,
    extra: In<u64>,
}

impl KernelNode {
    /// The function, or the kernel of a library in its place.
    fn launched(&self, kernel: u64) -> u64 {
        if self.function == 0 { kernel } else { self.function }
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelNode2 {
    first: KernelNode,
    kernel: u64,
    context: u64,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FillNode {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct HostNode {
    function: HostFunction,
    data: Host,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`: the address is the answer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocNode {
    properties: PoolProperties,
    access: Host,
    access_count: usize,
    size: usize,
    address: u64,
}

/// Arguments of a new node: place for its handle, graph, the nodes before it.
#[derive(Clone, Copy)]
pub(crate) struct NewNode {
    pub(crate) out: Out<u64>,
    pub(crate) graph: u64,
    pub(crate) before: In<u64>,
    pub(crate) count: usize,
}

fn add(node: NewNode, op: impl FnOnce(&Driver) -> Outcome<Op>) -> Outcome {
    node.out.check()?;
    let before = node.before.list(node.count)?;
    let driver = driver()?;
    find(&driver.table().graphs, node.graph)?.indices(&before)?;
    let op = op(driver)?;
    let mut table = driver.table();
    let handle = table.handle();
    let graph = table.graphs.get_mut(&node.graph).ok_or(Status::InvalidHandle)?;
    let after = graph.indices(&before)?;
    graph.add(handle, op, after);
    node.out.put(handle)
}

pub(crate) fn add_empty(node: NewNode) -> Outcome {
    add(node, |_| Ok(Op::Empty))
}

pub(crate) fn add_kernel(node: NewNode, parameters: In<KernelNode>) -> Outcome {
    let parameters = parameters.get()?;
    add(node, |driver| kernel_op(driver, parameters, parameters.function))
}

pub(crate) fn add_kernel_2(node: NewNode, parameters: In<KernelNode2>) -> Outcome {
    let KernelNode2 { first, kernel, .. } = parameters.get()?;
    add(node, |driver| kernel_op(driver, first, first.launched(kernel)))
}

fn kernel_op(driver: &Driver, node: KernelNode, function: u64) -> Outcome<Op> {
    let parameters = Parameters { addresses: node.addresses, extra: node.extra };
    crate::launch::operation(driver, function, &node.shape, parameters)
}

pub(crate) fn add_copy(node: NewNode, copy: In<DeepCopy>, context: u64) -> Outcome {
    let copy = copy.get()?;
    add(node, |driver| copy_op(driver, copy, context))
}

fn copy_op(driver: &Driver, copy: DeepCopy, context: u64) -> Outcome<Op> {
    driver.table().contexts.get(&context).ok_or(Status::InvalidContext)?;
    Ok(copy.copy(driver)?.map_or(Op::Empty, Op::Copy))
}

pub(crate) fn add_fill(node: NewNode, fill: In<FillNode>, context: u64) -> Outcome {
    let fill = fill.get()?;
    add(node, |driver| fill_op(driver, fill, context))
}

fn fill_op(driver: &Driver, fill: FillNode, context: u64) -> Outcome<Op> {
    driver.table().contexts.get(&context).ok_or(Status::InvalidContext)?;
    crate::fill::fill_node(fill.to, fill.pitch, fill.value, fill.element, fill.width, fill.height)
        .map(Op::Fill)
}

pub(crate) fn add_host(node: NewNode, parameters: In<HostNode>) -> Outcome {
    let op = host_op(parameters.get()?)?;
    add(node, |_| Ok(op))
}

fn host_op(HostNode { function, data }: HostNode) -> Outcome<Op> {
    let function = function.ok_or(Status::InvalidValue)?;
    Ok(Op::Host(Callee::Function(function, data)))
}

pub(crate) fn add_record(node: NewNode, event: u64) -> Outcome {
    add(node, |driver| find(&driver.table().events, event).cloned().map(Op::Record))
}

pub(crate) fn add_wait(node: NewNode, event: u64) -> Outcome {
    add(node, |driver| find(&driver.table().events, event).cloned().map(Op::WaitEvent))
}

pub(crate) fn add_child(node: NewNode, child: u64) -> Outcome {
    add(node, |driver| child_op(driver, child))
}

fn child_op(driver: &Driver, child: u64) -> Outcome<Op> {
    let table = driver.table();
    let child = find(&table.graphs, child)?;
    if child.has_memory() { Err(Status::NotSupported) } else { child.ordered().map(Op::Child) }
}

pub(crate) fn add_alloc(node: NewNode, parameters: Out<AllocNode>) -> Outcome {
    let mut asked = parameters.get()?;
    let mut memory = None;
    add(node, |driver| {
        let site = asked.properties.location().of_pool(&driver.table())?;
        let device = match site {
            Site::Device(device) | Site::Managed(Some(device)) => device,
            // No document states what a graph keeps of the host's, or of memory without a place.
            Site::Host | Site::Managed(None) => return Err(Status::NotSupported),
        };
        let reserved = reserve_graph_memory(driver, asked.size as u64, device)?;
        memory = Some(reserved);
        Ok(Op::Alloc(reserved))
    })?;
    let GraphMemory { base, .. } = memory.ok_or(Status::Unknown)?;
    asked.address = base;
    parameters.put(asked)
}

/// `cuGraphMemAllocNodeGetParams`.
pub(crate) fn alloc_parameters(node: u64, out: Out<AllocNode>) -> Outcome {
    let GraphMemory { base, size, device } = crate::graph::memory_of(node)?;
    let properties = PoolProperties::on(device as i32);
    out.put(AllocNode { properties, access: Host::NULL, access_count: 0, size: size as usize, address: base })
}

pub(crate) fn add_free(node: NewNode, address: u64) -> Outcome {
    if address == 0 {
        return Err(Status::InvalidValue);
    }
    add(node, |_| Ok(Op::Free(address)))
}

// ---- nodes of an executable ----

pub(crate) fn set_kernel(executable: u64, node: u64, parameters: In<KernelNode>) -> Outcome {
    let parameters = parameters.get()?;
    renew(executable, node, |driver| kernel_op(driver, parameters, parameters.function))
}

pub(crate) fn set_kernel_2(executable: u64, node: u64, parameters: In<KernelNode2>) -> Outcome {
    let KernelNode2 { first, kernel, .. } = parameters.get()?;
    renew(executable, node, |driver| kernel_op(driver, first, first.launched(kernel)))
}

pub(crate) fn set_copy(executable: u64, node: u64, copy: In<DeepCopy>, context: u64) -> Outcome {
    let copy = copy.get()?;
    renew(executable, node, |driver| copy_op(driver, copy, context))
}

pub(crate) fn set_fill(executable: u64, node: u64, fill: In<FillNode>, context: u64) -> Outcome {
    let fill = fill.get()?;
    renew(executable, node, |driver| fill_op(driver, fill, context))
}

pub(crate) fn set_host(executable: u64, node: u64, parameters: In<HostNode>) -> Outcome {
    let op = host_op(parameters.get()?)?;
    renew(executable, node, |_| Ok(op))
}

pub(crate) fn set_child(executable: u64, node: u64, child: u64) -> Outcome {
    renew(executable, node, |driver| child_op(driver, child))
}

/// Changes a node of an executable, which keeps its kind; launches that have begun keep what they had.
fn renew(executable: u64, node: u64, op: impl FnOnce(&Driver) -> Outcome<Op>) -> Outcome {
    let driver = driver()?;
    find(&driver.table().executables, executable)?;
    let op = op(driver)?;
    let mut table = driver.table();
    let executable = table.executables.get_mut(&executable).ok_or(Status::InvalidHandle)?;
    executable.set(node, op)
}

/// `CUgraphNodeParams`: a kind, and room for the parameters of any kind.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AnyNode {
    kind: i32,
    reserved: [i32; 3],
    parameters: [u64; 29],
    reserved_too: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct CopyNode {
    flags: i32,
    reserved: i32,
    context: u64,
    copy: DeepCopy,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[derive(Clone, Copy)]
#[repr(C)]
struct FillNode2 {
    fill: FillNode,
    context: u64,
}

/// `cuGraphAddNode`: the kind is among the parameters, and so is the address of a memory node.
pub(crate) fn add_any(node: NewNode, parameters: Out<AnyNode>) -> Outcome {
    let any = parameters.get()?;
    if any.reserved != [0; 3] || any.reserved_too != 0 {
        return Err(Status::InvalidValue);
    }
    // The union lies 16 bytes into the caller's structure, which `get` has found to be there.
    let inside = Host::at(parameters.address() + 16);
    let first = any.parameters[0];
    match any.kind {
        0 => add_kernel_2(node, In::at(inside)),
        1 => {
            let CopyNode { flags, context, copy, .. } = inside.read()?;
            if flags == 0 { add_copy(node, In::of(&copy), context) } else { Err(Status::InvalidValue) }
        }
        2 => {
            let FillNode2 { fill, context } = inside.read()?;
            add_fill(node, In::of(&fill), context)
        }
        3 => add_host(node, In::at(inside)),
        4 => add_child(node, first),
        5 => add_empty(node),
        6 => add_wait(node, first),
        7 => add_record(node, first),
        10 => add_alloc(node, Out::at(inside)),
        11 => add_free(node, first),
        _ => Err(Status::NotSupported),
    }
}
