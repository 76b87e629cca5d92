//! The driver in this process: one record on the simulated node, one table of everything handed out.
//!
//! Law: the table's lock is never held while work is submitted or waited for, because a full queue empties only
//! when this process's own host functions run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use simgpu::{Blocks, Gpu, GpuSpec, Node, Process, Refusal};

use crate::memory::extents::Extents;
use crate::memory::heap::{BLOCK, Heap};
use crate::memory::ranges::Ranges;
use crate::personality;
use crate::state::array::Array;
use crate::state::context::{Context, Description, Green};
use crate::state::graph::{Executable, Graph};
use crate::state::location::Location;
use crate::state::module::{Function, Link, Module};
use crate::state::physical::{External, Multicast, Physical, Pieces};
use crate::state::pool::{LocationPools, Pool};
use crate::state::stream::{Event, Stream};
use crate::state::worker::Worker;
use crate::status::{Outcome, Status};

/// Begin of a device's addresses: away from Linux's places of programs, heaps and mappings.
const DEVICE_ADDRESSES: u64 = 0x0200_0000_0000;
/// Addresses of one device: 1 TiB.
const PER_DEVICE: u64 = 1 << 40;
/// Addresses for `cuMemAddressReserve`.
const RESERVED_ADDRESSES: (u64, u64) = (0x2000_0000_0000, 1 << 44);
/// Addresses that fit the 32-bit entry points, per device.
const LOW_ADDRESSES: (u64, u64) = (0x1000_0000, 0x0e00_0000);

/// Ability of streams to wait for values in memory, and to write some.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamMemory {
    /// Both waits and writes.
    Whole,
    /// Waits; writes are taken, and never come.
    Silent,
    /// Neither waits nor writes.
    Absent,
}

/// The driver of this process.
pub(crate) struct Driver {
    /// The record on the node.
    pub(crate) process: Process,
    /// Thread that runs host functions.
    pub(crate) worker: Worker,
    /// Ability of streams to wait for values in memory, and to write some.
    pub(crate) stream_memory: StreamMemory,
    /// True if the thread that writes what a GPU writes runs at real-time priority.
    pub(crate) real_time: bool,
    table: Mutex<Table>,
}

/// Everything handed out, by handle.
#[derive(Default)]
pub(crate) struct Table {
    last_handle: u64,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) streams: BTreeMap<u64, Arc<Stream>>,
    pub(crate) thread_streams: BTreeMap<(u64, u64), Arc<Stream>>,
    pub(crate) events: BTreeMap<u64, Arc<Event>>,
    pub(crate) modules: BTreeMap<u64, Module>,
    pub(crate) functions: BTreeMap<u64, Function>,
    pub(crate) links: BTreeMap<u64, Link>,
    pub(crate) pools: BTreeMap<u64, Pool>,
    /// Default and current pools of locations other than plain memory of a device.
    pub(crate) location_pools: BTreeMap<Location, LocationPools>,
    /// Process id of the owner of each imported pool.
    pub(crate) imported_pools: BTreeMap<u64, u64>,
    pub(crate) physical: BTreeMap<u64, Physical>,
    pub(crate) pieces: Pieces,
    pub(crate) external: BTreeMap<u64, External>,
    pub(crate) multicasts: BTreeMap<u64, Multicast>,
    pub(crate) descriptions: BTreeMap<u64, Description>,
    pub(crate) greens: BTreeMap<u64, Green>,
    pub(crate) reserved: Extents,
    pub(crate) reservations: BTreeMap<u64, u64>,
    pub(crate) arrays: BTreeMap<u64, Array>,
    pub(crate) graphs: BTreeMap<u64, Graph>,
    pub(crate) executables: BTreeMap<u64, Executable>,
    pub(crate) ranges: Ranges,
}

/// A device that this process sees.
pub(crate) struct Device {
    /// Index of the GPU on the node.
    pub(crate) gpu: Gpu,
    /// The GPU that it was at first, whose address on the bus it keeps.
    pub(crate) first_gpu: Gpu,
    /// Heap behind `cuMemAlloc`.
    pub(crate) heap: Heap,
    /// The same at 32-bit addresses.
    pub(crate) low: Heap,
    /// Its primary context, active or not.
    pub(crate) primary: Primary,
    /// The pool that came with the device.
    pub(crate) default_pool: u64,
    /// The pool `cuMemAllocAsync` uses.
    pub(crate) pool: u64,
    /// The pool behind graph memory nodes.
    pub(crate) graph_pool: u64,
}

/// A primary context: made by the first retain, gone with the last release.
#[derive(Default)]
pub(crate) struct Primary {
    /// Its handle while active.
    pub(crate) context: Option<u64>,
    /// The handle it had, and gets again.
    pub(crate) former: Option<u64>,
    /// Retains without a release so far.
    pub(crate) retained: u32,
    /// The flags set for it.
    pub(crate) flags: u32,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

thread_local! {
    /// The calling thread's stack of contexts; the last is current.
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The driver, once `cuInit` has succeeded.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    DRIVER.get().ok_or(Status::NotInitialized)
}

/// Attaches to the node; no node is no device.
pub(crate) fn start() -> Outcome {
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let node = Node::from_env().map_err(|_| Status::NoDevice)?;
    let (installed, loaded) = (personality::own(), &node.spec().driver);
    if installed.key != loaded.key {
        eprintln!(
            "simulated GPU: this libcuda.so.1 is of driver {}, and the node has {}; use the one in sim/{}",
            installed.version, loaded.version, loaded.key
        );
        return Err(Status::DriverMismatch);
    }
    let setting = |name| std::env::var(name).ok();
    let (visible, order) = (setting("CUDA_VISIBLE_DEVICES"), setting("CUDA_DEVICE_ORDER"));
    let gpus = crate::visible::gpus(&node, visible.as_deref(), order.as_deref());
    if gpus.is_empty() {
        return Err(Status::NoDevice);
    }
    let process = node.register().map_err(status)?;
    crate::fork::watch();
    let table = Mutex::new(Table::new(&gpus));
    let stream_memory = match setting("SIMGPU_STREAM_MEMORY").as_deref() {
        Some("off") => StreamMemory::Absent,
        Some("silent") => StreamMemory::Silent,
        _ => StreamMemory::Whole,
    };
    let real_time = setting(simgpu::REAL_TIME_VARIABLE).is_some_and(|value| value == "on");
    DRIVER.get_or_init(|| Driver { process, worker: Worker::default(), stream_memory, real_time, table });
    Ok(())
}

/// The driver's status for a refusal of the engine.
pub(crate) fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::OutOfMemory { .. } | Refusal::Contexts(_) | Refusal::Processes | Refusal::Shared(_) => {
            Status::OutOfMemory
        }
        Refusal::Gone(_) => Status::InvalidValue,
        Refusal::Lost(_) => Status::Unknown,
        Refusal::ComputeMode(_) => Status::DeviceUnavailable,
        Refusal::Destroyed => Status::ContextIsDestroyed,
    }
}

impl Driver {
    /// Node on which this process is registered.
    pub(crate) fn node(&self) -> &Node {
        self.process.node()
    }

    /// Locks the table of everything handed out.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes blocks of device memory that hold these bytes.
    pub(crate) fn charge(&self, gpu: Gpu, bytes: u64) -> Outcome {
        self.process.take_blocks(gpu, Blocks::holding(bytes)).map_err(status)
    }

    /// Returns blocks of device memory that held these bytes.
    pub(crate) fn refund(&self, gpu: Gpu, bytes: u64) {
        if bytes > 0 {
            self.process.give_blocks(gpu, Blocks::holding(bytes));
        }
    }
}

impl Table {
    fn new(gpus: &[Gpu]) -> Self {
        let (start, length) = RESERVED_ADDRESSES;
        let mut table = Self { reserved: Extents::new(start, length), ..Self::default() };
        for (index, gpu) in gpus.iter().enumerate() {
            let index = index as u64;
            let quarter = PER_DEVICE / 4;
            let base = DEVICE_ADDRESSES + index * PER_DEVICE;
            let default_pool = table.add_pool(Pool::new(index as usize, base + quarter, quarter));
            let graph_pool = table.add_pool(Pool::graphs(index as usize, base + 2 * quarter, quarter));
            table.devices.push(Device {
                gpu: *gpu,
                first_gpu: *gpu,
                heap: Heap::new(base + BLOCK, quarter - BLOCK),
                low: Heap::new(LOW_ADDRESSES.0 + index * LOW_ADDRESSES.1, LOW_ADDRESSES.1),
                primary: Primary::default(),
                default_pool,
                pool: default_pool,
                graph_pool,
            });
        }
        table
    }

    fn add_pool(&mut self, pool: Pool) -> u64 {
        let handle = self.handle();
        self.pools.insert(handle, pool);
        handle
    }

    /// A handle that was never used before.
    pub(crate) fn handle(&mut self) -> u64 {
        self.last_handle += 16;
        0x0100_0000 + self.last_handle
    }

    /// The device with an ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<&Device> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)).ok_or(Status::InvalidDevice)
    }

    /// The device with an ordinal, to change.
    pub(crate) fn device_mut(&mut self, ordinal: i32) -> Outcome<&mut Device> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|index| self.devices.get_mut(index))
            .ok_or(Status::InvalidDevice)
    }

    /// The current context; none is an invalid context.
    pub(crate) fn current(&self) -> Outcome<(u64, &Context)> {
        let handle = top().ok_or(Status::InvalidContext)?;
        self.contexts.get(&handle).map(|context| (handle, context)).ok_or(Status::ContextIsDestroyed)
    }

    /// The current context's handle and device.
    pub(crate) fn current_device(&self) -> Outcome<(u64, usize)> {
        self.current().map(|(handle, context)| (handle, context.device))
    }

    /// The GPU of a device.
    pub(crate) fn gpu(&self, device: usize) -> Gpu {
        self.devices[device].gpu
    }
}

/// Specification of a visible device.
pub(crate) fn spec(driver: &Driver, ordinal: i32) -> Outcome<GpuSpec> {
    let gpu = driver.table().device(ordinal)?.gpu;
    Ok(driver.node().gpu_spec(gpu).clone())
}

/// The calling thread's current context.
pub(crate) fn top() -> Option<u64> {
    with_stack(|stack| stack.last().copied()).filter(|handle| *handle != 0)
}

/// Changes the calling thread's stack of contexts. For a thread that is ending, as when a program frees things in
/// destructors, it is an empty one.
pub(crate) fn with_stack<T>(change: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    let mut change = Some(change);
    let mut once = |stack: &mut Vec<u64>| change.take().map(|change| change(stack));
    let changed = CURRENT.try_with(|stack| once(&mut stack.borrow_mut())).ok().flatten();
    changed.or_else(|| once(&mut Vec::new())).expect("the change was made on one stack or the other")
}
