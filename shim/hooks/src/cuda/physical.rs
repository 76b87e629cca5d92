//! Virtual memory management: physical memory by handle, and its mappings.

use core::ffi::c_int;

use tranche_policy::{Claim, Extent, Location, Owner};

use super::abi::{NOT_SUPPORTED, Properties, checked};
use super::invalid::{self, or_invalid};
use super::ledger::{by_ledger, ended_by_ledger, ledger, noted, refused};
use super::reclaim::with_reclaim;
use super::{driver, placement, slots};
use crate::connection::DaemonLine;
use crate::driver_call::number;

pub(crate) unsafe fn create(
    real: impl Fn(*mut u64) -> c_int,
    bytes: usize,
    properties: *const Properties,
    flags: u64,
) -> Result<u64, c_int> {
    let real = number(real);
    // SAFETY: null or readable by the hook's contract.
    let properties = unsafe { properties.as_ref() };
    let Some(properties) = properties.filter(|it| it.location() != Location::Host) else { return real() };
    let made = charged(properties.location(), bytes as u64, real);
    or_invalid(made, || invalid::physical(bytes as u64, properties, flags))
}

/// Charges memory where it lies, on one device: of several on which it may lie, none is right.
fn charged(at: Location, bytes: u64, driver: impl Fn() -> Result<u64, c_int>) -> Result<u64, c_int> {
    let ledger = ledger()?;
    let device = match at {
        // A device outside the slice is refused like an absent one.
        Location::Device(number) => slots::slot(&ledger, number)?,
        _ => placement::single(&ledger, at)?.ok_or(NOT_SUPPORTED)?,
    };
    let Some(extent) = Extent::blocks(bytes) else { return Err(refused(&ledger)) };
    let claim = Claim { device, extent, owner: Owner::NOBODY };
    with_reclaim(&ledger, || {
        let undo = |made| {
            // SAFETY: releases what the driver has just made, whose handle no other code has received.
            let _ = unsafe { driver::cuMemRelease(made) };
        };
        ledger.create(claim, &DaemonLine, &driver, undo)
    })
}

pub(crate) fn release(real: impl FnOnce() -> c_int, handle: u64) -> c_int {
    ended_by_ledger(|| checked(real()), |ledger, driver| ledger.release(handle, driver))
}

pub(crate) unsafe fn retain(real: impl FnOnce() -> c_int, handle: *const u64, address: u64) -> c_int {
    // SAFETY: the driver succeeded, so it has written there.
    noted(real, |ledger| ledger.retained(unsafe { *handle }, address))
}

pub(crate) fn map(real: impl Fn() -> c_int, address: u64, bytes: usize, handle: u64) -> c_int {
    by_ledger(
        || checked(real()),
        |ledger, driver| {
            let driver = || driver().map(|()| address);
            with_reclaim(&ledger, || ledger.map(handle, bytes as u64, &DaemonLine, driver)).map(drop)
        },
    )
}

pub(crate) fn unmap(real: impl FnOnce() -> c_int, address: u64, bytes: usize) -> c_int {
    ended_by_ledger(|| checked(real()), |ledger, driver| ledger.unmap(address, bytes as u64, driver))
}
