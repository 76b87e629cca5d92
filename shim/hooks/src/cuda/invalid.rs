//! Requests that are both invalid and too large.
//!
//! The driver validates a request before it allocates. The shim charges before the driver is called, so an invalid
//! request that does not fit would fail for want of memory. A refusal is rare: only then is the rest of the request
//! checked, by the driver's published rules where those concern arguments alone, and else by a query to the driver
//! that takes no memory.

use core::ffi::{c_int, c_void};

use super::abi::{INVALID_VALUE, OUT_OF_MEMORY, Properties, checked};
use super::driver;
use crate::driver_call::number;

/// `CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES`
const ANY_ATTRIBUTE: c_int = 1;

/// The result of a request, or for one refused for want of memory the error that `look` finds, if any.
#[inline(always)]
pub(crate) fn or_invalid<T>(
    result: Result<T, c_int>,
    look: impl FnOnce() -> Result<(), c_int>,
) -> Result<T, c_int> {
    match result {
        Err(OUT_OF_MEMORY) => Err(look().err().unwrap_or(OUT_OF_MEMORY)),
        other => other,
    }
}

fn unless(good: bool) -> Result<(), c_int> {
    if good { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Checks managed memory: attached to all streams, or to the host.
pub(crate) fn managed(flags: u32) -> Result<(), c_int> {
    unless(matches!(flags, 1 | 2))
}

/// Checks pitched memory: the widest access, in bytes.
pub(crate) fn pitched(element: u32) -> Result<(), c_int> {
    unless(matches!(element, 4 | 8 | 16))
}

/// Checks an array: plain formats have 1, 2 or 4 channels, packed and compressed ones up to 4.
pub(crate) fn array(width: u64, format: u32, channels: u32) -> Result<(), c_int> {
    let channels = match format {
        0x01..=0x03 | 0x08..=0x0a | 0x10 | 0x20 => matches!(channels, 1 | 2 | 4),
        0x50..=0x5e | 0x91..=0xcb => (1..=4).contains(&channels),
        _ => false,
    };
    unless(width > 0 && channels)
}

/// Checks physical memory: a multiple of the driver's granularity for such properties.
pub(crate) fn physical(bytes: u64, properties: &Properties, flags: u64) -> Result<(), c_int> {
    // SAFETY: writes one value into a local; the properties are the program's.
    let piece = number(|piece| unsafe { driver::cuMemGetAllocationGranularity(piece, properties, 0) })()?;
    unless(flags == 0 && bytes > 0 && bytes.is_multiple_of((piece as u64).max(1)))
}

/// Checks stream-ordered memory: a stream and a pool that exist.
pub(crate) fn streamed(stream: u64, pool: Option<u64>) -> Result<(), c_int> {
    let (mut capturing, mut value) = (0, 0u64);
    // SAFETY: each writes a value into a local, the attribute being a number; stream and pool are the program's.
    unsafe {
        checked(driver::cuStreamIsCapturing(stream, &mut capturing))?;
        pool.map_or(Ok(()), |pool| {
            let at = (&raw mut value).cast::<c_void>();
            checked(driver::cuMemPoolGetAttribute(pool, ANY_ATTRIBUTE, at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_is_looked_at() {
        assert_eq!(or_invalid(Ok(7), || unreachable!("it was granted")), Ok(7));
        assert_eq!(or_invalid::<()>(Err(201), || unreachable!("the driver has spoken")), Err(201));
        assert_eq!(or_invalid::<()>(Err(OUT_OF_MEMORY), || Ok(())), Err(OUT_OF_MEMORY));
        assert_eq!(or_invalid::<()>(Err(OUT_OF_MEMORY), || managed(4)), Err(INVALID_VALUE));
    }

    #[test]
    fn arguments_are_judged_as_the_driver_does() {
        assert_eq!([0, 1, 2, 3, 4].map(|flags| managed(flags).is_ok()), [false, true, true, false, false]);
        assert_eq!(
            [0, 2, 4, 8, 16, 32].map(|size| pitched(size).is_ok()),
            [false, false, true, true, true, false]
        );
        assert!(array(1, 0x20, 4).is_ok() && array(1, 0xb0, 3).is_ok());
        assert!(array(0, 0x20, 4).is_err() && array(1, 0x20, 3).is_err() && array(1, 0x77, 1).is_err());
    }
}
