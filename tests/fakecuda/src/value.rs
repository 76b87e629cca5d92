//! Stream memory operations: waiting for a value in memory, and writing one.

use crate::bytes::{Compare, ValueWait, ValueWrite, Width};
use crate::driver::{Driver, StreamMemory, driver};
use crate::lookup::{DefaultStream, select};
use crate::memory::ranges::Kind;
use crate::memory::span::Place;
use crate::state::stream::Op;
use crate::status::{Outcome, Status};
use crate::wall::In;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: remote writes first, of which there are none.
const FLUSH: u32 = 1 << 30;
/// `CU_MEMHOSTREGISTER_PORTABLE`
const PORTABLE: u32 = 1;

/// One of `CUstreamBatchMemOpParams`: the operation's number, then its fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Batched {
    operation: u32,
    address: u64,
    value: u64,
    flags: u32,
    alias: u64,
    rest: u64,
}

fn place(driver: &Driver, context: u64, address: u64, width: Width) -> Outcome<Place> {
    let bytes = if width == Width::Word { 4 } else { 8 };
    if !address.is_multiple_of(bytes) {
        return Err(Status::InvalidValue);
    }
    let table = driver.table();
    // Registered memory belongs to its context, unless CU_MEMHOSTREGISTER_PORTABLE is set.
    let foreign = table.ranges.around(address).is_some_and(
        |range| matches!(range.kind, Kind::Registered(flags) if flags & PORTABLE == 0 && range.context != context),
    );
    if foreign { Err(Status::InvalidValue) } else { table.ranges.device_place(address, bytes) }
}

fn waiting(place: impl FnOnce(Width) -> Outcome<Place>, value: u64, flags: u32, width: Width) -> Outcome<Op> {
    let compare = match flags & !FLUSH {
        0 => Compare::AtLeast,
        1 => Compare::Equal,
        2 => Compare::And,
        3 => Compare::Nor,
        _ => return Err(Status::InvalidValue),
    };
    Ok(Op::WaitValue(ValueWait { place: place(width)?, width, value, compare }))
}

fn writing(place: impl FnOnce(Width) -> Outcome<Place>, value: u64, flags: u32, width: Width) -> Outcome<Op> {
    // CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER is the only flag.
    if flags > 1 {
        return Err(Status::InvalidValue);
    }
    Ok(Op::WriteValue(ValueWrite { place: place(width)?, width, value }))
}

/// The driver, if it can do such things.
fn able() -> Outcome<&'static Driver> {
    let driver = driver()?;
    if driver.stream_memory == StreamMemory::Absent { Err(Status::NotSupported) } else { Ok(driver) }
}

/// An operation as this driver carries it out.
fn seen(driver: &Driver, op: Op) -> Op {
    match op {
        Op::WriteValue(_) if driver.stream_memory == StreamMemory::Silent => Op::Empty,
        op => op,
    }
}

fn put(
    default: DefaultStream,
    stream: u64,
    address: u64,
    op: impl FnOnce(&dyn Fn(Width) -> Outcome<Place>) -> Outcome<Op>,
) -> Outcome {
    let driver = able()?;
    let stream = select(driver, default, stream)?;
    stream.must_not_capture(driver)?;
    let op = op(&|width| place(driver, stream.context, address, width))?;
    stream.enqueue(driver, seen(driver, op))
}

pub(crate) fn wait32(default: DefaultStream, stream: u64, address: u64, value: u32, flags: u32) -> Outcome {
    put(default, stream, address, |place| waiting(place, u64::from(value), flags, Width::Word))
}

pub(crate) fn wait64(default: DefaultStream, stream: u64, address: u64, value: u64, flags: u32) -> Outcome {
    put(default, stream, address, |place| waiting(place, value, flags, Width::Double))
}

pub(crate) fn write32(default: DefaultStream, stream: u64, address: u64, value: u32, flags: u32) -> Outcome {
    put(default, stream, address, |place| writing(place, u64::from(value), flags, Width::Word))
}

pub(crate) fn write64(default: DefaultStream, stream: u64, address: u64, value: u64, flags: u32) -> Outcome {
    put(default, stream, address, |place| writing(place, value, flags, Width::Double))
}

/// `cuStreamBatchMemOp`: the same operations, several in order.
pub(crate) fn batch(
    default: DefaultStream,
    stream: u64,
    count: u32,
    list: In<Batched>,
    flags: u32,
) -> Outcome {
    if flags != 0 || count > 256 {
        return Err(Status::InvalidValue);
    }
    let driver = able()?;
    let list = list.list(count as usize)?;
    let stream = select(driver, default, stream)?;
    stream.must_not_capture(driver)?;
    let ops: Vec<Op> = list.iter().map(|one| one.op(driver, stream.context)).collect::<Outcome<_>>()?;
    ops.into_iter().try_for_each(|op| stream.enqueue(driver, seen(driver, op)))
}

impl Batched {
    fn op(&self, driver: &Driver, context: u64) -> Outcome<Op> {
        let Self { operation, address, value, flags, .. } = *self;
        let word = u64::from(value as u32);
        let place = |width| place(driver, context, address, width);
        match operation {
            1 => waiting(place, word, flags, Width::Word),
            2 => writing(place, word, flags, Width::Word),
            3 | 6 => Ok(Op::Empty),
            4 => waiting(place, value, flags, Width::Double),
            5 => writing(place, value, flags, Width::Double),
            _ => Err(Status::InvalidValue),
        }
    }
}
