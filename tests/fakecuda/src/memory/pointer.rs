//! Attributes of addresses: `cuPointerGetAttribute` and `cuMemGetAddressRange`.

use crate::driver::{Driver, driver};
use crate::memory::ranges::{Kind, Range};
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, copy};

pub(crate) fn address_range(base: Out<u64>, size: Out<usize>, address: u64) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    table.current()?;
    let range = table.ranges.around(address).ok_or(Status::NotFound)?;
    base.offer(range.base);
    size.offer(range.size as usize);
    Ok(())
}

pub(crate) fn address_range_low(base: Out<u32>, size: Out<u32>, address: u32) -> Outcome {
    let (mut wide_base, mut wide_size) = (0, 0);
    address_range(Out::to(&mut wide_base), Out::to(&mut wide_size), u64::from(address))?;
    base.offer(wide_base as u32);
    size.offer(wide_size as u32);
    Ok(())
}

pub(crate) fn attribute(out: Host, attribute: i32, address: u64) -> Outcome {
    let driver = driver()?;
    let value = answer(driver, attribute, address)?.ok_or(Status::InvalidValue)?;
    write(out, &value)
}

/// All answers at once; what an unknown address cannot answer is zero.
pub(crate) fn attributes(count: u32, wanted: In<i32>, out: In<Host>, address: u64) -> Outcome {
    let driver = driver()?;
    let count = count as usize;
    for (attribute, place) in wanted.list(count)?.into_iter().zip(out.list(count)?) {
        let value = answer(driver, attribute, address)?.unwrap_or_else(|| zero(attribute));
        write(place, &value)?;
    }
    Ok(())
}

fn write(out: Host, bytes: &[u8]) -> Outcome {
    if out == Host::NULL {
        return Err(Status::InvalidValue);
    }
    copy(Host(bytes.as_ptr().cast_mut().cast()), out, bytes.len());
    Ok(())
}

/// The bytes of an attribute. `None` for an address that the driver doesn't know; an invalid value for an attribute
/// that it doesn't know.
fn answer(driver: &Driver, attribute: i32, address: u64) -> Outcome<Option<Vec<u8>>> {
    if !(1..=17).contains(&attribute) || attribute == 5 {
        return Err(Status::InvalidValue);
    }
    let table = driver.table();
    let Some(range) = table.ranges.around(address) else { return Ok(None) };
    let context = match range.context {
        0 => table.devices[range.device].primary.context.unwrap_or(0),
        context => context,
    };
    Ok(known(range, context, attribute, address))
}

fn known(range: &Range, context: u64, attribute: i32, address: u64) -> Option<Vec<u8>> {
    let wide = |value: u64| Some(value.to_ne_bytes().to_vec());
    let word = |value: u32| Some(value.to_ne_bytes().to_vec());
    let flag = |value: bool| Some(vec![u8::from(value)]);
    match attribute {
        1 => wide(context),
        // CU_MEMORYTYPE_HOST or _DEVICE.
        2 => word(if range.is_host() { 1 } else { 2 }),
        3 => wide(address),
        4 if range.is_host() || range.kind == Kind::Managed => wide(address),
        6 => flag(false),
        7 => wide(range.id),
        8 => flag(range.kind == Kind::Managed),
        9 => word(range.device as u32),
        10 => flag(range.kind == Kind::Device),
        11 => wide(range.base),
        12 => wide(range.size),
        13 => flag(true),
        14 => wide(0),
        15 => flag(false),
        // CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE.
        16 => word(3),
        17 => match range.kind {
            Kind::Pool(pool) => wide(pool),
            _ => wide(0),
        },
        _ => None,
    }
}

fn zero(attribute: i32) -> Vec<u8> {
    let size = match attribute {
        2 | 16 => 4,
        9 => return (-2_i32).to_ne_bytes().to_vec(),
        6 | 8 | 10 | 13 | 15 => 1,
        _ => 8,
    };
    vec![0; size]
}
