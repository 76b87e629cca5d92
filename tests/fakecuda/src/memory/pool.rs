//! Stream-ordered memory. A pool pays for blocks when it first needs them and keeps what is freed until a
//! synchronisation finds it above its threshold.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::{Driver, Table, driver};
use crate::lookup::find;
use crate::memory::alloc::{add, drop_range};
use crate::memory::backing::Backing;
use crate::memory::heap::{BLOCK, Heap, Placement, whole_blocks};
use crate::memory::location::{DEVICE, Location, Site};
use crate::memory::ranges::Kind;
use crate::memory::virt::Access;
use crate::op::{GraphMemory, Op};
use crate::status::{Outcome, Status};
use crate::stream::{DefaultStream, Stream, select};
use crate::wall::{Host, In, Out, copy};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_FILE: i32 = 1;
/// `CUmemPool_attribute`, as numbers.
const REUSE: std::ops::RangeInclusive<i32> = 1..=3;
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;
/// Addresses of one explicit pool.
const POOL_ADDRESSES: u64 = 1 << 38;

/// A pool of stream-ordered memory.
pub(crate) struct Pool {
    location: Location,
    site: Site,
    heap: Heap,
    /// Begin of its addresses, if it took them from the reservation line.
    reserved_at: Option<u64>,
    /// Blocks that it has of each device.
    accounts: BTreeMap<usize, Account>,
    /// Bytes in live allocations that have addresses of the host.
    mapped_used: u64,
    /// It grows by multiples of this.
    step: u64,
    reserved_high: u64,
    used_high: u64,
    /// Bytes used by graphs, whose addresses the heap does not manage at run time.
    graph_used: u64,
    threshold: u64,
    reuse: [i32; 3],
    /// Destroyed: it ends with the last of its allocations.
    gone: bool,
    /// Other processes may open it: each allocation has whole blocks to itself.
    shareable: bool,
}

/// Blocks that a pool has of one device, in bytes.
#[derive(Clone, Copy, Default)]
struct Account {
    /// Bytes of blocks paid for and unused.
    resting: u64,
    /// Bytes of all blocks paid for.
    reserved: u64,
}

impl Account {
    /// Pays for blocks, from what rests first, and grows by whole steps.
    ///
    /// Where there is no room for a step, it grows by what is needed.
    fn pay(&mut self, bytes: u64, step: u64, charge: impl Fn(u64) -> Outcome) -> Outcome {
        let new = bytes - bytes.min(self.resting);
        let mut grown = new.checked_next_multiple_of(step).ok_or(Status::OutOfMemory)?;
        if grown > 0 && charge(grown).is_err() {
            grown = new;
            charge(grown)?;
        }
        self.reserved += grown;
        self.resting = self.resting + grown - bytes;
        Ok(())
    }
}

impl Pool {
    /// A pool over these addresses, for plain memory of a device.
    pub(crate) fn new(device: usize, start: u64, length: u64) -> Self {
        Self::at(Location::on(device as i32), Site::Device(device), start, length)
    }

    fn at(location: Location, site: Site, start: u64, length: u64) -> Self {
        Self {
            location,
            site,
            heap: Heap::new(start, length),
            reserved_at: None,
            accounts: BTreeMap::new(),
            mapped_used: 0,
            step: crate::personality::own().pool_step_mib << 20,
            reserved_high: 0,
            used_high: 0,
            graph_used: 0,
            threshold: 0,
            reuse: [1; 3],
            gone: false,
            shareable: false,
        }
    }

    /// The pool behind graphs' memory nodes: keeps what it has until it is trimmed.
    pub(crate) fn graphs(device: usize, start: u64, length: u64) -> Self {
        Self { threshold: u64::MAX, step: BLOCK, ..Self::new(device, start, length) }
    }

    /// Tests if other processes may open it.
    pub(crate) fn is_shareable(&self) -> bool {
        self.shareable && !self.gone
    }

    /// The device that an allocation is counted on, for a stream of a device.
    const fn device_for(&self, stream: usize) -> usize {
        match self.site {
            Site::Device(device) | Site::Managed(Some(device)) => device,
            Site::Host | Site::Managed(None) => stream,
        }
    }

    /// Bytes of the heap that an allocation of this size takes.
    fn size_of(&self, size: u64) -> Option<u64> {
        if self.shareable { whole_blocks(size) } else { Some(size) }
    }

    fn used(&self) -> u64 {
        self.heap.used() + self.mapped_used + self.graph_used
    }

    fn reserved(&self) -> u64 {
        self.accounts.values().map(|account| account.reserved).sum()
    }

    fn resting(&self) -> u64 {
        self.accounts.values().map(|account| account.resting).sum()
    }

    fn note(&mut self) {
        self.reserved_high = self.reserved_high.max(self.reserved());
        self.used_high = self.used_high.max(self.used());
    }

    fn pay(&mut self, device: usize, bytes: u64, charge: impl Fn(u64) -> Outcome) -> Outcome {
        self.accounts.entry(device).or_default().pay(bytes, self.step, charge)
    }

    fn place(&mut self, device: usize, size: u64, charge: impl Fn(u64) -> Outcome) -> Outcome<Placement> {
        let placement = match self.site {
            Site::Device(_) => {
                let size = self.size_of(size).ok_or(Status::OutOfMemory)?;
                let (account, step) = (self.accounts.entry(device).or_default(), self.step);
                self.heap.place(size, |bytes| account.pay(bytes, step, charge))?
            }
            // One address for host and devices, and whole blocks.
            Site::Host | Site::Managed(_) => {
                let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
                let backing = Arc::new(Backing::mapped(length)?);
                let base = backing.host(0, length)?.address();
                self.pay(device, length, charge)?;
                self.mapped_used += size;
                Placement { base, backing, offset: 0 }
            }
        };
        self.note();
        Ok(placement)
    }

    /// Ends an allocation; returns the bytes of blocks that this set free.
    fn vacate(&mut self, base: u64, size: u64) -> u64 {
        match self.site {
            Site::Device(_) => self.heap.vacate(base, self.size_of(size).unwrap_or(size)),
            Site::Host | Site::Managed(_) => {
                self.mapped_used -= size;
                whole_blocks(size).unwrap_or(0)
            }
        }
    }

    /// Gives up resting blocks, by whole steps, until at most `keep` bytes are reserved.
    ///
    /// Returns the bytes given up of each device.
    fn trim(&mut self, keep: u64) -> Vec<(usize, u64)> {
        let mut excess = self.reserved().saturating_sub(keep).next_multiple_of(BLOCK);
        let mut all = Vec::new();
        for (device, account) in &mut self.accounts {
            let given = excess.min(account.resting);
            let whole = if given == account.reserved { given } else { given - given % self.step };
            excess -= whole;
            account.resting -= whole;
            account.reserved -= whole;
            all.push((*device, whole));
        }
        all
    }
}

/// Pays for blocks of a device, where the site is of any.
fn charge_on<'a>(
    driver: &'a Driver,
    table: &Table,
    site: Site,
    device: usize,
) -> impl Fn(u64) -> Outcome + use<'a> {
    let gpu = table.gpu(device);
    move |bytes| if site == Site::Host { Ok(()) } else { driver.charge(gpu, bytes) }
}

fn trim_pool(driver: &Driver, table: &mut Table, handle: u64, keep: impl Fn(&Pool) -> u64) -> bool {
    let Some(pool) = table.pools.get_mut(&handle) else { return false };
    let (given, site) = (pool.trim(keep(pool)), pool.site);
    let mut any = false;
    for (device, bytes) in given.into_iter().filter(|_| site != Site::Host) {
        driver.refund(table.devices[device].gpu, bytes);
        any |= bytes > 0;
    }
    any
}

/// Gives up everything that rests on a device; true if that was anything.
pub(crate) fn trim_all(driver: &Driver, table: &mut Table, device: usize) -> bool {
    let of_device = |pool: &Pool| pool.accounts.contains_key(&device);
    let handles: Vec<u64> = table.pools.iter().filter(|(_, pool)| of_device(pool)).map(|(h, _)| *h).collect();
    handles.into_iter().fold(false, |any, handle| trim_pool(driver, table, handle, |_| 0) | any)
}

/// Gives up what rests above each pool's threshold.
pub(crate) fn trim_to_thresholds(driver: &Driver, table: &mut Table) {
    let resting: Vec<u64> =
        table.pools.iter().filter(|(_, pool)| pool.resting() > 0).map(|(h, _)| *h).collect();
    for handle in resting {
        trim_pool(driver, table, handle, |pool| pool.threshold);
    }
}

/// The same at a synchronisation.
pub(crate) fn trim_at_sync(driver: &Driver) {
    trim_to_thresholds(driver, &mut driver.table());
}

/// Ends an allocation of a pool; its blocks rest.
pub(crate) fn vacate(driver: &Driver, table: &mut Table, handle: u64, device: usize, base: u64, size: u64) {
    let exported = crate::memory::shared::part(driver, table, base);
    if let Some(pool) = table.pools.get_mut(&handle) {
        let freed = pool.vacate(base, size);
        let account = pool.accounts.entry(device).or_default();
        // The pool does not keep what other processes may hold.
        match exported {
            true => account.reserved -= freed,
            false => account.resting += freed,
        }
    }
    end_if_unused(driver, table, handle);
}

/// A pool that was destroyed ends when nothing of it is in use.
fn end_if_unused(driver: &Driver, table: &mut Table, handle: u64) {
    let unused = |pool: &&Pool| pool.gone && pool.used() == 0;
    let Some(start) = table.pools.get(&handle).filter(unused).and_then(|pool| pool.reserved_at) else {
        return;
    };
    trim_pool(driver, table, handle, |_| 0);
    table.pools.remove(&handle);
    table.reserved.give(start, POOL_ADDRESSES);
}

/// The pool that a handle means.
pub(crate) fn known(table: &Table, handle: u64) -> Outcome<&Pool> {
    find(&table.pools, handle).ok().filter(|pool| !pool.gone).ok_or(Status::InvalidHandle)
}

/// Ends an allocation of a graph; its blocks rest and its address stays the node's.
pub(crate) fn rest(table: &mut Table, pool: u64, device: usize, size: u64) {
    if let Some(pool) = table.pools.get_mut(&pool) {
        pool.accounts.entry(device).or_default().resting += whole_blocks(size).unwrap_or(0);
        pool.graph_used -= size;
    }
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

/// Fixes the address of a graph's memory node; nothing is paid for yet.
pub(crate) fn reserve_graph_memory(driver: &Driver, size: u64, device: usize) -> Outcome<GraphMemory> {
    if size == 0 {
        return Err(Status::InvalidValue);
    }
    let mut table = driver.table();
    let handle = table.devices.get(device).ok_or(Status::InvalidDevice)?.graph_pool;
    let pool = table.pools.get_mut(&handle).ok_or(Status::Unknown)?;
    // Whole blocks, so that each node's memory is its own; the address is never given back.
    let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
    let base = pool.heap.reserve(length).ok_or(Status::OutOfMemory)?;
    let placement = Placement { base, backing: Arc::new(Backing::sparse(length)), offset: 0 };
    add(&mut table, placement, size, Kind::Unpaid, 0, device);
    Ok(GraphMemory { base, size, device })
}

/// Runs a graph's memory node: its address becomes memory, paid for from the graph pool's rest.
pub(crate) fn graph_alloc(driver: &Driver, memory: GraphMemory, context: u64) -> Outcome {
    let GraphMemory { base, size, device } = memory;
    let mut table = driver.table();
    table.ranges.at(base).filter(|range| range.kind == Kind::Unpaid).ok_or(Status::InvalidValue)?;
    let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
    let charge = charge_on(driver, &table, Site::Device(device), device);
    let handle = table.devices[device].graph_pool;
    let pool = table.pools.get_mut(&handle).ok_or(Status::Unknown)?;
    pool.pay(device, length, charge)?;
    pool.graph_used += size;
    pool.note();
    if let Some(range) = table.ranges.at_mut(base) {
        (range.kind, range.context) = (Kind::Graph, context);
    }
    Ok(())
}

/// Runs a graph's free node.
pub(crate) fn graph_free(driver: &Driver, address: u64) -> Outcome {
    let mut table = driver.table();
    let range = table.ranges.at(address).ok_or(Status::InvalidValue)?;
    if range.kind == Kind::Unpaid {
        return Err(Status::InvalidValue);
    }
    drop_range(driver, &mut table, address);
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

/// The default pool and the current one of a location of CUDA 13.
#[derive(Clone, Copy)]
pub(crate) struct LocationPools {
    default: u64,
    current: u64,
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
