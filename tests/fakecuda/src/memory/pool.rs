//! Stream-ordered memory. A pool pays for blocks when it first needs them and keeps what is freed until a
//! synchronisation finds it above its threshold.

use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::{DefaultStream, find, select};
use crate::memory::graph::reserve_graph_memory;
use crate::memory::physical::POSIX_FILE;
use crate::memory::place::add;
use crate::memory::ranges::Kind;
use crate::memory::release::{drop_range, end_if_unused};
use crate::memory::reserve::{charge_on, trim_all, trim_pool};
use crate::memory::virt::Access;
use crate::state::location::{DEVICE, Location, Site};
use crate::state::pool::{LocationPools, POOL_ADDRESSES, Pool};
use crate::state::stream::{Op, Stream};
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, copy};

/// `CUmemPool_attribute`, as numbers.
const REUSE: std::ops::RangeInclusive<i32> = 1..=3;
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;

/// The pool that a handle means.
pub(crate) fn known(table: &Table, handle: u64) -> Outcome<&Pool> {
    find(&table.pools, handle).ok().filter(|pool| !pool.gone).ok_or(Status::InvalidHandle)
}

pub(crate) fn alloc_async(default: DefaultStream, out: Out<u64>, size: usize, stream: u64) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    let pool = {
        let table = driver.table();
        let device = find(&table.contexts, stream.context)?.device;
        table.devices[device].pool
    };
    from_pool(driver, &stream, out, size, pool)
}

pub(crate) fn alloc_from_pool(
    default: DefaultStream,
    out: Out<u64>,
    size: usize,
    pool: u64,
    stream: u64,
) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    from_pool(driver, &stream, out, size, pool)
}

fn from_pool(driver: &Driver, stream: &Arc<Stream>, out: Out<u64>, size: usize, handle: u64) -> Outcome {
    out.check()?;
    let size = size as u64;
    if size == 0 {
        return out.put(0);
    }
    let (site, device) = {
        let table = driver.table();
        let pool = known(&table, handle)?;
        (pool.site, pool.device_for(find(&table.contexts, stream.context)?.device))
    };
    if stream.capture().is_some() {
        // No document states what a graph keeps of a host pool.
        if site == Site::Host {
            return Err(Status::NotSupported);
        }
        let memory = reserve_graph_memory(driver, size, device)?;
        stream.enqueue(driver, Op::Alloc(memory))?;
        return out.put(memory.base);
    }
    let mut table = driver.table();
    crate::fault::check(driver, table.gpu(device))?;
    let charge = charge_on(driver, &table, site, device);
    let pool = table.pools.get_mut(&handle).ok_or(Status::InvalidValue)?;
    let placement = match pool.place(device, size, &charge) {
        Err(Status::OutOfMemory) if trim_all(driver, &mut table, device) => {
            table.pools.get_mut(&handle).ok_or(Status::InvalidValue)?.place(device, size, &charge)?
        }
        placement => placement?,
    };
    out.put(add(&mut table, placement, size, Kind::Pool(handle), stream.context, device))
}

pub(crate) fn free_async(default: DefaultStream, address: u64, stream: u64) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    if address == 0 {
        return Ok(());
    }
    if stream.capture().is_some() {
        return stream.enqueue(driver, Op::Free(address));
    }
    let mut table = driver.table();
    let range = table.ranges.at_mut(address).ok_or(Status::InvalidValue)?;
    match range.kind {
        // A pool may give it out again at once; it is the pool that keeps the memory.
        Kind::Pool(_) | Kind::Graph => drop_range(driver, &mut table, address),
        Kind::Device => {
            range.kind = Kind::Leaving;
            let op = Op::Leave(address, range.id);
            drop(table);
            stream.run(driver, &op)?;
        }
        Kind::Lent(piece) => {
            range.kind = Kind::LentLeaving(piece);
            let op = Op::Leave(address, range.id);
            drop(table);
            stream.run(driver, &op)?;
        }
        _ => return Err(Status::InvalidValue),
    }
    Ok(())
}

/// `cuDeviceGraphMemTrim`.
pub(crate) fn graph_trim(device: i32) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let pool = table.device(device)?.graph_pool;
    trim_pool(driver, &mut table, pool, |_| 0);
    Ok(())
}

/// `cuDeviceGetGraphMemAttribute`: used, used high, reserved, reserved high.
pub(crate) fn graph_attribute(device: i32, attribute: i32, out: Out<u64>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let pool = find(&table.pools, table.device(device)?.graph_pool)?;
    out.put(match attribute {
        0 => pool.used(),
        1 => pool.used_high,
        2 => pool.reserved(),
        3 => pool.reserved_high,
        _ => return Err(Status::InvalidValue),
    })
}

/// `cuDeviceSetGraphMemAttribute`: the two high marks can be set back.
pub(crate) fn set_graph_attribute(device: i32, attribute: i32, value: In<u64>) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let handle = table.device(device)?.graph_pool;
    let pool = table.pools.get_mut(&handle).ok_or(Status::Unknown)?;
    match (attribute, value.get()?) {
        (1, 0) => pool.used_high = pool.used(),
        (3, 0) => pool.reserved_high = pool.reserved(),
        _ => return Err(Status::InvalidValue),
    }
    Ok(())
}

/// `CUmemPoolProps`, with only what this driver reads named.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    allocation_type: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
    rest: [u64; 9],
}

impl PoolProperties {
    /// Plain memory on a device.
    pub(crate) const fn on(device: i32) -> Self {
        Self { allocation_type: 1, handle_types: 0, location_type: 1, location: device, rest: [0; 9] }
    }

    /// Location of the memory.
    pub(crate) const fn location(&self) -> Location {
        Location { allocation: self.allocation_type, kind: self.location_type, number: self.location }
    }
}

pub(crate) fn create(out: Out<u64>, properties: In<PoolProperties>) -> Outcome {
    out.check()?;
    let properties = properties.get()?;
    let driver = driver()?;
    let mut table = driver.table();
    let location = properties.location().normal();
    let site = location.of_pool(&table)?;
    if properties.handle_types & !POSIX_FILE != 0 {
        return Err(Status::NotSupported);
    }
    let shareable = properties.handle_types == POSIX_FILE;
    // Pools of the host and managed ones can't be shared with other processes.
    if shareable && !matches!(site, Site::Device(_)) {
        return Err(Status::InvalidValue);
    }
    let start = table.reserved.take(POOL_ADDRESSES, 1 << 30).ok_or(Status::OutOfMemory)?;
    let pool = Pool::at(location, site, start, POOL_ADDRESSES);
    let handle = table.handle();
    table.pools.insert(handle, Pool { reserved_at: Some(start), shareable, ..pool });
    out.put(handle)
}

/// A `CUmemLocation` by address: type, then number.
pub(crate) type AnyLocation = In<[i32; 2]>;

fn location_of(location: AnyLocation, allocation: i32) -> Outcome<Location> {
    let [kind, number] = location.get()?;
    Ok(Location { allocation, kind, number }.normal())
}

/// The pools of a location, made at the first query.
fn pools_of(table: &mut Table, location: Location) -> Outcome<LocationPools> {
    let site = location.of_pool(table)?;
    if location.kind == DEVICE
        && let Site::Device(device) = site
    {
        let device = &table.devices[device];
        return Ok(LocationPools { default: device.default_pool, current: device.pool });
    }
    if let Some(pools) = table.location_pools.get(&location) {
        return Ok(*pools);
    }
    let start = table.reserved.take(POOL_ADDRESSES, 1 << 30).ok_or(Status::OutOfMemory)?;
    let handle = table.handle();
    table.pools.insert(handle, Pool::at(location, site, start, POOL_ADDRESSES));
    let pools = LocationPools { default: handle, current: handle };
    table.location_pools.insert(location, pools);
    Ok(pools)
}

/// `cuMemGetDefaultMemPool`.
pub(crate) fn default_at(out: Out<u64>, location: AnyLocation, allocation: i32) -> Outcome {
    out.check()?;
    let location = location_of(location, allocation)?;
    out.put(pools_of(&mut driver()?.table(), location)?.default)
}

/// `cuMemGetMemPool`.
pub(crate) fn current_at(out: Out<u64>, location: AnyLocation, allocation: i32) -> Outcome {
    out.check()?;
    let location = location_of(location, allocation)?;
    out.put(pools_of(&mut driver()?.table(), location)?.current)
}

/// `cuMemSetMemPool`: the pool must be of this location and allocation type. For plain memory of a device it is
/// `cuDeviceSetMemPool`.
pub(crate) fn set_current_at(location: AnyLocation, allocation: i32, pool: u64) -> Outcome {
    let location = location_of(location, allocation)?;
    let driver = driver()?;
    let mut table = driver.table();
    let pools = pools_of(&mut table, location)?;
    if known(&table, pool)?.location != location {
        return Err(Status::InvalidValue);
    }
    if location == Location::on(location.number) {
        table.device_mut(location.number)?.pool = pool;
    } else {
        table.location_pools.insert(location, LocationPools { current: pool, ..pools });
    }
    Ok(())
}

pub(crate) fn destroy(handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if table.imported_pools.remove(&handle).is_some() {
        return Ok(());
    }
    known(&table, handle)?.reserved_at.ok_or(Status::InvalidValue)?;
    if let Some(pool) = table.pools.get_mut(&handle) {
        pool.gone = true;
    }
    end_if_unused(driver, &mut table, handle);
    for device in &mut table.devices {
        if device.pool == handle {
            device.pool = device.default_pool;
        }
    }
    for pools in table.location_pools.values_mut().filter(|pools| pools.current == handle) {
        pools.current = pools.default;
    }
    Ok(())
}

pub(crate) fn default_of(out: Out<u64>, device: i32) -> Outcome {
    out.put(driver()?.table().device(device)?.default_pool)
}

pub(crate) fn current_of(out: Out<u64>, device: i32) -> Outcome {
    out.put(driver()?.table().device(device)?.pool)
}

pub(crate) fn set_current(device: i32, handle: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if handle == 0 {
        return Err(Status::InvalidValue);
    }
    known(&table, handle)?;
    if !usize::try_from(device).is_ok_and(|device| table.pools[&handle].site == Site::Device(device)) {
        return Err(Status::InvalidValue);
    }
    table.device_mut(device)?.pool = handle;
    Ok(())
}

pub(crate) fn trim_to(handle: u64, keep: usize) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    known(&table, handle)?;
    trim_pool(driver, &mut table, handle, |_| keep as u64);
    Ok(())
}

pub(crate) fn attribute(handle: u64, attribute: i32, out: Host) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let pool = known(&table, handle)?;
    let bytes = match attribute {
        RELEASE_THRESHOLD => pool.threshold,
        RESERVED => pool.reserved(),
        RESERVED_HIGH => pool.reserved_high,
        USED => pool.used(),
        USED_HIGH => pool.used_high,
        _ if REUSE.contains(&attribute) => {
            return write(out, &pool.reuse[attribute as usize - 1].to_ne_bytes());
        }
        _ => return Err(Status::InvalidValue),
    };
    write(out, &bytes.to_ne_bytes())
}

/// Writes an attribute, whose size its number decides.
fn write(out: Host, bytes: &[u8]) -> Outcome {
    if out == Host::NULL {
        return Err(Status::InvalidValue);
    }
    copy(Host(bytes.as_ptr().cast_mut().cast()), out, bytes.len());
    Ok(())
}

pub(crate) fn set_attribute(handle: u64, attribute: i32, value: Host) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    known(&table, handle)?;
    let pool = table.pools.get_mut(&handle).ok_or(Status::InvalidHandle)?;
    match attribute {
        RELEASE_THRESHOLD => pool.threshold = value.read()?,
        RESERVED_HIGH if value.read::<u64>()? == 0 => pool.reserved_high = pool.reserved(),
        USED_HIGH if value.read::<u64>()? == 0 => pool.used_high = pool.used(),
        _ if REUSE.contains(&attribute) => pool.reuse[attribute as usize - 1] = value.read()?,
        _ => return Err(Status::InvalidValue),
    }
    Ok(())
}

/// Checks the form of an access list; every simulated device has access to every pool.
pub(crate) fn set_access(handle: u64, list: In<Access>, count: usize) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    known(&table, handle)?;
    list.list(count)?.iter().try_for_each(|access| access.check(&table))
}

/// Every device can read and write every pool.
pub(crate) fn access(out: Out<i32>, handle: u64, location: AnyLocation) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    known(&table, handle)?;
    location_of(location, 1)?.check_access(&table)?;
    out.put(3)
}
