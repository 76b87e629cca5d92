//! Multicast objects, on GPUs that have them: one address for the memory of several devices. An object costs nothing
//! itself; memory bound to it stays until it is unbound, even if its handles are released.

use crate::driver::{Driver, Table, driver};
use crate::memory::heap::BLOCK;
use crate::memory::physical;
use crate::memory::ranges::Kind;
use crate::state::physical::{Bound, Multicast};
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// The first compute capability with multicast.
const FIRST: u32 = 9;

/// `CUmulticastObjectProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Properties {
    devices: u32,
    size: usize,
    handle_types: u64,
    flags: u64,
}

impl Properties {
    fn check(&self, driver: &Driver, table: &Table) -> Outcome {
        let has = |device: &crate::driver::Device| {
            driver.node().gpu_spec(device.gpu).model.compute_capability[0] >= FIRST
        };
        if !table.devices.iter().all(has) {
            return Err(Status::NotSupported);
        }
        let possible = (1..=table.devices.len() as u32).contains(&self.devices);
        if possible && self.flags == 0 { Ok(()) } else { Err(Status::InvalidValue) }
    }
}

pub(crate) fn granularity(out: Out<usize>, properties: In<Properties>, option: i32) -> Outcome {
    let driver = driver()?;
    properties.get()?.check(driver, &driver.table())?;
    if option != 0 && option != 1 {
        return Err(Status::InvalidValue);
    }
    out.put(BLOCK as usize)
}

pub(crate) fn create(out: Out<u64>, properties: In<Properties>) -> Outcome {
    out.check()?;
    let properties = properties.get()?;
    let driver = driver()?;
    let mut table = driver.table();
    properties.check(driver, &table)?;
    let size = properties.size as u64;
    if size == 0 || !size.is_multiple_of(BLOCK) {
        return Err(Status::InvalidValue);
    }
    let handle = table.handle();
    let object = Multicast { size, wanted: properties.devices, ..Multicast::default() };
    table.multicasts.insert(handle, object);
    out.put(handle)
}

pub(crate) fn add_device(object: u64, device: i32) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    table.device(device)?;
    let object = table.multicasts.get_mut(&object).ok_or(Status::InvalidValue)?;
    if object.devices.contains(&device) || object.devices.len() as u32 == object.wanted {
        return Err(Status::InvalidValue);
    }
    object.devices.push(device);
    Ok(())
}

pub(crate) fn bind(object: u64, offset: usize, memory: u64, from: usize, size: usize, flags: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let (device, room, _) = physical::facts(&table, memory)?;
    let (offset, from, size) = (offset as u64, from as u64, size as u64);
    let aligned = [offset, from, size].iter().all(|bytes| bytes.is_multiple_of(BLOCK));
    if flags != 0 || size == 0 || !aligned || from.checked_add(size).is_none_or(|end| end > room) {
        return Err(Status::InvalidValue);
    }
    let found = table.multicasts.get_mut(&object).ok_or(Status::InvalidValue)?;
    let device = device as i32;
    // Every device takes part before anything is bound.
    if found.devices.len() as u32 != found.wanted || !found.devices.contains(&device) {
        return Err(Status::IllegalState);
    }
    let taken = |bound: &Bound| {
        bound.device == device && bound.offset < offset + size && offset < bound.offset + bound.size
    };
    if offset.checked_add(size).is_none_or(|end| end > found.size) || found.bound.iter().any(taken) {
        return Err(Status::InvalidValue);
    }
    found.bound.push(Bound { device, offset, size, memory });
    physical::pin(&mut table, memory)
}

/// The same for memory that is named by where it is mapped.
pub(crate) fn bind_address(object: u64, offset: usize, address: u64, size: usize, flags: u64) -> Outcome {
    let (memory, from) = {
        let driver = driver()?;
        let table = driver.table();
        let range = table.ranges.around(address).ok_or(Status::InvalidValue)?;
        let Kind::Virtual(memory) = range.kind else { return Err(Status::InvalidValue) };
        (memory, address - range.base)
    };
    bind(object, offset, memory, from as usize, size, flags)
}

pub(crate) fn unbind(object: u64, device: i32, offset: usize, size: usize) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let bound = &mut table.multicasts.get_mut(&object).ok_or(Status::InvalidValue)?.bound;
    let is_it =
        |bound: &Bound| (bound.device, bound.offset, bound.size) == (device, offset as u64, size as u64);
    let at = bound.iter().position(is_it).ok_or(Status::InvalidValue)?;
    let memory = bound.remove(at).memory;
    physical::unpin(driver, &mut table, memory);
    Ok(())
}

/// Ends an object with all that is bound to it; false if the handle is not one.
pub(crate) fn release(driver: &Driver, table: &mut Table, object: u64) -> bool {
    let Some(object) = table.multicasts.remove(&object) else { return false };
    for bound in object.bound {
        physical::unpin(driver, table, bound.memory);
    }
    true
}
