//! Graphs: operations with an order, launched as one.

use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::{DefaultStream, find, select};
use crate::state::graph::{Executable, Graph};
use crate::state::stream::{GraphMemory, Op, Stream};
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

pub(crate) fn create(out: Out<u64>, flags: u32) -> Outcome {
    out.check()?;
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let handle = table.handle();
    table.graphs.insert(handle, Graph::default());
    out.put(handle)
}

pub(crate) fn clone(out: Out<u64>, original: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let mut graph = find(&table.graphs, original)?.clone();
    if graph.has_memory() {
        return Err(Status::NotSupported);
    }
    for node in &mut graph.nodes {
        node.handle = table.handle();
    }
    let handle = table.handle();
    table.graphs.insert(handle, graph);
    out.put(handle)
}

pub(crate) fn destroy(graph: u64) -> Outcome {
    driver()?.table().graphs.remove(&graph).map(|_| ()).ok_or(Status::InvalidHandle)
}

/// The graph a node is in, and its index.
fn home(table: &Table, node: u64) -> Outcome<(u64, usize)> {
    let found = table.graphs.iter().find_map(|(handle, graph)| Some((*handle, graph.index(node).ok()?)));
    found.ok_or(Status::InvalidValue)
}

/// `cuGraphChildGraphNodeGetGraph`: the node's own copy, which lives with it.
pub(crate) fn child_of(node: u64, out: Out<u64>) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let (graph, index) = home(&table, node)?;
    let node = &find(&table.graphs, graph)?.nodes[index];
    let Op::Child(ops) = node.op.clone() else { return Err(Status::InvalidValue) };
    if let Some(inside) = node.inside {
        return out.put(inside);
    }
    let mut child = Graph::default();
    for op in ops {
        let after = child.nodes.len().checked_sub(1).into_iter().collect();
        child.add(table.handle(), op, after);
    }
    let handle = table.handle();
    table.graphs.insert(handle, child);
    table.graphs.get_mut(&graph).ok_or(Status::InvalidHandle)?.nodes[index].inside = Some(handle);
    out.put(handle)
}

/// The memory that a node allocates each time it runs.
pub(crate) fn memory_of(node: u64) -> Outcome<GraphMemory> {
    let driver = driver()?;
    let table = driver.table();
    let (graph, index) = home(&table, node)?;
    match &find(&table.graphs, graph)?.nodes[index].op {
        Op::Alloc(memory) => Ok(*memory),
        _ => Err(Status::InvalidValue),
    }
}

pub(crate) fn destroy_node(node: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let (graph, index) = home(&table, node)?;
    let graph = table.graphs.get_mut(&graph).ok_or(Status::InvalidHandle)?;
    if matches!(graph.nodes[index].op, Op::Alloc(_) | Op::Free(_)) {
        return Err(Status::NotSupported);
    }
    graph.nodes[index].gone = true;
    graph.nodes.iter_mut().for_each(|node| node.after.retain(|before| *before != index));
    Ok(())
}

pub(crate) fn node_type(node: u64, out: Out<i32>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let (graph, index) = home(&table, node)?;
    out.put(match find(&table.graphs, graph)?.nodes[index].op {
        Op::Kernel(_) => 0,
        Op::Copy(_) => 1,
        Op::Fill(_) => 2,
        Op::Host(_) => 3,
        Op::Child(_) => 4,
        Op::Empty => 5,
        Op::WaitEvent(_) => 6,
        Op::Record(_) => 7,
        Op::Alloc(_) => 10,
        Op::Free(_) | Op::Leave(..) | Op::Unpin(_) => 11,
        Op::WaitValue(_) | Op::WriteValue(_) => 12,
    })
}

/// Answers a list as this API does.
///
/// Without a place, that is its length, else as many handles as there is room for.
fn listed(list: &[u64], out: Out<u64>, count: Out<usize>) -> Outcome {
    if out.check().is_err() {
        return count.put(list.len());
    }
    let room = count.get()?;
    out.put_list(list, room)?;
    count.put(list.len().min(room))
}

pub(crate) fn nodes(graph: u64, out: Out<u64>, count: Out<usize>) -> Outcome {
    let driver = driver()?;
    let list: Vec<u64> = find(&driver.table().graphs, graph)?.living().map(|node| node.handle).collect();
    listed(&list, out, count)
}

/// `cuGraphNodeGetDependencies`: what a node comes after, in plain order.
pub(crate) fn dependencies(node: u64, out: Out<u64>, count: Out<usize>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let (graph, index) = home(&table, node)?;
    let graph = find(&table.graphs, graph)?;
    listed(&graph.handles(&graph.nodes[index].after), out, count)
}

/// The same with the kinds of dependencies, all of them plain.
pub(crate) fn dependencies_v2(node: u64, out: Out<u64>, kinds: Out<u64>, count: Out<usize>) -> Outcome {
    let room = if out.check().is_ok() { count.get()? } else { 0 };
    dependencies(node, out, count)?;
    if kinds.check().is_err() {
        return Ok(());
    }
    kinds.put_list(&vec![0; count.get()?], room)
}

pub(crate) fn roots(graph: u64, out: Out<u64>, count: Out<usize>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let living = find(&table.graphs, graph)?.living();
    let list: Vec<u64> = living.filter(|node| node.after.is_empty()).map(|node| node.handle).collect();
    listed(&list, out, count)
}

pub(crate) fn edges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) -> Outcome {
    let driver = driver()?;
    let edges = find(&driver.table().graphs, graph)?.edges();
    let (before, after): (Vec<u64>, Vec<u64>) = edges.into_iter().unzip();
    if from.check().is_ok() && to.check().is_ok() {
        to.put_list(&after, count.get()?)?;
    }
    listed(&before, from, count)
}

/// The second form adds the kinds of edges, all of them plain.
pub(crate) fn edges_v2(
    graph: u64,
    from: Out<u64>,
    to: Out<u64>,
    kinds: Out<u64>,
    count: Out<usize>,
) -> Outcome {
    edges(graph, from, to, count)?;
    if from.check().is_ok() && kinds.check().is_ok() {
        let edges = count.get()?;
        kinds.put_list(&vec![0; edges], edges)?;
    }
    Ok(())
}

pub(crate) fn add_edges(graph: u64, from: In<u64>, to: In<u64>, count: usize) -> Outcome {
    let (from, to) = (from.list(count)?, to.list(count)?);
    let driver = driver()?;
    let mut table = driver.table();
    let graph = table.graphs.get_mut(&graph).ok_or(Status::InvalidHandle)?;
    let (from, to) = (graph.indices(&from)?, graph.indices(&to)?);
    for (before, after) in from.into_iter().zip(to) {
        graph.nodes[after].after.push(before);
    }
    Ok(())
}

fn instance(out: Out<u64>, graph: u64, flags: u64) -> Outcome {
    out.check()?;
    // Free on launch, upload, device launch, node priority; launching from the device is not possible here.
    if flags & !0b1011 != 0 || graph == 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    // A graph with memory of its own can have one executable at a time.
    let twin = table.executables.values().any(|executable| executable.graph == graph);
    if twin && find(&table.graphs, graph)?.has_memory() {
        return Err(Status::NotSupported);
    }
    let executable = Executable::of(graph, find(&table.graphs, graph)?, flags)?;
    let handle = table.handle();
    table.executables.insert(handle, executable);
    out.put(handle)
}

pub(crate) fn instantiate(out: Out<u64>, graph: u64, failed: Out<u64>, log: Out<u8>, room: usize) -> Outcome {
    failed.offer(0);
    if room > 0 {
        log.offer(0);
    }
    instance(out, graph, 0)
}

pub(crate) fn instantiate_with_flags(out: Out<u64>, graph: u64, flags: u64) -> Outcome {
    instance(out, graph, flags)
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Instantiation {
    flags: u64,
    upload: u64,
    failed: u64,
    result: i32,
}

pub(crate) fn instantiate_with_params(
    _default: DefaultStream,
    out: Out<u64>,
    graph: u64,
    parameters: Out<Instantiation>,
) -> Outcome {
    let asked = parameters.get()?;
    let outcome = instance(out, graph, asked.flags);
    let result = if outcome.is_ok() { 0 } else { 1 };
    parameters.put(Instantiation { failed: 0, result, ..asked })?;
    outcome
}

pub(crate) fn executable_flags(executable: u64, out: Out<u64>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    out.put(find(&table.executables, executable)?.flags)
}

pub(crate) fn destroy_executable(executable: u64) -> Outcome {
    driver()?.table().executables.remove(&executable).map(|_| ()).ok_or(Status::InvalidHandle)
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const FREE_ON_LAUNCH: u64 = 1;

pub(crate) fn launch(default: DefaultStream, executable: u64, stream: u64) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let (ops, flags) = {
        let table = driver.table();
        let executable = find(&table.executables, executable)?;
        (executable.ops.clone(), executable.flags)
    };
    if stream.capture().is_some() {
        return stream.enqueue(driver, Op::Child(ops.to_vec()));
    }
    if flags & FREE_ON_LAUNCH != 0 {
        for op in ops.iter() {
            if let Op::Alloc(memory) = op {
                let _ = crate::memory::graph::graph_free(driver, memory.base);
            }
        }
    }
    launch_in_order(driver, &stream, &ops)
}

/// Addresses inside a graph become memory as it runs, so its copies find theirs when their turn comes.
fn launch_in_order(driver: &Driver, stream: &Arc<Stream>, ops: &[Op]) -> Outcome {
    ops.iter().try_for_each(|op| stream.run(driver, op))
}

/// Uploading makes the first launch faster on a real device; here all are as fast.
pub(crate) fn upload(default: DefaultStream, executable: u64, stream: u64) -> Outcome {
    let driver = driver()?;
    select(driver, default, stream)?;
    find(&driver.table().executables, executable)?;
    Ok(())
}
