//! Hints about managed memory. Its bytes are at one place for host and devices alike, so a hint that is well formed
//! is taken and moves nothing.

use crate::driver::{Driver, driver};
use crate::lookup::{DefaultStream, select};
use crate::memory::ranges::Kind;
use crate::state::stream::Op;
use crate::status::{Outcome, Status};

/// `CU_DEVICE_CPU`.
const HOST: i32 = -1;

/// A `CUmemLocation` as it is passed by value: kind below, number above.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: i32,
    number: i32,
}

impl Location {
    /// The device meant; host memory of any kind is [`HOST`].
    const fn device(self) -> Outcome<i32> {
        match self.kind {
            1 => Ok(self.number),
            2..=4 => Ok(HOST),
            _ => Err(Status::InvalidValue),
        }
    }
}

fn check(driver: &Driver, address: u64, size: usize, device: i32) -> Outcome {
    let table = driver.table();
    if device != HOST {
        table.device(device)?;
    }
    let range = table.ranges.around(address).filter(|range| range.kind == Kind::Managed);
    let range = range.ok_or(Status::InvalidValue)?;
    let fits = (address - range.base).checked_add(size as u64).is_some_and(|end| end <= range.size);
    if fits && size > 0 { Ok(()) } else { Err(Status::InvalidValue) }
}

/// `cuMemAdvise`: read mostly, preferred location, accessed by, each set and unset.
pub(crate) fn advise(address: u64, size: usize, advice: i32, device: i32) -> Outcome {
    let driver = driver()?;
    if !(1..=6).contains(&advice) {
        return Err(Status::InvalidValue);
    }
    check(driver, address, size, device)
}

pub(crate) fn advise_at(address: u64, size: usize, advice: i32, location: Location) -> Outcome {
    advise(address, size, advice, location.device()?)
}

pub(crate) fn prefetch(
    default: DefaultStream,
    address: u64,
    size: usize,
    device: i32,
    stream: u64,
) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    check(driver, address, size, device)?;
    stream.enqueue(driver, Op::Empty)
}

pub(crate) fn prefetch_to(
    default: DefaultStream,
    address: u64,
    size: usize,
    location: Location,
    flags: u32,
    stream: u64,
) -> Outcome {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    prefetch(default, address, size, location.device()?, stream)
}

/// `cuStreamAttachMemAsync`: to all streams, to none, or to this one; a length of 0 means all of it.
pub(crate) fn attach(default: DefaultStream, stream: u64, address: u64, size: usize, flags: u32) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    if ![1, 2, 4].contains(&flags) {
        return Err(Status::InvalidValue);
    }
    check(driver, address, size.max(1), HOST)?;
    stream.enqueue(driver, Op::Empty)
}
