//! Stream capture: what is put into a stream becomes nodes of a graph instead.

use std::cell::Cell;
use std::sync::Arc;

use crate::driver::{Driver, driver};
use crate::lookup::{DefaultStream, select};
use crate::state::graph::Graph;
use crate::state::stream::{Capture, Op, Stream, Strictness};
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

const GLOBAL: i32 = 0;
const RELAXED: i32 = 2;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: i32 = 1;
/// `CU_STREAM_CAPTURE_STATUS_INVALIDATED`.
const INVALIDATED: i32 = 2;
/// Numbers of global, thread-local and relaxed mode.
const MODES: std::ops::RangeInclusive<i32> = 0..=2;

thread_local! {
    /// The calling thread's mode.
    static MODE: Cell<i32> = const { Cell::new(0) };
}

/// Takes an operation into the capture of its stream; false if there is none.
pub(crate) fn takes(driver: &Driver, stream: &Arc<Stream>, op: &Op) -> Outcome<bool> {
    let mut capture = stream.capture();
    if let Op::WaitEvent(event) = op
        && let Some((graph, nodes)) = event.in_graph()
    {
        let strictness = capture.as_ref().map_or_else(Strictness::of_caller, |capture| capture.strictness);
        return joins(&mut capture, graph, nodes, strictness).map(|()| true);
    }
    let Some(capture) = capture.as_mut() else { return Ok(false) };
    match op {
        Op::Record(event) => event.captured(capture.graph, capture.tail.clone()),
        Op::WaitEvent(event) if event.pending(driver.node()).is_some() => {
            return Err(Status::CaptureIsolation);
        }
        Op::WaitEvent(_) => {}
        _ => {
            let mut table = driver.table();
            let handle = table.handle();
            let graph = table.graphs.get_mut(&capture.graph).ok_or(Status::CaptureInvalidated)?;
            capture.tail = vec![graph.add(handle, op.clone(), capture.tail.clone())];
        }
    }
    Ok(true)
}

/// A stream that waits for a captured event takes part in its capture from then on.
fn joins(capture: &mut Option<Capture>, graph: u64, nodes: Vec<usize>, strictness: Strictness) -> Outcome {
    match capture {
        None => *capture = Some(Capture { graph, tail: nodes, origin: false, strictness }),
        Some(capture) if capture.graph == graph => {
            capture.tail.extend(nodes);
            capture.tail.sort_unstable();
            capture.tail.dedup();
        }
        Some(_) => return Err(Status::CaptureIsolation),
    }
    Ok(())
}

pub(crate) fn begin(default: DefaultStream, stream: u64, mode: i32) -> Outcome {
    if !MODES.contains(&mode) {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    if stream.lane == simgpu::Lane::Legacy {
        return Err(Status::CaptureUnsupported);
    }
    let mut capture = stream.capture();
    if capture.is_some() {
        return Err(Status::IllegalState);
    }
    let mut table = driver.table();
    let graph = table.handle();
    table.graphs.insert(graph, Graph::default());
    let strictness = Strictness { mode, thread: std::thread::current().id() };
    *capture = Some(Capture { graph, tail: Vec::new(), origin: true, strictness });
    Ok(())
}

impl Strictness {
    /// Of a stream that only follows a capture: that one's own stream is the strict one.
    fn of_caller() -> Self {
        Self { mode: RELAXED, thread: std::thread::current().id() }
    }

    /// Tests if it forbids the calling thread, whose mode is given, calls that could disturb a capture.
    fn forbids(self, mode: i32) -> bool {
        let mine = self.thread == std::thread::current().id();
        let between_threads = mode == GLOBAL && self.mode == GLOBAL;
        mode != RELAXED && self.mode != RELAXED && (mine || between_threads)
    }
}

/// Refuses a call that could disturb captures, such as a plain allocation, while one forbids it.
///
/// That capture is invalid from then on.
pub(crate) fn unsafe_call(driver: &Driver) -> Outcome {
    let mode = MODE.get();
    let streams: Vec<Arc<Stream>> = {
        let table = driver.table();
        table.streams.values().chain(table.thread_streams.values()).cloned().collect()
    };
    let mut refused = false;
    for stream in streams {
        let capture = stream.capture();
        let Some(capture) = capture.as_ref().filter(|capture| capture.strictness.forbids(mode)) else {
            continue;
        };
        invalidate(driver, capture);
        refused = true;
    }
    if refused { Err(Status::CaptureUnsupported) } else { Ok(()) }
}

/// Invalidates a capture: it has still to be ended, and yields no graph.
pub(crate) fn invalidate(driver: &Driver, capture: &Capture) {
    driver.table().graphs.remove(&capture.graph);
}

/// `CUstreamCaptureStatus` of a stream.
fn status(driver: &Driver, capture: Option<&Capture>) -> i32 {
    match capture {
        None => 0,
        Some(capture) if driver.table().graphs.contains_key(&capture.graph) => ACTIVE,
        Some(_) => INVALIDATED,
    }
}

/// The first form of all had no mode; it captured globally.
pub(crate) fn begin_globally(default: DefaultStream, stream: u64) -> Outcome {
    begin(default, stream, 0)
}

pub(crate) fn end(default: DefaultStream, stream: u64, out: Out<u64>) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let graph = {
        let capture = stream.capture();
        let capture = capture.as_ref().ok_or(Status::IllegalState)?;
        if !capture.origin {
            return Err(Status::InvalidValue);
        }
        capture.graph
    };
    let streams: Vec<Arc<Stream>> = {
        let table = driver.table();
        table.streams.values().chain(table.thread_streams.values()).cloned().chain([stream]).collect()
    };
    for stream in streams {
        let mut capture = stream.capture();
        if capture.as_ref().is_some_and(|capture| capture.graph == graph) {
            *capture = None;
        }
    }
    if !driver.table().graphs.contains_key(&graph) {
        out.offer(0);
        return Err(Status::CaptureInvalidated);
    }
    out.put(graph)
}

pub(crate) fn is_capturing(default: DefaultStream, stream: u64, out: Out<i32>) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let capture = stream.capture().clone();
    out.put(status(driver, capture.as_ref()))
}

pub(crate) fn info(default: DefaultStream, stream: u64, out: Out<i32>, id: Out<u64>) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let capture = stream.capture().clone();
    if let Some(capture) = capture.as_ref() {
        id.offer(capture.graph);
    }
    out.put(status(driver, capture.as_ref()))
}

pub(crate) fn info_v2(
    default: DefaultStream,
    stream: u64,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    tail: (Out<u64>, Out<usize>),
) -> Outcome {
    info(default, stream, status, id)?;
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let capture = stream.capture().clone();
    let Some(capture) = capture else { return Ok(()) };
    graph.offer(capture.graph);
    let nodes = {
        let table = driver.table();
        table.graphs.get(&capture.graph).ok_or(Status::CaptureInvalidated)?.handles(&capture.tail)
    };
    // The dependencies are an array of the driver's, valid until the next call that concerns the capture.
    tail.0.offer(crate::names::kept_list(capture.graph, nodes.clone()));
    tail.1.offer(nodes.len());
    Ok(())
}

/// The third form adds the kinds of dependencies, all of them plain.
pub(crate) fn info_v3(
    default: DefaultStream,
    stream: u64,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    tail: (Out<u64>, Out<u64>, Out<usize>),
) -> Outcome {
    tail.1.offer(0);
    info_v2(default, stream, status, id, graph, (tail.0, tail.2))
}

pub(crate) fn exchange_mode(mode: Out<i32>) -> Outcome {
    let new = mode.get()?;
    if !MODES.contains(&new) {
        return Err(Status::InvalidValue);
    }
    mode.put(MODE.replace(new))
}

/// Checks a list of edge kinds (`CUgraphEdgeData`), which may be absent.
///
/// A programmatic edge lets a kernel begin before the one before it has ended. Here that is a plain one: as order goes,
/// it promises more.
pub(crate) fn known_edges(edges: In<u64>, count: usize) -> Outcome {
    if edges.address() == 0 {
        return Ok(());
    }
    let is_known = |edge: &u64| {
        let [from_port, to_port, kind, reserved @ ..] = edge.to_ne_bytes();
        reserved == [0; 5] && matches!((from_port, to_port, kind), (0, 0, 0) | (0..=2, 0, 1))
    };
    if edges.list(count)?.iter().all(is_known) { Ok(()) } else { Err(Status::InvalidValue) }
}
