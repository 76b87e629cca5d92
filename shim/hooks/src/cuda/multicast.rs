//! Multicast objects and logical endpoints: memory bound to one stays charged until it is unbound.

use core::ffi::c_int;

use tranche_policy::Bound;
use tranche_shm::parking::Hindrance;

use super::abi::checked;
use super::ledger::{by_ledger, ended_by_ledger, noted};
use super::slots;
use crate::attach;
use crate::connection::DaemonLine;

pub(crate) unsafe fn create(real: impl FnOnce() -> c_int, object: *const u64) -> c_int {
    attach::hinder(Hindrance::Multicast);
    // SAFETY: the driver succeeded, so it has written there.
    noted(real, |ledger| ledger.multicast_made(unsafe { *object }))
}

/// Binds memory to a place in a multicast object or an endpoint.
pub(crate) fn bind(real: impl FnOnce() -> c_int, object: u64, offset: u64, memory: Bound) -> c_int {
    by_ledger(|| checked(real()), |ledger, driver| ledger.bind((object, offset), memory, driver))
}

pub(crate) fn unbind(real: impl FnOnce() -> c_int, object: u64, offset: u64, device: c_int) -> c_int {
    ended_by_ledger(
        || checked(real()),
        |ledger, driver| match slots::slot(ledger, device) {
            Ok(device) => ledger.unbind((object, offset), device, driver),
            Err(_) => driver(),
        },
    )
}

/// Key of a logical endpoint in the ledger, which no handle has.
pub(crate) const fn endpoint(id: u32) -> u64 {
    id as u64 | 1 << 54
}

pub(crate) fn destroy_endpoint(real: impl FnOnce() -> c_int, id: u32) -> c_int {
    noted(real, |ledger| {
        ledger.unbind_all(endpoint(id));
        ledger.flush_shares(&DaemonLine);
    })
}
