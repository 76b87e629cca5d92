//! Plain device memory: `cuMemAlloc`, pitch, managed, and what frees them.

use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::memory::backing::Backing;
use crate::memory::heap::{BLOCK, Placement, whole_blocks};
use crate::memory::ranges::{Kind, Range};
use crate::status::{Outcome, Status};
use crate::wall::Out;

/// Rows of pitched memory begin at multiples of this.
const PITCH: u64 = 512;

/// Finds and pays for device memory of one kind and makes it a range of the current context.
pub(crate) fn allocate(driver: &Driver, table: &mut Table, size: u64, kind: Kind) -> Outcome<u64> {
    let (context, device) = table.current_device()?;
    allocate_on(driver, table, size, kind, context, device)
}

/// The same on any device. Unused memory of pools is given up before it is refused.
pub(crate) fn allocate_on(
    driver: &Driver,
    table: &mut Table,
    size: u64,
    kind: Kind,
    context: u64,
    device: usize,
) -> Outcome<u64> {
    let gpu = table.gpu(device);
    crate::fault::check(driver, gpu)?;
    let placement = match place(driver, table, size, kind, device) {
        Err(Status::OutOfMemory) if crate::memory::pool::trim_all(driver, table, device) => {
            place(driver, table, size, kind, device)?
        }
        placement => placement?,
    };
    Ok(add(table, placement, size, kind, context, device))
}

fn place(driver: &Driver, table: &mut Table, size: u64, kind: Kind, device: usize) -> Outcome<Placement> {
    let gpu = table.gpu(device);
    let device = &mut table.devices[device];
    match kind {
        Kind::Low => device.low.place(size, |bytes| driver.charge(gpu, bytes)),
        Kind::Managed => managed(driver, gpu, size),
        _ => device.heap.place(size, |bytes| driver.charge(gpu, bytes)),
    }
}

/// Managed memory has whole blocks and one address for host and device.
fn managed(driver: &Driver, gpu: simgpu::Gpu, size: u64) -> Outcome<Placement> {
    let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
    let backing = Arc::new(Backing::mapped(length)?);
    driver.charge(gpu, length)?;
    Ok(Placement { base: backing.host(0, length)?.address(), backing, offset: 0 })
}

/// Makes a place a range.
pub(crate) fn add(
    table: &mut Table,
    placement: Placement,
    size: u64,
    kind: Kind,
    context: u64,
    device: usize,
) -> u64 {
    let Placement { base, backing, offset } = placement;
    let id = table.handle();
    table.ranges.insert(Range { base, size, kind, device, context, id, backing, offset });
    base
}

/// Takes a range out and gives its blocks back, whatever it is.
pub(crate) fn drop_range(driver: &Driver, table: &mut Table, base: u64) {
    if let Some(range) = table.ranges.at_mut(base).filter(|range| range.kind == Kind::Graph) {
        range.kind = Kind::Unpaid;
        let (device, size) = (range.device, range.size);
        let pool = table.devices[device].graph_pool;
        return crate::memory::pool::rest(table, pool, device, size);
    }
    let Some(range) = table.ranges.remove(base) else { return };
    let gpu = table.gpu(range.device);
    let device = &mut table.devices[range.device];
    let freed = match range.kind {
        Kind::Device | Kind::Leaving | Kind::Owned => device.heap.vacate(base, range.size),
        Kind::Low => device.low.vacate(base, range.size),
        Kind::Managed => whole_blocks(range.size).unwrap_or(0),
        Kind::Ipc(piece) | Kind::Lent(piece) | Kind::LentLeaving(piece) => {
            table.reserved.give(base, range.backing.size());
            return crate::memory::shared::leave(driver, table, piece);
        }
        Kind::Pool(pool) => {
            return crate::memory::pool::vacate(driver, table, pool, range.device, base, range.size);
        }
        Kind::External(memory) => {
            table.reserved.give(base, range.size.next_multiple_of(BLOCK));
            return crate::memory::virt::unpin(driver, table, memory);
        }
        Kind::Graph | Kind::Unpaid | Kind::Virtual(_) | Kind::Pinned(_) | Kind::Registered(_) => 0,
    };
    crate::memory::shared::refund(driver, table, gpu, base - base % BLOCK, freed);
}

/// Ends memory that was freed in a stream, in its turn, unless its context ended before.
pub(crate) fn leave(base: u64, id: u64) {
    if let Ok(driver) = driver() {
        let mut table = driver.table();
        if table.ranges.at(base).is_some_and(|range| range.id == id) {
            drop_range(driver, &mut table, base);
        }
    }
}

fn get(size: usize, kind: Kind) -> Outcome<u64> {
    if size == 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    crate::capture::unsafe_call(driver)?;
    allocate(driver, &mut driver.table(), size as u64, kind)
}

pub(crate) fn alloc(out: Out<u64>, size: usize) -> Outcome {
    out.check()?;
    out.put(get(size, Kind::Device)?)
}

/// The 32-bit form, whose addresses fit into 32 bits.
pub(crate) fn alloc_low(out: Out<u32>, size: u32) -> Outcome {
    out.check()?;
    out.put(get(size as usize, Kind::Low)? as u32)
}

pub(crate) fn alloc_pitch(
    out: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Outcome {
    out.check()?;
    pitch.check()?;
    let (bytes, row) = pitched(width, height, element)?;
    out.put(get(bytes, Kind::Device)?)?;
    pitch.put(row)
}

pub(crate) fn alloc_pitch_low(
    out: Out<u32>,
    pitch: Out<u32>,
    width: u32,
    height: u32,
    element: u32,
) -> Outcome {
    out.check()?;
    pitch.check()?;
    let (bytes, row) = pitched(width as usize, height as usize, element)?;
    out.put(get(bytes, Kind::Low)? as u32)?;
    pitch.put(row as u32)
}

fn pitched(width: usize, height: usize, element: u32) -> Outcome<(usize, usize)> {
    if width == 0 || height == 0 || ![4, 8, 16].contains(&element) {
        return Err(Status::InvalidValue);
    }
    let row = width.checked_next_multiple_of(PITCH as usize).ok_or(Status::OutOfMemory)?;
    Ok((row.checked_mul(height).ok_or(Status::OutOfMemory)?, row))
}

/// `CU_MEM_ATTACH_GLOBAL` or `CU_MEM_ATTACH_HOST`.
pub(crate) fn alloc_managed(out: Out<u64>, size: usize, flags: u32) -> Outcome {
    out.check()?;
    if flags != 1 && flags != 2 {
        return Err(Status::InvalidValue);
    }
    out.put(get(size, Kind::Managed)?)
}

/// Waits for the work of the context that the memory is of, as the real one does, then frees it.
///
/// Any context may be current, or none. Address 0 is nothing to free.
pub(crate) fn free(address: u64) -> Outcome {
    let driver = driver()?;
    let current = driver.table().current().ok().map(|(current, _)| current);
    if address == 0 {
        return Ok(());
    }
    let owner = {
        let table = driver.table();
        let range = table.ranges.at(address).ok_or(Status::InvalidValue)?;
        let freeable = matches!(
            range.kind,
            Kind::Device
                | Kind::Low
                | Kind::Managed
                | Kind::Pool(_)
                | Kind::Graph
                | Kind::External(_)
                | Kind::Lent(_)
        );
        if !freeable {
            return Err(Status::InvalidValue);
        }
        range.context
    };
    match crate::context::wait_for(driver, owner) {
        Err(Status::CaptureUnsupported) => return Err(Status::CaptureUnsupported),
        // Memory of a pool or graph may outlive the context that made it.
        Err(Status::InvalidHandle) => {
            current.map_or(Ok(()), |current| crate::context::wait_for(driver, current))?;
        }
        _ => {}
    }
    let mut table = driver.table();
    if table.ranges.at(address).is_none() {
        return Err(Status::InvalidValue);
    }
    drop_range(driver, &mut table, address);
    crate::memory::pool::trim_to_thresholds(driver, &mut table);
    Ok(())
}

pub(crate) fn free_low(address: u32) -> Outcome {
    free(u64::from(address))
}

/// Free and total memory of the current device: what any process uses is not free.
///
/// Either place may be null, as programs have it that run on real drivers (HAMi-core issues 321, 322 and 333, llama.cpp
/// 20499). For both no source states anything: that is taken as a query without an answer.
pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let (_, device) = table.current_device()?;
    let gpu = table.gpu(device);
    crate::fault::check(driver, gpu)?;
    let capacity = driver.node().capacity(gpu);
    free.offer(capacity.saturating_sub(driver.node().used(gpu)).bytes() as usize);
    total.offer(capacity.bytes() as usize);
    Ok(())
}

/// The 32-bit form: what does not fit is shown as the most that fits.
pub(crate) fn info_low(free: Out<u32>, total: Out<u32>) -> Outcome {
    let (mut wide_free, mut wide_total) = (0, 0);
    info(Out::to(&mut wide_free), Out::to(&mut wide_total))?;
    let narrow = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    free.offer(narrow(wide_free));
    total.offer(narrow(wide_total));
    Ok(())
}

/// The blocks behind an allocation, in bytes.
pub(crate) const fn granularity() -> usize {
    BLOCK as usize
}
