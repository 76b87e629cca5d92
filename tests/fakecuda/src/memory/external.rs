//! External memory: what another API exported as an opaque file descriptor. Here the other API is this driver's own
//! `cuMemExportToShareableHandle`, as no graphics API runs on these GPUs.

use std::fs::File;
use std::os::fd::FromRawFd;

use crate::array::{Levels, Shape};
use crate::driver::{Table, driver};
use crate::lookup::find;
use crate::memory::heap::BLOCK;
use crate::memory::physical;
use crate::memory::ranges::{Kind, Range};
use crate::state::physical::External;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FILE: i32 = 1;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Import {
    kind: i32,
    handle: [u64; 2],
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct View {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayView {
    offset: u64,
    shape: Shape,
    levels: u32,
    reserved: [u32; 16],
}

/// Takes the descriptor over when it succeeds, and only then.
pub(crate) fn import(out: Out<u64>, asked: In<Import>) -> Outcome {
    out.check()?;
    let asked = asked.get()?;
    if asked.reserved != [0; 16] || asked.flags > 1 {
        return Err(Status::InvalidValue);
    }
    if asked.kind != OPAQUE_FILE {
        return Err(Status::NotSupported);
    }
    let fd = asked.handle[0] as i32;
    let driver = driver()?;
    let mut table = driver.table();
    table.current()?;
    let memory = physical::take(driver, &mut table, fd)?;
    let (_, size, _) = physical::facts(&table, memory)?;
    if asked.size > size {
        physical::give(driver, &mut table, memory)?;
        return Err(Status::InvalidValue);
    }
    // SAFETY: by the contract of this call a descriptor that was imported belongs to the driver from then on.
    drop(unsafe { File::from_raw_fd(fd) });
    let handle = table.handle();
    table.external.insert(handle, External { memory, size });
    out.put(handle)
}

/// A range that shows a part of it; its end is `cuMemFree`.
pub(crate) fn view(out: Out<u64>, external: u64, view: In<View>) -> Outcome {
    out.check()?;
    let view = view.get()?;
    let driver = driver()?;
    let mut table = driver.table();
    let (context, _) = table.current_device()?;
    let External { memory, size } = *find(&table.external, external)?;
    let fits = view.offset.checked_add(view.size).is_some_and(|end| end <= size);
    if view.size == 0 || !fits || view.flags != 0 || view.reserved != [0; 16] {
        return Err(Status::InvalidValue);
    }
    let View { offset, size, .. } = view;
    out.put(show(&mut table, context, memory, offset, size)?)
}

/// A mipmapped array over a part of it; its end is `cuMipmappedArrayDestroy`.
pub(crate) fn array(out: Out<u64>, external: u64, view: In<ArrayView>) -> Outcome {
    out.check()?;
    let view = view.get()?;
    let levels = Levels::of(view.shape, view.levels)?;
    let driver = driver()?;
    let mut table = driver.table();
    let (context, _) = table.current_device()?;
    let External { memory, size } = *find(&table.external, external)?;
    let fits = view.offset.checked_add(levels.bytes()).is_some_and(|end| end <= size);
    if !fits || view.reserved != [0; 16] {
        return Err(Status::InvalidValue);
    }
    let at = show(&mut table, context, memory, view.offset, levels.bytes())?;
    out.put(levels.insert(&mut table, context, at))
}

/// A range over a part of memory, which stays while the range does.
fn show(table: &mut Table, context: u64, memory: u64, offset: u64, size: u64) -> Outcome<u64> {
    let (device, _, backing) = physical::facts(table, memory)?;
    let base = table.reserved.take(size.next_multiple_of(BLOCK), BLOCK).ok_or(Status::OutOfMemory)?;
    physical::pin(table, memory)?;
    let (id, kind) = (table.handle(), Kind::External(memory));
    table.ranges.insert(Range { base, size, kind, device, context, id, backing, offset });
    Ok(base)
}

/// Ends the object; views of it keep the memory until they are freed.
pub(crate) fn destroy(external: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    let External { memory, .. } = table.external.remove(&external).ok_or(Status::InvalidHandle)?;
    physical::give(driver, &mut table, memory)
}
