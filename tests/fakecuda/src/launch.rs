//! Launches of kernels, and queries of how many fit.

use std::time::Duration;

use crate::driver::{Driver, driver};
use crate::lookup::{DefaultStream, find, select};
use crate::state::module::Function;
use crate::state::stream::Op;
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, SharedBySize};

/// Most threads in a block, on every model there is.
pub(crate) const MAX_THREADS: u32 = 1024;
/// Most blocks in a grid, by side.
const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// Registers per thread that a kernel is taken to need.
pub(crate) const REGISTERS: i32 = 32;
/// `extra`: what follows is the parameter buffer's address.
const BUFFER_POINTER: u64 = 1;

/// Parameters of a launch: an array of addresses, or a packed buffer.
#[derive(Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) addresses: In<Host>,
    pub(crate) extra: In<u64>,
}

/// The shape of a launch.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Config {
    shape: KernelShape,
    stream: u64,
    attributes: Host,
    count: u32,
}

impl KernelShape {
    fn check(&self, function: &Function) -> Outcome {
        if self.grid.contains(&0)
            || self.block.contains(&0)
            || self.grid.iter().zip(MAX_GRID).any(|(g, max)| *g > max)
        {
            return Err(Status::InvalidValue);
        }
        let threads = self.block.iter().fold(1_u64, |all, side| all.saturating_mul(u64::from(*side)));
        if threads > u64::from(MAX_THREADS) || self.block[2] > 64 {
            return Err(Status::InvalidValue);
        }
        match function.entry.max_threads {
            Some(most) if threads > u64::from(most) => Err(Status::LaunchOutOfResources),
            _ => Ok(()),
        }
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().map(|side| u64::from(*side)).product()
    }

    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// The time a launch takes, from the kernel's name and first argument.
fn duration(function: &Function, parameters: Parameters) -> Outcome<Duration> {
    let takes_a_time = function.entry.name == "spin_ns";
    let first = if takes_a_time { first_argument(parameters)? } else { None };
    Ok(crate::timing::kernel(&function.entry.name, first))
}

fn first_argument(parameters: Parameters) -> Outcome<Option<u64>> {
    if parameters.addresses.address() != 0 {
        return parameters.addresses.get()?.read().map(Some);
    }
    if parameters.extra.address() != 0 {
        let extra = parameters.extra.list(2)?;
        if extra[0] == BUFFER_POINTER {
            return Host::at(extra[1]).read().map(Some);
        }
    }
    Err(Status::InvalidValue)
}

/// The operation that a launch is, once everything about it has been checked.
pub(crate) fn operation(
    driver: &Driver,
    function: u64,
    shape: &KernelShape,
    parameters: Parameters,
) -> Outcome<Op> {
    let function = find(&driver.table().functions, function)?.clone();
    if parameters.addresses.address() != 0 && parameters.extra.address() != 0 {
        return Err(Status::InvalidValue);
    }
    shape.check(&function)?;
    Ok(Op::Kernel(duration(&function, parameters)?))
}

pub(crate) fn kernel(
    default: DefaultStream,
    function: u64,
    shape: KernelShape,
    stream: u64,
    parameters: Parameters,
) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let op = operation(driver, function, &shape, parameters)?;
    {
        let mut table = driver.table();
        let module = find(&table.functions, function)?.module;
        crate::module::need_code(driver, &mut table, module, stream.context)?;
    }
    stream.enqueue(driver, op)
}

/// All blocks of a cooperative launch must reside at once.
pub(crate) fn cooperative(
    default: DefaultStream,
    function: u64,
    shape: KernelShape,
    stream: u64,
    parameters: Parameters,
) -> Outcome {
    let driver = driver()?;
    if shape.block.contains(&0) {
        return Err(Status::InvalidValue);
    }
    let (per_sm, sms) = resident(driver, shape.threads(), shape.shared as usize)?;
    if shape.blocks() > u64::from(per_sm) * u64::from(sms) {
        return Err(Status::CooperativeLaunchTooLarge);
    }
    kernel(default, function, shape, stream, parameters)
}

/// Attributes of a launch (clusters, priorities, cooperation) change nothing about how long it takes.
pub(crate) fn configured(
    default: DefaultStream,
    config: In<Config>,
    function: u64,
    parameters: Parameters,
) -> Outcome {
    let config = config.get()?;
    if config.count > 0 && config.attributes == Host::NULL {
        return Err(Status::InvalidValue);
    }
    kernel(default, function, config.shape, config.stream, parameters)
}

/// Blocks of this many threads that reside on a multiprocessor at once, and multiprocessors.
fn resident(driver: &Driver, threads: u32, shared: usize) -> Outcome<(u32, u32)> {
    if threads == 0 {
        return Err(Status::InvalidValue);
    }
    let gpu = {
        let table = driver.table();
        let (_, device) = table.current_device()?;
        table.gpu(device)
    };
    let compute = &driver.node().gpu_spec(gpu).model.compute;
    let warps = threads.div_ceil(32);
    let by_threads = compute.max_threads_per_sm / 32 / warps;
    let by_registers = compute.registers_per_sm / (warps * 32 * REGISTERS as u32);
    let by_shared = (compute.shared_kib_per_sm as usize * 1024).checked_div(shared).unwrap_or(usize::MAX);
    let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
    let blocks = by_threads.min(by_registers).min(by_shared).min(compute.max_blocks_per_sm);
    Ok((if threads > MAX_THREADS { 0 } else { blocks }, compute.sm_count))
}

pub(crate) fn active_blocks(out: Out<i32>, function: u64, threads: i32, shared: usize) -> Outcome {
    out.check()?;
    let driver = driver()?;
    find(&driver.table().functions, function)?;
    let threads = u32::try_from(threads).map_err(|_| Status::InvalidValue)?;
    out.put(resident(driver, threads, shared)?.0 as i32)
}

pub(crate) fn active_blocks_with_flags(
    out: Out<i32>,
    function: u64,
    threads: i32,
    shared: usize,
    flags: u32,
) -> Outcome {
    if flags > 1 {
        return Err(Status::InvalidValue);
    }
    active_blocks(out, function, threads, shared)
}

pub(crate) fn best_block(
    grid: Out<i32>,
    block: Out<i32>,
    function: u64,
    by_size: SharedBySize,
    shared: usize,
    limit: i32,
) -> Outcome {
    grid.check()?;
    block.check()?;
    let driver = driver()?;
    let most = find(&driver.table().functions, function)?.entry.max_threads.unwrap_or(MAX_THREADS);
    let limit = u32::try_from(limit).map_err(|_| Status::InvalidValue)?;
    let most = if limit == 0 { most } else { most.min(limit) };
    let mut best = (0, 0, 0);
    for threads in (1..=most).rev().filter(|threads| threads % 32 == 0 || *threads == most) {
        let shared = crate::wall::shared_by_size(by_size, threads as i32).unwrap_or(shared);
        let (blocks, sms) = resident(driver, threads, shared)?;
        if blocks * threads > best.0 {
            best = (blocks * threads, blocks * sms, threads);
        }
    }
    grid.put(best.1 as i32)?;
    block.put(best.2 as i32)
}

pub(crate) fn best_block_with_flags(
    grid: Out<i32>,
    block: Out<i32>,
    function: u64,
    by_size: SharedBySize,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Outcome {
    if flags > 1 {
        return Err(Status::InvalidValue);
    }
    best_block(grid, block, function, by_size, shared, limit)
}

/// Shared memory that a block can have when this many of them reside on a multiprocessor.
pub(crate) fn available_shared(out: Out<usize>, function: u64, blocks: i32, threads: i32) -> Outcome {
    out.check()?;
    let driver = driver()?;
    find(&driver.table().functions, function)?;
    if blocks < 1 || threads < 1 {
        return Err(Status::InvalidValue);
    }
    let gpu = {
        let table = driver.table();
        table.gpu(table.current_device()?.1)
    };
    let shared = driver.node().gpu_spec(gpu).model.compute.shared_kib_per_sm as usize * 1024;
    out.put((shared / blocks as usize).min(48 << 10))
}

/// `CUfunction_attribute` by number.
pub(crate) fn attribute(out: Out<i32>, attribute: i32, function: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let table = driver.table();
    let function = find(&table.functions, function)?;
    if let Some((_, value)) = function.set.iter().rev().find(|(known, _)| *known == attribute) {
        return out.put(*value);
    }
    let (_, device) = table.current_device().unwrap_or((0, 0));
    let [major, minor] = driver.node().gpu_spec(table.gpu(device)).model.compute_capability;
    out.put(match attribute {
        0 => function.entry.max_threads.unwrap_or(MAX_THREADS) as i32,
        // Static shared memory, constants, local memory: kernels compute nothing, so they need none.
        1..=3 | 7 | 10..=15 => 0,
        4 => REGISTERS,
        5 | 6 => (major * 10 + minor) as i32,
        8 => 48 << 10,
        9 => -1,
        _ => return Err(Status::InvalidValue),
    })
}

pub(crate) fn set_attribute(function: u64, attribute: i32, value: i32) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let function = table.functions.get_mut(&function).ok_or(Status::InvalidHandle)?;
    // Dynamic shared memory, carve-out, cluster sizes and policy: all that can be set.
    if !matches!(attribute, 8 | 9 | 11..=15) {
        return Err(Status::InvalidValue);
    }
    function.set.push((attribute, value));
    Ok(())
}

pub(crate) fn set_cache_config(function: u64, config: i32) -> Outcome {
    find(&driver()?.table().functions, function)?;
    if (0..=3).contains(&config) { Ok(()) } else { Err(Status::InvalidValue) }
}

pub(crate) fn kernel_attribute(out: Out<i32>, which: i32, kernel: u64, device: i32) -> Outcome {
    driver()?.table().device(device)?;
    attribute(out, which, kernel)
}

pub(crate) fn set_kernel_attribute(which: i32, value: i32, kernel: u64, device: i32) -> Outcome {
    driver()?.table().device(device)?;
    set_attribute(kernel, which, value)
}
