//! Virtual memory management: addresses without memory, memory without addresses, and the two joined.

use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::find;
use crate::memory::backing::Backing;
use crate::memory::heap::BLOCK;
use crate::memory::physical::{POSIX_FILE, TRAILER, give, settle, take};
use crate::memory::ranges::{Kind, Range};
use crate::state::location::{Location, Site};
use crate::state::physical::{Payment, Physical};
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, copy};

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Properties {
    kind: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
    windows: u64,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Access {
    location_type: i32,
    location: i32,
    flags: i32,
}

impl Properties {
    fn site(&self, table: &Table) -> Outcome<Site> {
        if self.handle_types & !POSIX_FILE != 0 {
            return Err(Status::InvalidValue);
        }
        let location = Location { allocation: self.kind, kind: self.location_type, number: self.location };
        location.of_physical(table)
    }
}

impl Access {
    /// Refuses what no device could be given.
    pub(crate) fn check(&self, table: &Table) -> Outcome {
        if ![0, 1, 3].contains(&self.flags) {
            return Err(Status::InvalidValue);
        }
        Location { allocation: 1, kind: self.location_type, number: self.location }.check_access(table)
    }
}

const fn whole(size: usize) -> Outcome<u64> {
    let size = size as u64;
    if size == 0 || !size.is_multiple_of(BLOCK) { Err(Status::InvalidValue) } else { Ok(size) }
}

pub(crate) fn granularity(out: Out<usize>, properties: In<Properties>, option: i32) -> Outcome {
    let properties = properties.get()?;
    properties.site(&driver()?.table())?;
    if option != 0 && option != 1 {
        return Err(Status::InvalidValue);
    }
    out.put(BLOCK as usize)
}

pub(crate) fn reserve(out: Out<u64>, size: usize, align: usize, at: u64, flags: u64) -> Outcome {
    out.check()?;
    let size = whole(size)?;
    // Zero is the default alignment.
    if flags != 0 || align != 0 && !align.is_power_of_two() {
        return Err(Status::InvalidValue);
    }
    let align = (align as u64).max(BLOCK);
    let driver = driver()?;
    let mut table = driver.table();
    let wished = if at > 0 && at.is_multiple_of(align) { table.reserved.take_at(at, size) } else { None };
    let base = wished.or_else(|| table.reserved.take(size, align)).ok_or(Status::OutOfMemory)?;
    table.reservations.insert(base, size);
    out.put(base)
}

pub(crate) fn unreserve(base: u64, size: usize) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let length = table.reservations.get(&base).copied().filter(|length| *length == size as u64);
    let length = length.ok_or(Status::InvalidValue)?;
    if table.ranges.iter().any(|range| (base..base + length).contains(&range.base)) {
        return Err(Status::InvalidValue);
    }
    table.reservations.remove(&base);
    table.reserved.give(base, length);
    Ok(())
}

pub(crate) fn create(out: Out<u64>, size: usize, properties: In<Properties>, flags: u64) -> Outcome {
    out.check()?;
    let properties = properties.get()?;
    let size = whole(size)?;
    let driver = driver()?;
    let mut table = driver.table();
    let site = properties.site(&table)?;
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    let (device, payment) = match site {
        Site::Device(device) => {
            pay(driver, &mut table, device, size)?;
            (device, Payment::Own)
        }
        // Memory of the host can be shared with other processes; here it can't.
        _ if properties.handle_types != 0 => return Err(Status::NotSupported),
        Site::Host | Site::Managed(_) => (0, Payment::Host),
    };
    let handle = table.handle();
    let backing = Arc::new(Backing::sparse(size));
    let (handle_types, location) = (properties.handle_types, (properties.location_type, properties.location));
    let imported = false;
    table.physical.insert(
        handle,
        Physical { device, size, handle_types, location, backing, held: 1, mapped: 0, payment, imported },
    );
    out.put(handle)
}

/// Takes device memory, what pools have at rest included.
fn pay(driver: &Driver, table: &mut Table, device: usize, size: u64) -> Outcome {
    let gpu = table.gpu(device);
    crate::fault::check(driver, gpu)?;
    match driver.charge(gpu, size) {
        Err(Status::OutOfMemory) if crate::memory::reserve::trim_all(driver, table, device) => {
            driver.charge(gpu, size)
        }
        charged => charged,
    }
}

pub(crate) fn release(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if crate::memory::multicast::release(driver, &mut table, handle) {
        return Ok(());
    }
    give(driver, &mut table, handle)
}

pub(crate) fn map(base: u64, size: usize, offset: usize, handle: u64, flags: u64) -> Outcome {
    let size = whole(size)?;
    let driver = driver()?;
    let mut table = driver.table();
    let physical =
        table.physical.get(&handle).filter(|physical| physical.held > 0).ok_or(Status::InvalidValue)?;
    // The driver maps an allocation from its beginning only.
    if flags != 0 || offset != 0 || size != physical.size || !is_reserved(&table, base, size) {
        return Err(Status::InvalidValue);
    }
    if table.ranges.iter().any(|range| range.base < base + size && base < range.base + range.size) {
        return Err(Status::InvalidValue);
    }
    let (device, backing) = (physical.device, physical.backing.clone());
    let id = table.handle();
    let kind = Kind::Virtual(handle);
    table.ranges.insert(Range { base, size, kind, device, context: 0, id, backing, offset: 0 });
    if let Some(physical) = table.physical.get_mut(&handle) {
        physical.mapped += 1;
    }
    Ok(())
}

fn is_reserved(table: &Table, base: u64, size: u64) -> bool {
    let around = table.reservations.range(..=base).next_back();
    around.is_some_and(|(start, length)| base + size <= start + length)
}

/// Every mapping that begins in the stretch, which must be made of whole ones.
fn mappings(table: &Table, base: u64, size: u64) -> Outcome<Vec<(u64, u64)>> {
    let end = base.checked_add(size).ok_or(Status::InvalidValue)?;
    let (mut at, mut found) = (base, Vec::new());
    while at < end {
        let range = table.ranges.at(at).ok_or(Status::InvalidValue)?;
        let Kind::Virtual(handle) = range.kind else { return Err(Status::InvalidValue) };
        found.push((at, handle));
        at += range.size;
    }
    if at == end { Ok(found) } else { Err(Status::InvalidValue) }
}

pub(crate) fn unmap(base: u64, size: usize) -> Outcome {
    let size = whole(size)?;
    let driver = driver()?;
    let mut table = driver.table();
    for (at, handle) in mappings(&table, base, size)? {
        table.ranges.remove(at);
        if let Some(physical) = table.physical.get_mut(&handle) {
            physical.mapped -= 1;
        }
        settle(driver, &mut table, handle);
    }
    Ok(())
}

/// Checks the form of an access list for mappings; every simulated device has access.
pub(crate) fn set_access(base: u64, size: usize, descriptions: In<Access>, count: usize) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    mappings(&table, base, whole(size)?)?;
    descriptions.list(count)?.iter().try_for_each(|access| access.check(&table))
}

pub(crate) fn retain(out: Out<u64>, address: Host) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let Some(Kind::Virtual(handle)) = table.ranges.around(address.address()).map(|range| range.kind) else {
        return Err(Status::InvalidValue);
    };
    table.physical.get_mut(&handle).ok_or(Status::InvalidValue)?.held += 1;
    out.put(handle)
}

pub(crate) fn properties(out: Out<Properties>, handle: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let physical = find(&table.physical, handle)?;
    let (handle_types, (location_type, location)) = (physical.handle_types, physical.location);
    out.put(Properties { kind: 1, handle_types, location_type, location, windows: 0, flags: [0; 8] })
}

/// Makes a file descriptor that another process can import.
pub(crate) fn export(out: Host, handle: u64, kind: i32, flags: u64) -> Outcome {
    if kind != POSIX_FILE || flags != 0 || out == Host::NULL {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let Physical { device, size, handle_types, payment, .. } = *find(&table.physical, handle)?;
    if handle_types & POSIX_FILE == 0 {
        return Err(Status::InvalidValue);
    }
    let file = find(&table.physical, handle)?.backing.file()?;
    let gpu = table.gpu(device);
    let piece = match payment {
        Payment::Shared(piece) => piece,
        Payment::Own => crate::memory::shared::share(driver, &mut table, gpu, size)?,
        Payment::Host => return Err(Status::NotSupported),
    };
    if let Some(physical) = table.physical.get_mut(&handle) {
        physical.payment = Payment::Shared(piece);
    }
    let trailer = [gpu.index() as u64, piece.serial()].map(u64::to_ne_bytes).concat();
    file.set_len(size + TRAILER).map_err(|_| Status::OperatingSystem)?;
    file.write_all_at(&trailer, size).map_err(|_| Status::OperatingSystem)?;
    let fd = file.into_raw_fd();
    copy(Host(std::ptr::from_ref(&fd).cast_mut().cast()), out, size_of_val(&fd));
    Ok(())
}

/// Takes what another process exported. Its bytes are there until the last process that has it lets go.
pub(crate) fn import(out: Out<u64>, shared: Host, kind: i32) -> Outcome {
    out.check()?;
    if kind != POSIX_FILE {
        return Err(Status::InvalidValue);
    }
    let fd = i32::try_from(shared.address()).map_err(|_| Status::InvalidValue)?;
    let driver = driver()?;
    let mut table = driver.table();
    let handle = take(driver, &mut table, fd)?;
    out.put(handle)
}
