//! Contexts: what a process has on a device, and the current one of each thread.

use std::sync::Arc;

use simgpu::{Lane, Refusal};

use crate::driver::{Driver, Table, driver, status, top, with_stack};
use crate::lookup::find;
use crate::memory::heap::whole_blocks;
use crate::memory::ranges::Kind;
use crate::state::context::Context;
use crate::state::stream::Stream;
use crate::status::{Outcome, Status};
use crate::stream::GREATEST_PRIORITY;
use crate::wall::{In, Out};

/// API version that contexts report.
const API_VERSION: u32 = 3020;
/// Creation flags that the driver knows.
///
/// They are for scheduling, host mapping, local memory, sync memops and user coredumps.
const KNOWN_FLAGS: u32 = 0x1ff;
/// Defaults of `cuCtxGetLimit`, by limit.
///
/// They are stack, printf, heap, sync depth, pending launches, fetch granularity and L2.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

/// Makes a context of a program's own.
fn make(driver: &Driver, table: &mut Table, device: usize, flags: u32) -> Outcome<u64> {
    let handle = table.handle();
    make_as(driver, table, handle, device, flags, false).map(|()| handle)
}

/// Makes a context with this handle; what it costs is charged by the engine.
fn make_as(
    driver: &Driver,
    table: &mut Table,
    handle: u64,
    device: usize,
    flags: u32,
    primary: bool,
) -> Outcome {
    let engine = driver.process.create_context(table.gpu(device)).map_err(|refusal| match refusal {
        Refusal::Lost(_) => Status::DeviceUnavailable,
        other => status(other),
    })?;
    let legacy = Arc::new(Stream::new(0, handle, engine, Lane::Legacy, 0));
    let (peers, limits, extra) = Default::default();
    let green = false;
    table
        .contexts
        .insert(handle, Context { engine, device, flags, primary, legacy, peers, limits, extra, green });
    if let Err(refusal) = crate::module::load_libraries(driver, table, handle) {
        end(driver, table, handle);
        return Err(refusal);
    }
    Ok(())
}

/// Makes a context that uses another's place on its device, and costs nothing beyond.
pub(crate) fn make_within(table: &mut Table, other: u64) -> Outcome<u64> {
    let Context { engine, device, flags, .. } = *find(&table.contexts, other)?;
    let handle = table.handle();
    let legacy = Arc::new(Stream::new(0, handle, engine, Lane::Legacy, 0));
    let (peers, limits, extra) = Default::default();
    let (primary, green) = (false, true);
    table
        .contexts
        .insert(handle, Context { engine, device, flags, primary, legacy, peers, limits, extra, green });
    Ok(handle)
}

/// Ends a context with everything made in it.
pub(crate) fn end(driver: &Driver, table: &mut Table, handle: u64) {
    let Some(context) = table.contexts.remove(&handle) else { return };
    if !context.green {
        driver.process.destroy_context(context.engine);
    }
    driver.refund(table.gpu(context.device), context.extra.values().sum());
    table.streams.retain(|_, stream| stream.context != handle);
    table.thread_streams.retain(|(owner, _), _| *owner != handle);
    crate::module::end_all(driver, table, handle);
    crate::array::end_all(driver, table, handle);
    let bases: Vec<u64> = table
        .ranges
        .iter()
        .filter(|range| {
            range.context == handle
                && !matches!(range.kind, Kind::Virtual(_) | Kind::Graph | Kind::Unpaid | Kind::Pool(_))
        })
        .map(|range| range.base)
        .collect();
    for base in bases {
        crate::memory::release::drop_range(driver, table, base);
    }
}

pub(crate) fn create(out: Out<u64>, flags: u32, device: i32) -> Outcome {
    out.check()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    table.device(device)?;
    let handle = make(driver, &mut table, device as usize, flags)?;
    with_stack(|stack| stack.push(handle));
    out.put(handle)
}

/// `cuCtxCreate_v3`: a context limited to some multiprocessors is not among what this driver can do.
pub(crate) fn create_v3(out: Out<u64>, affinities: In<u64>, count: i32, flags: u32, device: i32) -> Outcome {
    if count != 0 {
        let _ = affinities.get()?;
        return Err(Status::NotSupported);
    }
    create(out, flags, device)
}

/// `CUctxCreateParams`: lists of multiprocessors, the number of lists, sharing with graphics.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Creation {
    affinities: u64,
    count: i32,
    graphics: u64,
}

/// `cuCtxCreate_v4`: null is a context without limits, as from `cuCtxCreate_v2`.
pub(crate) fn create_v4(out: Out<u64>, parameters: In<Creation>, flags: u32, device: i32) -> Outcome {
    if parameters.address() != 0 {
        let Creation { affinities, count, graphics } = parameters.get()?;
        if affinities != 0 || count != 0 || graphics != 0 {
            return Err(Status::NotSupported);
        }
    }
    create(out, flags, device)
}

pub(crate) fn destroy(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let context = table.contexts.get(&handle).ok_or(Status::InvalidContext)?;
    if context.primary || context.green {
        return Err(Status::InvalidContext);
    }
    end(driver, &mut table, handle);
    with_stack(|stack| {
        if stack.last() == Some(&handle) {
            stack.pop();
        }
    });
    Ok(())
}

pub(crate) fn push(handle: u64) -> Outcome {
    driver()?.table().contexts.get(&handle).ok_or(Status::InvalidContext)?;
    with_stack(|stack| stack.push(handle));
    Ok(())
}

pub(crate) fn pop(out: Out<u64>) -> Outcome {
    driver()?;
    let handle = with_stack(Vec::pop).ok_or(Status::InvalidContext)?;
    out.offer(handle);
    Ok(())
}

pub(crate) fn set_current(handle: u64) -> Outcome {
    let driver = driver()?;
    if handle != 0 {
        driver.table().contexts.get(&handle).ok_or(Status::InvalidContext)?;
    }
    with_stack(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
    Ok(())
}

pub(crate) fn get_current(out: Out<u64>) -> Outcome {
    driver()?;
    out.put(top().unwrap_or(0))
}

pub(crate) fn get_device(out: Out<i32>) -> Outcome {
    let device = driver()?.table().current_device()?.1;
    out.put(device as i32)
}

pub(crate) fn get_flags(out: Out<u32>) -> Outcome {
    let flags = driver()?.table().current()?.1.flags;
    out.put(flags)
}

pub(crate) fn get_id(handle: u64, out: Out<u64>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let handle = if handle == 0 { table.current()?.0 } else { handle };
    out.put(table.contexts.get(&handle).ok_or(Status::InvalidContext)?.engine.serial())
}

pub(crate) fn get_api_version(handle: u64, out: Out<u32>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    if handle != 0 && !table.contexts.contains_key(&handle) {
        return Err(Status::InvalidContext);
    }
    out.put(API_VERSION)
}

pub(crate) fn get_limit(out: Out<usize>, limit: i32) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let (_, context) = table.current()?;
    let default =
        usize::try_from(limit).ok().and_then(|index| LIMITS.get(index)).ok_or(Status::UnsupportedLimit)?;
    out.put(context.limits.get(&limit).copied().unwrap_or(*default))
}

/// Bytes of the device that a limit takes.
///
/// They are for the stacks of every thread that can be resident, the printf buffer or the heap.
fn cost_of(limit: i32, value: usize, threads: u64) -> Outcome<u64> {
    let bytes = match limit {
        0 => (value as u64).checked_mul(threads),
        1 | 2 => Some(value as u64),
        _ => Some(0),
    };
    bytes.and_then(whole_blocks).ok_or(Status::OutOfMemory)
}

/// Sets a limit, and charges or refunds the difference at once.
///
/// The default is part of what every context costs.
pub(crate) fn set_limit(limit: i32, value: usize) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let (handle, device) = table.current_device()?;
    let default =
        usize::try_from(limit).ok().and_then(|index| LIMITS.get(index)).ok_or(Status::UnsupportedLimit)?;
    let gpu = table.gpu(device);
    let compute = &driver.node().gpu_spec(gpu).model.compute;
    let threads = u64::from(compute.sm_count) * u64::from(compute.max_threads_per_sm);
    let new = cost_of(limit, value, threads)?.saturating_sub(cost_of(limit, *default, threads)?);
    let old = find(&table.contexts, handle)?.extra.get(&limit).copied().unwrap_or(0);
    if new > old {
        driver.charge(gpu, new - old)?;
    }
    driver.refund(gpu, old.saturating_sub(new));
    let context = table.contexts.get_mut(&handle).ok_or(Status::InvalidContext)?;
    context.limits.insert(limit, value);
    context.extra.insert(limit, new);
    Ok(())
}

pub(crate) fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Outcome {
    driver()?.table().current()?;
    least.offer(0);
    greatest.offer(GREATEST_PRIORITY);
    Ok(())
}

/// `cuCtxGetCacheConfig`: no preference, as these GPUs have nothing to choose.
pub(crate) fn cache_config(out: Out<i32>) -> Outcome {
    driver()?.table().current()?;
    out.put(0)
}

/// `cuCtxSetCacheConfig`: a preference, which a device without a choice may ignore.
pub(crate) fn set_cache_config(config: i32) -> Outcome {
    driver()?.table().current()?;
    if (0..=3).contains(&config) { Ok(()) } else { Err(Status::InvalidValue) }
}

pub(crate) fn synchronize() -> Outcome {
    let driver = driver()?;
    let current = driver.table().current()?.0;
    streams_of(driver, current).iter().try_for_each(|stream| stream.must_not_capture(driver))?;
    wait_for(driver, current)?;
    crate::memory::reserve::trim_at_sync(driver);
    Ok(())
}

/// `cuCtxSynchronize_v2`: null is the current context.
pub(crate) fn synchronize_other(context: u64) -> Outcome {
    if context == 0 {
        return synchronize();
    }
    let driver = driver()?;
    driver.table().contexts.get(&context).ok_or(Status::InvalidContext)?;
    wait_for(driver, context)?;
    crate::memory::reserve::trim_at_sync(driver);
    Ok(())
}

/// `cuCtxGetDevice_v2`: null is the current context.
pub(crate) fn device_of(out: Out<i32>, context: u64) -> Outcome {
    if context == 0 {
        return get_device(out);
    }
    let driver = driver()?;
    let device = driver.table().contexts.get(&context).ok_or(Status::InvalidContext)?.device;
    out.put(device as i32)
}

/// Every stream of a context, the legacy one included.
fn streams_of(driver: &Driver, context: u64) -> Vec<Arc<Stream>> {
    let table = driver.table();
    let made = table.streams.values().chain(table.thread_streams.values()).filter(|s| s.context == context);
    let legacy = table.contexts.get(&context).map(|context| &context.legacy);
    made.chain(legacy).cloned().collect()
}

/// Waits until everything in a context is done.
pub(crate) fn wait_for(driver: &Driver, context: u64) -> Outcome {
    let engine = find(&driver.table().contexts, context)?.engine;
    let streams = streams_of(driver, context);
    if streams.iter().any(|stream| stream.capture().is_some()) {
        return Err(Status::CaptureUnsupported);
    }
    driver.process.drain(engine).map_err(status)?;
    while driver.worker.busy_streams().iter().any(|s| s.context == context && s.has_deferred()) {
        driver.worker.wait_a_round();
    }
    crate::fault::check(driver, engine.gpu())
}

pub(crate) fn primary_retain(out: Out<u64>, device: i32) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let flags = table.device(device)?.primary.flags;
    let handle = match table.device(device)?.primary.context {
        Some(handle) => handle,
        None => {
            let handle = match table.device(device)?.primary.former {
                Some(former) => former,
                None => table.handle(),
            };
            make_as(driver, &mut table, handle, device as usize, flags, true)?;
            handle
        }
    };
    let primary = &mut table.device_mut(device)?.primary;
    primary.context = Some(handle);
    primary.retained += 1;
    out.put(handle)
}

pub(crate) fn primary_release(device: i32) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let primary = &mut table.device_mut(device)?.primary;
    primary.retained = primary.retained.checked_sub(1).ok_or(Status::InvalidContext)?;
    if primary.retained > 0 {
        return Ok(());
    }
    end_primary(driver, &mut table, device)
}

/// Ends the context with all but pools and their memory; each retain still needs its release.
///
/// Both as documented for `cuDevicePrimaryCtxReset`; that a pool, its allocations and its reserve survive was seen on a
/// real driver (FathomDB's probe `pool_reset.c`). Calls in flight in other threads come before or after it as a whole.
pub(crate) fn primary_reset(device: i32) -> Outcome {
    let driver = driver()?;
    end_primary(driver, &mut driver.table(), device)
}

fn end_primary(driver: &Driver, table: &mut Table, device: i32) -> Outcome {
    let primary = &mut table.device_mut(device)?.primary;
    if let Some(handle) = primary.context.take() {
        primary.former = Some(handle);
        end(driver, table, handle);
    }
    Ok(())
}

pub(crate) fn primary_state(device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let primary = &table.device(device)?.primary;
    flags.offer(primary.flags);
    active.offer(i32::from(primary.context.is_some()));
    Ok(())
}

pub(crate) fn primary_set_flags(device: i32, flags: u32) -> Outcome {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    driver()?.table().device_mut(device)?.primary.flags = flags;
    Ok(())
}
