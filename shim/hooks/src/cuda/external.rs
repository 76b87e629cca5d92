//! Memory of other interfaces, such as Vulkan: objects and their views.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{Claim, EntryKind, Extent, Ledger, Owner};
use tranche_shm::message::ShareKey;
use tranche_shm::parking::Hindrance;

use super::abi::{OUT_OF_MEMORY, checked};
use super::current::current;
use super::driver;
use super::ledger::ended_by_ledger;
use super::reclaim::with_reclaim;
use super::shared::{key_behind, whole_blocks};
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::number;

/// True for external memory behind a descriptor: `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
pub(crate) const fn is_opaque_descriptor(kind: c_int) -> bool {
    kind == 1
}

/// Distinguishes objects of other interfaces from handles of physical memory; no address has this bit.
const EXTERNAL: u64 = 1 << 55;

/// True once the program had a view of another interface's memory: before that, frees skip the check.
static VIEWED: AtomicBool = AtomicBool::new(false);

/// The head of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
pub(crate) struct Import {
    kind: c_int,
    handle: [u64; 2],
    bytes: u64,
    flags: u32,
}

/// Imports memory of another interface, charged like a handle to physical memory.
///
/// Once if the slice exported it, otherwise in full.
pub(crate) unsafe fn import(real: impl Fn(*mut u64) -> c_int, import: *const Import) -> Result<u64, c_int> {
    attach::hinder(Hindrance::External);
    let real = number(real);
    // SAFETY: null or readable by the hook's contract.
    let Some(Import { kind, handle, bytes, .. }) = (unsafe { import.as_ref() }) else { return real() };
    let key = if is_opaque_descriptor(*kind) { key_behind(handle[0] as c_int) } else { None };
    claimed(key, *bytes, || real().map(|made| made | EXTERNAL)).map(|made| made & !EXTERNAL)
}

fn claimed(
    key: Option<(ShareKey, u64)>,
    bytes: u64,
    driver: impl Fn() -> Result<u64, c_int>,
) -> Result<u64, c_int> {
    let place = current()?;
    // SAFETY: ends what the driver has just made, whose handle no other code has received.
    let undo = |made: u64| _ = unsafe { driver::cuDestroyExternalMemory(made & !EXTERNAL) };
    let bytes = key.map_or(bytes, |(_, file)| file.max(bytes));
    with_reclaim(&place.ledger, || match key {
        Some((key, _)) => {
            let driver = || Ok((driver()?, whole_blocks(bytes)?));
            place.ledger.import(EntryKind::Physical, place.device, key, &DaemonLine, driver, undo)
        }
        None => {
            let extent = Extent::blocks(bytes).ok_or(tranche_policy::ClaimDenied::OutOfMemory)?;
            let claim = Claim { device: place.device, extent, owner: Owner::NOBODY };
            place.ledger.create(claim, &DaemonLine, &driver, undo)
        }
    })
}

/// The head of `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
pub(crate) struct View {
    offset: u64,
    bytes: u64,
}

/// Maps a view, which keeps the memory after its object is destroyed, until the view is freed.
pub(crate) unsafe fn view(
    real: impl Fn(*mut u64) -> c_int,
    memory: u64,
    view: *const View,
) -> Result<u64, c_int> {
    // SAFETY: null or readable by the hook's contract. The driver refuses a call without it itself.
    let bytes = unsafe { view.as_ref() }.map_or(0, |view| view.bytes);
    mapped(memory, bytes, number(real))
}

/// Lets `driver` map a view of an object.
fn mapped(memory: u64, bytes: u64, driver: impl Fn() -> Result<u64, c_int>) -> Result<u64, c_int> {
    let ledger = attach::ledger().map_err(|attach::Outside| OUT_OF_MEMORY)?;
    VIEWED.store(true, Relaxed);
    with_reclaim(&ledger, || ledger.map(memory | EXTERNAL, bytes, &DaemonLine, &driver))
}

/// Distinguishes arrays as views of external memory; no address has this bit.
const IN_ARRAY: u64 = 1 << 56;

/// Key of an array as a view of external memory, which no address has.
pub(crate) const fn in_array(array: u64) -> u64 {
    array | IN_ARRAY
}

/// Maps a view as an array, whose length does not matter: it has no addresses.
pub(crate) fn array(real: impl Fn(*mut u64) -> c_int, memory: u64) -> Result<u64, c_int> {
    let real = number(real);
    mapped(memory, 0, || real().map(in_array)).map(|array| array & !IN_ARRAY)
}

/// Lets `driver` free a pointer, which may be a view.
#[inline(always)]
pub(crate) fn free_view(
    ledger: &Ledger<'static>,
    pointer: u64,
    driver: impl FnOnce() -> Result<(), c_int>,
) -> Result<(), c_int> {
    let stamp = if VIEWED.load(Relaxed) { Some(ledger.stamp()) } else { None };
    driver()?;
    stamp.into_iter().for_each(|stamp| ledger.view_gone(pointer, stamp));
    Ok(())
}

pub(crate) fn destroy(real: impl FnOnce() -> c_int, memory: u64) -> c_int {
    ended_by_ledger(|| checked(real()), |ledger, driver| ledger.release(memory | EXTERNAL, driver))
}
