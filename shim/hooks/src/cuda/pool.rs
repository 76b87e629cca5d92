//! Stream-ordered memory and its pools.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{Claim, Extent, Ledger, Owner};
use tranche_shm::DeviceSlot;

use super::invalid::{self, or_invalid};
use super::mark::{self, Events};
use super::{SUCCESS, checked, code, current, device, driver, refused, shared, with_reclaim};
use crate::attach;
use crate::connection::Line;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`
const RESERVED_NOW: c_int = 5;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const ON_DEVICE: u32 = 1;
/// `CU_STREAM_PER_THREAD`
pub(crate) const PER_THREAD: u64 = 2;
/// The number above which a stream is a stream: the lower ones mean default streams.
const FIRST_STREAM: u64 = 3;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`
const CAPTURING: c_int = 1;

/// Whether this program ever allocated from a pool: most do not, and then nothing need be looked after.
static USED: AtomicBool = AtomicBool::new(false);

/// Whether a pointer of a pool was ever exported.
static LENT: AtomicBool = AtomicBool::new(false);

/// The head of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location: c_int,
}

impl Properties {
    /// Nowhere.
    pub(crate) const NONE: Self = Self { allocation_type: 0, handle_types: 0, location_type: 0, location: 0 };

    /// The driver's device it is on; nothing for memory of the host.
    pub(crate) fn device(&self) -> Option<c_int> {
        (self.location_type == ON_DEVICE).then_some(self.location)
    }
}

/// What the driver says a pool keeps.
pub(crate) fn kept(pool: u64) -> Option<u64> {
    let mut bytes = 0u64;
    // SAFETY: the attribute is one 64-bit number, written into a local.
    let result =
        unsafe { driver::cuMemPoolGetAttribute(pool, RESERVED_NOW, (&raw mut bytes).cast::<c_void>()) };
    checked(result).ok().map(|()| bytes)
}

/// Gives back what pools let go by themselves.
pub(crate) fn settle(ledger: &Ledger<'static>) {
    if USED.load(Relaxed) {
        return_lent(ledger);
        ledger.settle_pools(&kept, |_| {});
    }
}

/// Takes back into their pools' charge what other processes cannot open any more.
fn return_lent(ledger: &Ledger<'static>) {
    if LENT.load(Relaxed) {
        ledger.return_lent(&Line, &kept);
        ledger.flush_shares(&Line);
    }
}

/// Lets `driver` free a pointer that came from a pool.
pub(crate) fn free_one(
    ledger: &Ledger<'static>,
    pointer: u64,
    driver: impl FnOnce() -> Result<(), c_int>,
) -> Result<(), c_int> {
    let freed = ledger.free_to_pool(pointer, &kept, driver);
    return_lent(ledger);
    freed
}

/// Whether the pointer came from a pool. Whoever frees it has it from whoever allocated it, and with it the
/// news that pools are used.
pub(crate) fn is_from_one(ledger: &Ledger<'static>, pointer: u64) -> bool {
    USED.load(Relaxed) && ledger.is_streamed(pointer)
}

pub(crate) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Makes pools let go of what they keep unused, as the driver does before it is out of memory; says whether
/// there are pools.
pub(crate) fn reclaim(ledger: &Ledger<'static>) -> bool {
    let used = USED.load(Relaxed);
    if used {
        return_lent(ledger);
        ledger.settle_pools(&kept, |pool| {
            // SAFETY: the pool is one that the program allocated from; it is told to keep nothing unused.
            let _ = unsafe { driver::cuMemPoolTrimTo(pool, 0) };
        });
    }
    used
}

pub(crate) unsafe fn allocate(
    real: unsafe extern "C" fn(*mut u64, usize, u64) -> c_int,
    pointer: *mut u64,
    bytes: usize,
    stream: u64,
) -> c_int {
    // SAFETY: the program's own call.
    code(charged(pointer, bytes, stream, None, |made| unsafe { real(made, bytes, stream) }))
}

/// The variant in which stream 0 is the calling thread's own.
pub(crate) unsafe fn allocate_ptsz(
    real: unsafe extern "C" fn(*mut u64, usize, u64) -> c_int,
    pointer: *mut u64,
    bytes: usize,
    stream: u64,
) -> c_int {
    // SAFETY: the program's own call.
    code(charged(pointer, bytes, own(stream), None, |made| unsafe { real(made, bytes, stream) }))
}

/// What stream 0 is to the variants for it.
pub(crate) const fn own(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

/// Whether what is put into the stream becomes part of a graph, to be charged when that runs.
pub(crate) fn is_capturing(stream: u64) -> bool {
    let mut status = 0;
    // SAFETY: writes one value into a local; the stream is the program's.
    unsafe { driver::cuStreamIsCapturing(stream, &mut status) == SUCCESS && status == CAPTURING }
}

pub(crate) unsafe fn allocate_from(
    real: unsafe extern "C" fn(*mut u64, usize, u64, u64) -> c_int,
    pointer: *mut u64,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> c_int {
    // SAFETY: the program's own call.
    code(charged(pointer, bytes, stream, Some(pool), |made| unsafe { real(made, bytes, pool, stream) }))
}

/// The variant in which stream 0 is the calling thread's own.
pub(crate) unsafe fn allocate_from_ptsz(
    real: unsafe extern "C" fn(*mut u64, usize, u64, u64) -> c_int,
    pointer: *mut u64,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> c_int {
    // SAFETY: the program's own call.
    code(charged(pointer, bytes, own(stream), Some(pool), |made| unsafe { real(made, bytes, pool, stream) }))
}

fn charged(
    pointer: *mut u64,
    bytes: usize,
    stream: u64,
    pool: Option<u64>,
    real: impl Fn(*mut u64) -> c_int,
) -> Result<(), c_int> {
    if pointer.is_null() || bytes == 0 || is_capturing(stream) {
        return checked(real(pointer));
    }
    let made = or_invalid(allocated(bytes, stream, pool, real), || invalid::streamed(stream, pool))?;
    // SAFETY: not null, and the program promises that it can be written.
    unsafe { *pointer = made };
    Ok(())
}

fn allocated(
    bytes: usize,
    stream: u64,
    pool: Option<u64>,
    real: impl Fn(*mut u64) -> c_int,
) -> Result<u64, c_int> {
    let allocate = || {
        let mut made = 0;
        checked(real(&mut made)).map(|()| made)
    };
    let place = current()?;
    let by_stream = || stream_device(&place.ledger, stream);
    let (pool, device) = match pool {
        Some(pool) => {
            let by_device = || default_pool_device(&place.ledger, pool).map_or_else(by_stream, Ok);
            (pool, place.ledger.pool_device(pool, by_device)?)
        }
        None => {
            let pool = current_pool(stream)?;
            (pool, place.ledger.pool_device(pool, by_stream)?)
        }
    };
    let Some(device) = device else { return allocate() };
    let Some(extent) = Extent::blocks(bytes as u64) else { return Err(refused(&place.ledger)) };
    USED.store(true, Relaxed);
    let claim = Claim { device, extent, owner: Owner::NOBODY };
    with_reclaim(&place.ledger, || {
        let undo = |made| {
            // SAFETY: frees what the driver has just made and nobody has seen, in the order of its stream.
            let _ = unsafe { driver::cuMemFreeAsync(made, stream) };
        };
        place.ledger.allocate_from_pool(pool, claim, &Line, &kept, allocate, undo)
    })
}

/// The driver's device that the stream works on: the current one for default streams and old drivers.
fn driver_device(stream: u64) -> Result<c_int, c_int> {
    let mut device = 0;
    // SAFETY: writes one value into a local; the stream is the program's.
    if stream >= FIRST_STREAM && unsafe { driver::cuStreamGetDevice(stream, &mut device) } == SUCCESS {
        return Ok(device);
    }
    driver::current().map(|(device, _)| device)
}

fn stream_device(ledger: &Ledger<'static>, stream: u64) -> Result<DeviceSlot, c_int> {
    device::slot(ledger, driver_device(stream)?)
}

/// The device whose default pool this is, where a slice has several: a program may use it from another's stream.
fn default_pool_device(ledger: &Ledger<'static>, pool: u64) -> Option<DeviceSlot> {
    if ledger.tenant().control.device_count() == 1 {
        return None;
    }
    let has_it = |device: &c_int| {
        let mut default = 0;
        // SAFETY: writes one value into a local.
        let result = unsafe { driver::cuDeviceGetDefaultMemPool(&mut default, *device) };
        result == SUCCESS && default == pool
    };
    driver::devices().ok()?.find(has_it).and_then(|device| device::slot(ledger, device).ok())
}

/// The pool that plain stream-ordered allocations come from.
fn current_pool(stream: u64) -> Result<u64, c_int> {
    let mut pool = 0;
    // SAFETY: writes one value into a local.
    checked(unsafe { driver::cuDeviceGetMemPool(&mut pool, driver_device(stream)?) })?;
    Ok(pool)
}

pub(crate) unsafe fn free(real: unsafe extern "C" fn(u64, u64) -> c_int, pointer: u64, stream: u64) -> c_int {
    // SAFETY: the program's own call.
    freed(pointer, stream, || unsafe { real(pointer, stream) })
}

/// The variant in which stream 0 is the calling thread's own.
pub(crate) unsafe fn free_ptsz(
    real: unsafe extern "C" fn(u64, u64) -> c_int,
    pointer: u64,
    stream: u64,
) -> c_int {
    // SAFETY: the program's own call.
    freed(pointer, own(stream), || unsafe { real(pointer, stream) })
}

fn freed(pointer: u64, stream: u64, real: impl FnOnce() -> c_int) -> c_int {
    let driver = || checked(real());
    match attach::ledger() {
        Ok(_) if is_capturing(stream) => code(driver()),
        Ok(ledger) if is_from_one(&ledger, pointer) => code(free_one(&ledger, pointer, driver)),
        Ok(ledger) if shared::is_import(&ledger, pointer) => {
            mark::used();
            let closed = ledger.close_in_order(pointer, &Events, || mark::behind(stream), driver);
            ledger.flush_shares(&Line);
            code(closed)
        }
        Ok(ledger) => {
            // What is not from a pool goes when the stream has come to it, and is charged until then.
            mark::used();
            let freed = ledger.free_in_order(pointer, &Events, || mark::behind(stream), driver);
            ledger.flush_shares(&Line);
            code(freed)
        }
        Err(attach::Outside) => code(driver()),
    }
}

pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, *const Properties) -> c_int,
    pool: *mut u64,
    properties: *const Properties,
) -> c_int {
    // SAFETY: the program's own call; the driver was content with both pointers before we read them.
    unsafe {
        let result = real(pool, properties);
        if result == SUCCESS
            && let Ok(ledger) = attach::ledger()
        {
            USED.store(true, Relaxed);
            let properties = &*properties;
            match properties.device().map(|device| device::slot(&ledger, device)) {
                Some(Ok(device)) => ledger.pool_made(*pool, Some(device)),
                None => ledger.pool_made(*pool, None),
                Some(Err(_)) => {}
            }
        }
        result
    }
}

pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(u64) -> c_int, pool: u64) -> c_int {
    // SAFETY: the program's own call.
    let driver = || checked(unsafe { real(pool) });
    match attach::ledger() {
        Ok(ledger) => {
            let destroyed = ledger.destroy_pool(pool, driver);
            ledger.flush_shares(&Line);
            code(destroyed)
        }
        Err(attach::Outside) => code(driver()),
    }
}

pub(crate) unsafe fn trim(real: unsafe extern "C" fn(u64, usize) -> c_int, pool: u64, keep: usize) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { real(pool, keep) };
    if let Ok(ledger) = attach::ledger() {
        settle(&ledger);
    }
    result
}

pub(crate) unsafe fn export_pointer(
    real: unsafe extern "C" fn(*mut shared::IpcHandle, u64) -> c_int,
    out: *mut shared::IpcHandle,
    pointer: u64,
) -> c_int {
    // SAFETY: the program's own call; the driver was content with `out` before it is read.
    let (result, share) = unsafe {
        let result = real(out, pointer);
        (result, (result == SUCCESS).then(|| shared::key_of(&*out)))
    };
    let (Some(share), Ok(ledger)) = (share, attach::ledger()) else { return result };
    LENT.store(true, Relaxed);
    code(ledger.export_streamed(pointer, share, &Line).map_err(|_| refused(&ledger)))
}
