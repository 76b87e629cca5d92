//! Graphs with memory nodes: charged before they run, by the sum of their nodes once ready to run.
//!
//! The sum does not depend on the calls that built the graph.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use tranche_policy::{Extent, Ledger, Location, Work};
use tranche_shm::credit::Units;
use tranche_shm::{DeviceSlot, MAX_DEVICES};

use super::abi::{self, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, checked, code};
use super::ledger::{ledger, refused};
use super::mark::{self, EventMarks};
use super::reclaim::with_reclaim;
use super::stream::{self, Stream};
use super::{driver, graph_memory, growth, placement, slots};
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::number;
use crate::launch::{graph_gone, through};
use crate::sys;

/// Effect of a graph's node on memory, by `CUgraphNodeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphNode {
    /// A node that allocates no memory.
    Free,
    /// A node that allocates memory.
    Allocation,
    /// A node that contains a graph.
    Child,
    /// An unknown node, which may allocate by itself.
    Unknown,
}

impl GraphNode {
    /// The meaning of an enumerator. Bodies of conditional nodes (13) cannot allocate.
    pub(crate) const fn of(kind: c_int) -> Self {
        match kind {
            4 => Self::Child,
            10 => Self::Allocation,
            0..=13 => Self::Free,
            _ => Self::Unknown,
        }
    }
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`
const UPLOAD: u64 = 2;
/// Deepest nesting of graphs that is counted. The driver has no limit.
const DEPTH: u32 = 32;

/// The head of `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
pub(crate) struct Parameters {
    flags: u64,
    stream: u64,
}

pub(crate) unsafe fn instantiate_with_parameters(
    real: impl Fn(*mut u64) -> c_int,
    graph: u64,
    parameters: *mut Parameters,
) -> Result<u64, c_int> {
    // SAFETY: the parameters are read and written only where not null, valid by the hook's contract.
    unsafe {
        if parameters.is_null() || (*parameters).flags & UPLOAD == 0 {
            return instantiate(real, graph);
        }
        // An upload takes the memory at once, before a handle exists to charge it to. So the graph is made ready
        // first, charged, and then uploaded.
        let Parameters { flags, stream } = *parameters;
        (*parameters).flags = flags & !UPLOAD;
        let ready = instantiate(real, graph);
        (*parameters).flags = flags;
        uploaded(ready?, stream)
    }
}

/// Uploads a graph that was just made ready, or else destroys it.
#[inline(never)]
fn uploaded(ready: u64, stream: u64) -> Result<u64, c_int> {
    // SAFETY: the graph was just made, and the driver checks the stream, which is the program's.
    let real = || unsafe { driver::cuGraphUpload(ready, stream) };
    checked(upload(real, ready, stream)).map(|()| ready).inspect_err(|_| {
        forget(ready);
        // SAFETY: destroys what the driver has just made, whose handle no other code has received.
        let _ = unsafe { driver::cuGraphExecDestroy(ready) };
    })
}

/// Lets `real` make a graph ready and enters the size of its memory nodes.
pub(crate) fn instantiate(real: impl Fn(*mut u64) -> c_int, graph: u64) -> Result<u64, c_int> {
    let ready = number(real)()?;
    enter(ready, graph).map(|()| ready).inspect_err(|_| {
        // SAFETY: destroys what the driver has just made, whose handle no other code has received.
        let _ = unsafe { driver::cuGraphExecDestroy(ready) };
    })
}

fn enter(ready: u64, graph: u64) -> Result<(), c_int> {
    let Ok(ledger) = attach::ledger() else { return Ok(()) };
    let mut needs = [0u64; MAX_DEVICES];
    add_up(&ledger, graph, &mut needs, DEPTH)?;
    for (slot, bytes) in needs.iter().enumerate() {
        let Some(slot) = DeviceSlot::new(slot).filter(|_| *bytes > 0) else { continue };
        graph_memory::used();
        let units = Units::covering(*bytes).ok_or(OUT_OF_MEMORY)?;
        ledger.graph_ready(ready, slot, units).map_err(|_| refused(&ledger))?;
    }
    Ok(())
}

/// The part of `CUDA_MEM_ALLOC_NODE_PARAMS` that is read.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Allocation {
    pool: abi::Properties,
    rest_of_pool: [u64; 9],
    access: u64,
    access_count: usize,
    bytes: usize,
    address: u64,
    /// Room for fields that newer drivers may append.
    more: [u64; 16],
}

/// Adds the size of a graph's memory nodes to `needs`, by device, each in whole blocks.
fn add_up(ledger: &Ledger<'static>, graph: u64, needs: &mut [u64], depth: u32) -> Result<(), c_int> {
    let mut count = 0;
    // SAFETY: with a null array the driver only writes the number of nodes, into a local.
    checked(unsafe { driver::cuGraphGetNodes(graph, core::ptr::null_mut(), &mut count) })?;
    if count == 0 || depth == 0 {
        return Ok(());
    }
    let words = sys::map_private(count, count).map_err(|_| OUT_OF_MEMORY)?;
    // SAFETY: the mapping belongs to this function alone and has room for `count` numbers, all that the driver
    // writes.
    let nodes = unsafe { driver::cuGraphGetNodes(graph, words.as_ptr().cast_mut().cast(), &mut count) };
    let sum = checked(nodes).and_then(|()| {
        let nodes = words.iter().take(count).map(|word| word.load(Relaxed));
        nodes.into_iter().try_for_each(|node| add_node(ledger, node, needs, depth))
    });
    sys::unmap_unseen(words);
    sum
}

fn add_node(ledger: &Ledger<'static>, node: u64, needs: &mut [u64], depth: u32) -> Result<(), c_int> {
    // SAFETY: writes one value into a local; the node is the graph's.
    match GraphNode::of(number(|kind| unsafe { driver::cuGraphNodeGetType(node, kind) })()?) {
        GraphNode::Allocation => add_allocation(ledger, node, needs),
        GraphNode::Child => {
            // SAFETY: the driver writes one value into a local; the node is the graph's.
            let child = number(|child| unsafe { driver::cuGraphChildGraphNodeGetGraph(node, child) })()?;
            add_up(ledger, child, needs, depth - 1)
        }
        GraphNode::Free => Ok(()),
        GraphNode::Unknown => Err(NOT_SUPPORTED),
    }
}

fn add_allocation(ledger: &Ledger<'static>, node: u64, needs: &mut [u64]) -> Result<(), c_int> {
    let mut asked = Allocation::default();
    // SAFETY: the driver writes a structure that is no larger than the local.
    checked(unsafe { driver::cuGraphMemAllocNodeGetParams(node, (&raw mut asked).cast::<c_void>()) })?;
    let blocks = Extent::blocks(asked.bytes as u64).ok_or(OUT_OF_MEMORY)?.worst().bytes();
    let only = placement::only(ledger);
    let mut add = |slot: DeviceSlot| needs[slot.index()] = needs[slot.index()].saturating_add(blocks);
    match (asked.pool.location(), only) {
        (Location::Host, _) => {}
        (_, Some(slot)) => add(slot),
        (Location::Device(number), None) => add(slots::slot(ledger, number)?),
        (Location::AnyDevice, None) => {
            ledger.tenant().control.devices().for_each(add);
        }
    }
    Ok(())
}

pub(crate) fn launch(real: impl Fn() -> c_int, graph: u64, stream: Stream) -> c_int {
    through(|| upload(&real, graph, stream.0), Some(stream), Work::Graph(graph))
}

/// Uploads or launches a graph, which takes its memory. An upload takes hardly any GPU time.
pub(crate) fn upload(real: impl Fn() -> c_int, graph: u64, stream: u64) -> c_int {
    // A captured launch becomes part of another graph, which is charged when that runs.
    if !graph_memory::is_used() || stream::is_capturing(stream) {
        return real();
    }
    code(ledger().and_then(|ledger| {
        let context = stream::context_of(stream).map_or_else(driver::context, Ok)?;
        let _call = placement::enter(&ledger, stream)?;
        ledger.tenant().control.devices().for_each(|slot| growth::learn(&ledger, slot, stream));
        let (run, mark) = (|| checked(real()), || mark::behind(stream));
        with_reclaim(&ledger, || ledger.launch_graph(graph, context, &DaemonLine, &EventMarks, run, mark))
    }))
}

pub(crate) fn destroy(real: impl FnOnce() -> c_int, graph: u64) -> c_int {
    let result = real();
    if result == SUCCESS {
        graph_gone(graph);
        forget(graph);
    }
    result
}

fn forget(graph: u64) {
    if graph_memory::is_used()
        && let Ok(ledger) = attach::ledger()
    {
        ledger.graph_destroyed(graph);
    }
}

pub(crate) unsafe fn trim(real: unsafe extern "C" fn(c_int) -> c_int, device: c_int) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let result = unsafe { real(device) };
    if let Ok(ledger) = attach::ledger() {
        graph_memory::settle(&ledger);
    }
    result
}
