//! Finding a place for device memory, and paying for it.

use std::sync::Arc;

use crate::driver::{Driver, Table};
use crate::memory::backing::Backing;
use crate::memory::heap::{Placement, whole_blocks};
use crate::memory::ranges::{Kind, Range};
use crate::status::{Outcome, Status};

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
        Err(Status::OutOfMemory) if crate::memory::reserve::trim_all(driver, table, device) => {
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
