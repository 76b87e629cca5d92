//! Memory shared with other processes: by handle (IPC), by descriptor.
//!
//! Memory that the slice exported is charged to it once; its share key is made of the handle's bytes or of the file
//! behind a descriptor. A descriptor that is no file of its own has no such key: its memory is charged in full.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{BLOCK_BYTES, EntryKind, Extent, Ledger};
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;
use tranche_shm::parking::Hindrance;

use super::abi::{OUT_OF_MEMORY, SUCCESS, checked};
use super::current::current;
use super::ledger::{by_ledger, ledger, refused};
use super::reclaim::with_reclaim;
use super::{driver, placement, pool_memory};
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};
use crate::sys;

/// True for physical memory behind a descriptor: `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const fn is_descriptor(kind: c_int) -> bool {
    kind == 1
}

/// `CUipcMemHandle`
pub(crate) type IpcHandle = [u64; 8];

/// An [`IpcHandle`] as an argument by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ByValue(IpcHandle);

pub(crate) fn key_of(words: &[u64]) -> ShareKey {
    let mix = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    ShareKey(words.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// Key and length of the file behind a descriptor, if that is a file of its own.
pub(super) fn key_behind(fd: c_int) -> Option<(ShareKey, u64)> {
    let file = sys::file_id(fd).ok().filter(|file| file.regular)?;
    Some((key_of(&[file.device, file.inode]), file.bytes))
}

/// Units of a file of this length: a part below a block at its end is metadata.
pub(super) fn whole_blocks(bytes: u64) -> Result<Units, c_int> {
    let bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
    Extent::blocks(bytes).map(Extent::worst).ok_or(OUT_OF_MEMORY)
}

pub(crate) unsafe fn export_handle(
    real: impl FnOnce() -> c_int,
    handle: *const IpcHandle,
    pointer: u64,
) -> c_int {
    attach::hinder(Hindrance::Ipc);
    match real() {
        // SAFETY: the driver succeeded, so it has written the handle.
        SUCCESS => exported(EntryKind::Memory, pointer, key_of(unsafe { &*handle })),
        error => error,
    }
}

pub(crate) unsafe fn export_physical(
    real: impl FnOnce() -> c_int,
    out: *const c_void,
    handle: u64,
    kind: c_int,
) -> c_int {
    attach::hinder(Hindrance::Shareable);
    let result = real();
    if result != SUCCESS || !is_descriptor(kind) {
        return result;
    }
    // SAFETY: for this kind the driver's success has written a descriptor's number.
    match key_behind(unsafe { out.cast::<c_int>().read_unaligned() }) {
        Some((key, _)) => exported(EntryKind::Physical, handle, key),
        None => result,
    }
}

fn exported(kind: EntryKind, key: u64, share: ShareKey) -> c_int {
    let Ok(ledger) = attach::ledger() else { return SUCCESS };
    match ledger.export(kind, key, share, &DaemonLine) {
        Ok(()) => SUCCESS,
        Err(_) => refused(&ledger),
    }
}

pub(crate) fn open_handle(real: impl Fn(*mut u64) -> c_int, handle: ByValue) -> Result<u64, c_int> {
    attach::hinder(Hindrance::Ipc);
    opened(DriverCall::of(&number(real)), handle)
}

#[inline(never)]
fn opened(real: DriverCall<'_, Result<u64, c_int>>, handle: ByValue) -> Result<u64, c_int> {
    let place = current()?;
    // SAFETY: closes what the driver has just opened, whose address no other code has received.
    let undo = |made| _ = unsafe { driver::cuIpcCloseMemHandle(made) };
    with_reclaim(&place.ledger, || {
        let driver = || sized(real.make()?);
        place.ledger.import(EntryKind::Opened, place.device, key_of(&handle.0), &DaemonLine, driver, undo)
    })
}

/// Memory that the driver has opened, with its units.
fn sized(made: u64) -> Result<(u64, Units), c_int> {
    Ok((made, Extent::blocks(driver::size_at(made)).ok_or(OUT_OF_MEMORY)?.worst()))
}

/// True once the program imported a pointer of a pool: before that, frees skip the check.
static IMPORTED: AtomicBool = AtomicBool::new(false);

/// True if a pointer to free belongs to another process's pool.
#[inline(always)]
pub(crate) fn is_import(ledger: &Ledger<'static>, pointer: u64) -> bool {
    IMPORTED.load(Relaxed) && ledger.is_opened(pointer)
}

/// Imports a pointer of another process's pool, which a free ends.
pub(crate) unsafe fn import_pointer(
    real: impl Fn(*mut u64) -> c_int,
    pool: u64,
    shared: *const IpcHandle,
) -> Result<u64, c_int> {
    attach::hinder(Hindrance::Pool);
    let real = number(real);
    // SAFETY: null or readable by the contract of the driver's function.
    let Some(shared) = (unsafe { shared.as_ref() }) else { return real() };
    let ledger = ledger()?;
    let device = pool_memory::device_of(&ledger, pool)?;
    IMPORTED.store(true, Relaxed);
    // SAFETY: frees what the driver has just opened, whose address no other code has received.
    let undo = |made| _ = unsafe { driver::cuMemFree_v2(made) };
    with_reclaim(&ledger, || {
        ledger.import(EntryKind::Opened, device, key_of(shared), &DaemonLine, || sized(real()?), undo)
    })
}

pub(crate) fn close_handle(real: impl FnOnce() -> c_int, pointer: u64) -> c_int {
    by_ledger(|| checked(real()), |ledger, driver| ledger.drop_import(pointer, &DaemonLine, driver))
}

pub(crate) fn import_physical(
    real: impl Fn(*mut u64) -> c_int,
    shared: *const c_void,
    kind: c_int,
) -> Result<u64, c_int> {
    attach::hinder(Hindrance::Shareable);
    let key = if is_descriptor(kind) { key_behind(shared as usize as c_int) } else { None };
    let ledger = ledger()?;
    let driver = number(real);
    // SAFETY: releases what the driver has just made, whose handle no other code has received.
    let undo = |made| _ = unsafe { driver::cuMemRelease(made) };
    // Opening allocates nothing, and only open memory shows its location.
    let made = driver()?;
    let device = match device_behind(&ledger, made) {
        Ok(Some(device)) => device,
        Ok(None) => return Ok(made),
        Err(error) => {
            undo(made);
            return Err(error);
        }
    };
    let Some((key, bytes)) = key else {
        return ledger.imported(made, device).map(|()| made).map_err(|_| {
            undo(made);
            refused(&ledger)
        });
    };
    undo(made);
    with_reclaim(&ledger, || {
        let driver = || Ok((driver()?, whole_blocks(bytes)?));
        ledger.import(EntryKind::Physical, device, key, &DaemonLine, driver, undo)
    })
}

/// The slice's device of an imported handle's memory; `None` for memory of the host.
///
/// Where the driver does not report it, the slice's only device or the current one.
fn device_behind(ledger: &Ledger<'static>, handle: u64) -> Result<Option<DeviceSlot>, c_int> {
    match placement::of_handle(handle) {
        Some(location) => placement::single(ledger, location),
        None => match placement::only(ledger) {
            Some(device) => Ok(Some(device)),
            None => current().map(|place| Some(place.device)),
        },
    }
}
