//! Plain, pitched and managed allocations.

use core::ffi::c_int;

use tranche_policy::{Claim, EntryKind, Extent, Pitched};
use tranche_shm::parking::Hindrance;

use super::abi::{SUCCESS, Width, checked, code};
use super::current::current_quickly;
use super::invalid::{self, or_invalid};
use super::ledger::refused;
use super::reclaim::with_reclaim;
use super::{driver, external, pool_memory, shared};
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};

pub(crate) fn allocate<P: Width>(real: impl Fn(*mut P) -> c_int, bytes: impl Width) -> Result<P, c_int> {
    let (extent, real) = (Extent::plain(bytes.wide()), number(real));
    let driver = move || real().map(|made| (made.wide(), extent));
    // The form of which programs make thousands of calls a second has code of its own.
    let made = if P::IS_NARROW { charged_rarely(extent, &driver) } else { charged(extent, driver) };
    made.map(P::narrow)
}

pub(crate) fn allocate_managed(
    real: impl Fn(*mut u64) -> c_int,
    bytes: usize,
    flags: u32,
) -> Result<u64, c_int> {
    let (extent, real) = (Extent::plain(bytes.wide()), number(real));
    attach::hinder(Hindrance::Managed);
    let made = charged_rarely(extent, &|| real().map(|made| (made, extent)));
    or_invalid(made, || invalid::managed(flags))
}

pub(crate) unsafe fn allocate_pitched<P: Width, S: Width>(
    real: unsafe extern "C" fn(*mut P, *mut S, S, S, u32) -> c_int,
    pointer: *mut P,
    pitch: *mut S,
    width: S,
    height: S,
    element: u32,
) -> c_int {
    if pointer.is_null() || pitch.is_null() {
        // SAFETY: the driver rejects the null pointer; the other arguments are valid by the hook's contract.
        return unsafe { real(pointer, pitch, width, height, element) };
    }
    let expected = Pitched { width: width.wide(), height: height.wide() }.bytes().and_then(Extent::plain);
    let row = core::cell::Cell::new(S::default());
    let made = charged_rarely(expected, &|| {
        let (mut made, mut pitch) = (P::default(), S::default());
        // SAFETY: `real` writes to locals; the other arguments are the program's, valid by the hook's contract.
        checked(unsafe { real(&mut made, &mut pitch, width, height, element) })?;
        row.set(pitch);
        let bytes = pitch.wide().checked_mul(height.wide());
        Ok((made.wide(), bytes.and_then(Extent::plain)))
    });
    code(or_invalid(made, || invalid::pitched(element)).map(|made| {
        // SAFETY: neither is null, and both are writable by the hook's contract.
        unsafe {
            *pointer = P::narrow(made);
            *pitch = row.get();
        }
    }))
}

/// The driver's result with address and size; `None` where the size exceeds every range.
type Made = Result<(u64, Option<Extent>), c_int>;

/// As [`charged`], by code that all functions share.
#[inline(always)]
fn charged_rarely(extent: Option<Extent>, driver: &impl Fn() -> Made) -> Result<u64, c_int> {
    charged_by_call(extent, DriverCall::of(driver))
}

#[inline(never)]
fn charged_by_call(extent: Option<Extent>, driver: DriverCall<'_, Made>) -> Result<u64, c_int> {
    charged(extent, || driver.make())
}

/// Charges for the current context's device and lets `driver` allocate; no extent exceeds every range.
#[inline(always)]
fn charged(extent: Option<Extent>, driver: impl Fn() -> Made) -> Result<u64, c_int> {
    let place = current_quickly()?;
    let Some(extent) = extent else { return Err(refused(&place.ledger)) };
    let claim = Claim { device: place.device, extent, owner: place.owner };
    with_reclaim(&place.ledger, move || {
        // The driver's result is never larger than an extent can express: no device has that much memory.
        let driver = || driver().map(|(made, real)| (made, real.unwrap_or(extent)));
        let undo = |made| {
            // SAFETY: frees what the driver has just made, whose address no other code has received.
            let _ = unsafe { driver::cuMemFree_v2(made) };
        };
        place.ledger.allocate(EntryKind::Memory, claim, &DaemonLine, driver, undo)
    })
}

pub(crate) unsafe fn free<P: Width>(real: unsafe extern "C" fn(P) -> c_int, pointer: P) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let driver = || checked(unsafe { real(pointer) });
    if pointer.wide() == 0 {
        return code(driver());
    }
    match attach::ledger() {
        Ok(ledger) if pool_memory::is_from_one(&ledger, pointer.wide()) => {
            code(pool_memory::free_one(&ledger, pointer.wide(), driver))
        }
        Ok(ledger) if shared::is_import(&ledger, pointer.wide()) => {
            code(ledger.drop_import(pointer.wide(), &DaemonLine, driver))
        }
        Ok(ledger) => {
            let freed = ledger.free(EntryKind::Memory, pointer.wide(), || {
                external::free_view(&ledger, pointer.wide(), driver)
            });
            ledger.flush_shares(&DaemonLine);
            code(freed)
        }
        Err(attach::Outside) => driver().err().unwrap_or(SUCCESS),
    }
}
