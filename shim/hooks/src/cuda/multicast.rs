//! Multicast objects and logical endpoints: memory bound to one stays charged until it is unbound.

use core::ffi::{c_int, c_void};

use tranche_policy::Bound;
use tranche_shm::parking::Hindrance;

use super::abi::{SUCCESS, checked, code};
use crate::attach;
use crate::connection::DaemonLine;

pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, *const c_void) -> c_int,
    object: *mut u64,
    properties: *const c_void,
) -> c_int {
    attach::hinder(Hindrance::Multicast);
    // SAFETY: the arguments pass to `real` unchanged, valid by the hook's contract; `object` is read after success,
    // when written.
    unsafe {
        let result = real(object, properties);
        if result == SUCCESS
            && let Ok(ledger) = attach::ledger()
        {
            ledger.multicast_made(*object);
        }
        result
    }
}

pub(crate) unsafe fn bind_memory(
    real: unsafe extern "C" fn(u64, usize, u64, usize, usize, u64) -> c_int,
    object: u64,
    offset: usize,
    memory: u64,
    from: usize,
    bytes: usize,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    bound(object, offset, Bound::Handle(memory), || unsafe {
        real(object, offset, memory, from, bytes, flags)
    })
}

pub(crate) unsafe fn bind_address(
    real: unsafe extern "C" fn(u64, usize, u64, usize, u64) -> c_int,
    object: u64,
    offset: usize,
    address: u64,
    bytes: usize,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    bound(object, offset, Bound::Address(address), || unsafe { real(object, offset, address, bytes, flags) })
}

/// The newer form, which names the device as well.
#[allow(clippy::too_many_arguments, reason = "the driver's function has as many")]
pub(crate) unsafe fn bind_memory_on(
    real: unsafe extern "C" fn(u64, c_int, usize, u64, usize, usize, u64) -> c_int,
    object: u64,
    device: c_int,
    offset: usize,
    memory: u64,
    from: usize,
    bytes: usize,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    bound(object, offset, Bound::Handle(memory), || unsafe {
        real(object, device, offset, memory, from, bytes, flags)
    })
}

/// The newer form, which names the device as well.
pub(crate) unsafe fn bind_address_on(
    real: unsafe extern "C" fn(u64, c_int, usize, u64, usize, u64) -> c_int,
    object: u64,
    device: c_int,
    offset: usize,
    address: u64,
    bytes: usize,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    bound(object, offset, Bound::Address(address), || unsafe {
        real(object, device, offset, address, bytes, flags)
    })
}

fn bound(object: u64, offset: usize, memory: Bound, real: impl FnOnce() -> c_int) -> c_int {
    let driver = || checked(real());
    match attach::ledger() {
        Ok(ledger) => code(ledger.bind((object, offset as u64), memory, driver)),
        Err(attach::Outside) => code(driver()),
    }
}

pub(crate) unsafe fn unbind(
    real: unsafe extern "C" fn(u64, c_int, usize, usize) -> c_int,
    object: u64,
    device: c_int,
    offset: usize,
    bytes: usize,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    unbound(object, offset as u64, device, || unsafe { real(object, device, offset, bytes) })
}

fn unbound(object: u64, offset: u64, device: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let driver = || checked(real());
    let Ok(ledger) = attach::ledger() else { return code(driver()) };
    let unbound = match super::slots::slot(&ledger, device) {
        Ok(device) => ledger.unbind((object, offset), device, driver),
        Err(_) => driver(),
    };
    ledger.flush_shares(&DaemonLine);
    code(unbound)
}

/// Key of a logical endpoint in the ledger, which no handle has.
const fn endpoint(id: u32) -> u64 {
    id as u64 | 1 << 54
}

#[allow(clippy::too_many_arguments, reason = "the driver's function has as many")]
pub(crate) unsafe fn bind_to_endpoint(
    real: unsafe extern "C" fn(u32, c_int, u64, u64, u64, u64, u64) -> c_int,
    id: u32,
    device: c_int,
    offset: u64,
    memory: u64,
    from: u64,
    bytes: u64,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    bound(endpoint(id), offset as usize, Bound::Handle(memory), || unsafe {
        real(id, device, offset, memory, from, bytes, flags)
    })
}

pub(crate) unsafe fn bind_address_to_endpoint(
    real: unsafe extern "C" fn(u32, c_int, u64, u64, u64, u64) -> c_int,
    id: u32,
    device: c_int,
    offset: u64,
    address: u64,
    bytes: u64,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    bound(endpoint(id), offset as usize, Bound::Address(address), || unsafe {
        real(id, device, offset, address, bytes, flags)
    })
}

pub(crate) unsafe fn unbind_from_endpoint(
    real: unsafe extern "C" fn(u32, c_int, u64, u64) -> c_int,
    id: u32,
    device: c_int,
    offset: u64,
    bytes: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    unbound(endpoint(id), offset, device, || unsafe { real(id, device, offset, bytes) })
}

pub(crate) unsafe fn destroy_endpoint(real: unsafe extern "C" fn(u32) -> c_int, id: u32) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let result = unsafe { real(id) };
    if result == SUCCESS
        && let Ok(ledger) = attach::ledger()
    {
        ledger.unbind_all(endpoint(id));
        ledger.flush_shares(&DaemonLine);
    }
    result
}
