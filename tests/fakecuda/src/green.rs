//! Green contexts: a part of a device's multiprocessors under a context of its own.
//!
//! It uses the memory of the primary context and keeps that alive.

use crate::context;
use crate::driver::driver;
use crate::lookup::find;
use crate::state::context::{Description, Green};
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: i32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, without which none can be made.
const DEFAULT_STREAM: u32 = 1;

/// `CUdevResource`, with only what this driver reads named.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Resource {
    kind: i32,
    device: i32,
    padding: [u32; 22],
    multiprocessors: u32,
    rest: [u32; 11],
}

fn resource(device: i32, multiprocessors: u32) -> Resource {
    Resource { kind: MULTIPROCESSORS, device, padding: [0; 22], multiprocessors, rest: [0; 11] }
}

fn whole(device: i32) -> Outcome<Resource> {
    let driver = driver()?;
    Ok(resource(device, crate::driver::spec(driver, device)?.model.compute.sm_count))
}

pub(crate) fn of_device(device: i32, out: Out<Resource>, kind: i32) -> Outcome {
    out.check()?;
    if kind != MULTIPROCESSORS {
        return Err(Status::InvalidValue);
    }
    out.put(whole(device)?)
}

pub(crate) fn of_context(context: u64, out: Out<Resource>, kind: i32) -> Outcome {
    let green = {
        let driver = driver()?;
        let table = driver.table();
        let device = find(&table.contexts, context)?.device as i32;
        let green = table.greens.values().find(|green| green.context == context);
        green.map_or(Err(device), |green| Ok(resource(green.device, green.multiprocessors)))
    };
    match green {
        Ok(part) if kind == MULTIPROCESSORS => out.put(part),
        Ok(_) => Err(Status::InvalidValue),
        Err(device) => of_device(device, out, kind),
    }
}

pub(crate) fn of_green(green: u64, out: Out<Resource>, kind: i32) -> Outcome {
    let context = find(&driver()?.table().greens, green)?.context;
    of_context(context, out, kind)
}

/// Groups of at least `least` multiprocessors each, and the rest.
///
/// Without a place for groups, writes their possible number.
pub(crate) fn split(
    out: Out<Resource>,
    groups: Out<u32>,
    input: In<Resource>,
    left: Out<Resource>,
    _flags: u32,
    least: u32,
) -> Outcome {
    let Resource { kind, device, multiprocessors, .. } = input.get()?;
    if kind != MULTIPROCESSORS {
        return Err(Status::InvalidValue);
    }
    // The hardware groups multiprocessors in pairs.
    let each = least.max(2).next_multiple_of(2);
    let possible = multiprocessors / each;
    let count = if out.check().is_err() { possible } else { groups.get()?.min(possible) };
    groups.put(count)?;
    if out.check().is_ok() {
        out.put_list(&vec![resource(device, each); count as usize], count as usize)?;
    }
    left.offer(resource(device, multiprocessors - count * each));
    Ok(())
}

pub(crate) fn describe(out: Out<u64>, list: In<Resource>, count: u32) -> Outcome {
    out.check()?;
    let list = list.list(count as usize)?;
    let first = list.first().ok_or(Status::InvalidValue)?;
    if list.iter().any(|part| part.kind != MULTIPROCESSORS || part.device != first.device) {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let handle = table.handle();
    let multiprocessors = list.iter().map(|part| part.multiprocessors).sum();
    table.descriptions.insert(handle, Description { device: first.device, multiprocessors });
    out.put(handle)
}

pub(crate) fn create(out: Out<u64>, description: u64, device: i32, flags: u32) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let multiprocessors = {
        let table = driver.table();
        let described = find(&table.descriptions, description)?;
        if flags != DEFAULT_STREAM || described.device != device || described.multiprocessors == 0 {
            return Err(Status::InvalidValue);
        }
        described.multiprocessors
    };
    let mut primary = 0;
    context::primary_retain(Out::to(&mut primary), device)?;
    let mut table = driver.table();
    let context = context::make_within(&mut table, primary)?;
    let handle = table.handle();
    table.greens.insert(handle, Green { device, multiprocessors, context });
    out.put(handle)
}

pub(crate) fn destroy(green: u64) -> Outcome {
    let driver = driver()?;
    let green = driver.table().greens.remove(&green).ok_or(Status::InvalidHandle)?;
    context::end(driver, &mut driver.table(), green.context);
    context::primary_release(green.device)
}

pub(crate) fn context_of(out: Out<u64>, green: u64) -> Outcome {
    out.put(find(&driver()?.table().greens, green)?.context)
}
