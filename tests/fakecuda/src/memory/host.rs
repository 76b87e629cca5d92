//! Host memory that the device can use: pinned by this library, or the caller's and registered.

use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::memory::backing::Backing;
use crate::memory::ranges::{Kind, Range};
use crate::status::{Outcome, Status};
use crate::wall::{Host, Out};

/// Portable, device map, write combined.
const ALLOC_FLAGS: u32 = 7;
/// Portable, device map, IO memory, read only.
const REGISTER_FLAGS: u32 = 15;

pub(crate) fn alloc(out: Out<Host>, size: usize) -> Outcome {
    alloc_with_flags(out, size, 0)
}

pub(crate) fn alloc_low(out: Out<Host>, size: u32) -> Outcome {
    alloc(out, size as usize)
}

pub(crate) fn alloc_with_flags(out: Out<Host>, size: usize, flags: u32) -> Outcome {
    out.check()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    if size == 0 {
        table.current()?;
        return out.put(Host::NULL);
    }
    let length = (size as u64).checked_next_multiple_of(4096).ok_or(Status::OutOfMemory)?;
    let backing = Backing::mapped(length)?;
    let at = backing.host(0, length)?;
    add(&mut table, at, size as u64, Kind::Pinned(flags), backing)?;
    out.put(at)
}

fn add(table: &mut Table, at: Host, size: u64, kind: Kind, backing: Backing) -> Outcome {
    let (context, device) = table.current_device()?;
    let id = table.handle();
    let backing = Arc::new(backing);
    table.ranges.insert(Range { base: at.address(), size, kind, device, context, id, backing, offset: 0 });
    Ok(())
}

/// Null is nothing to free: 0 on driver 590.48.01 (lupine issue 850 and pull request 858).
pub(crate) fn free(at: Host) -> Outcome {
    let driver = driver()?;
    if at == Host::NULL {
        return Ok(());
    }
    let (context, kind) = starting_at(driver, at)?;
    if !matches!(kind, Kind::Pinned(_)) {
        return Err(Status::InvalidValue);
    }
    take_out(driver, at, context)
}

/// Waits for work that may use it, then forgets it.
fn take_out(driver: &Driver, at: Host, context: u64) -> Outcome {
    match crate::context::wait_for(driver, context) {
        Err(status @ (Status::CaptureUnsupported | Status::Unknown)) => return Err(status),
        _ => drop(driver.table().ranges.remove(at.address())),
    }
    Ok(())
}

fn starting_at(driver: &Driver, at: Host) -> Outcome<(u64, Kind)> {
    let table = driver.table();
    table.ranges.at(at.address()).map(|range| (range.context, range.kind)).ok_or(Status::InvalidValue)
}

pub(crate) fn register(at: Host, size: usize, flags: u32) -> Outcome {
    if at == Host::NULL || size == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let (start, end) = (at.address(), at.address() + size as u64);
    if table.ranges.iter().any(|range| range.base < end && start < range.base + range.size) {
        return Err(Status::HostMemoryAlreadyRegistered);
    }
    add(&mut table, at, size as u64, Kind::Registered(flags), Backing::borrowed(at, size as u64))
}

/// Null is an invalid value on driver 590.48.01 (lupine pull request 858), unlike for `cuMemFreeHost`.
pub(crate) fn unregister(at: Host) -> Outcome {
    let driver = driver()?;
    if at == Host::NULL {
        return Err(Status::InvalidValue);
    }
    match starting_at(driver, at) {
        Ok((context, Kind::Registered(_))) => take_out(driver, at, context),
        Ok((_, Kind::Pinned(_))) => Err(Status::InvalidValue),
        _ => Err(Status::HostMemoryNotRegistered),
    }
}

pub(crate) fn device_pointer(out: Out<u64>, at: Host, flags: u32) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let range =
        table.ranges.around(at.address()).filter(|range| range.is_host()).ok_or(Status::InvalidValue)?;
    if flags != 0 || range.size == 0 {
        return Err(Status::InvalidValue);
    }
    out.put(at.address())
}

pub(crate) fn flags(out: Out<u32>, at: Host) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    match table.ranges.around(at.address()).map(|range| range.kind) {
        // Every pinned byte is mapped for the device, as with unified addressing.
        Some(Kind::Pinned(flags) | Kind::Registered(flags)) => out.put(flags | 2),
        _ => Err(Status::InvalidValue),
    }
}
