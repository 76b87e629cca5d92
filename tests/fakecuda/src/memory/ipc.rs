//! Device memory of one process used by another: the handle names a process and a file of its that holds the bytes.
//!
//! It is counted once, and is there until the last process that has it has freed or closed it. A handle can be opened
//! while its maker lives and the opener may look into it (the same user, or more).

use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use simgpu::Shared;

use crate::driver::driver;
use crate::memory::alloc::drop_range;
use crate::memory::backing::Backing;
use crate::memory::heap::BLOCK;
use crate::memory::ranges::{Kind, Range};
use crate::status::{Outcome, Status};
use crate::wall::Out;

/// Tells a handle from noise: `SIMGPUIP`.
const MAGIC: u64 = u64::from_ne_bytes(*b"SIMGPUIP");

/// `CUipcMemHandle`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Handle {
    magic: u64,
    process: u64,
    file: u64,
    block: u64,
    offset: u64,
    size: u64,
    gpu: u64,
    piece: u64,
}

pub(crate) fn export(out: Out<Handle>, address: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let range = table.ranges.around(address).filter(|range| range.kind == Kind::Device).cloned();
    let range = range.ok_or(Status::InvalidValue)?;
    let gpu = table.gpu(range.device);
    let (block, bytes) = (range.base - range.offset, range.backing.size());
    let piece = crate::memory::shared::export(driver, &mut table, gpu, block, bytes)?;
    let handle = Handle {
        magic: MAGIC,
        process: u64::from(std::process::id()),
        // Stays open as long as the process: a handle has no end of its own.
        file: range.backing.file()?.into_raw_fd() as u64,
        block: range.backing.size(),
        offset: range.offset,
        size: range.size,
        gpu: gpu.index() as u64,
        piece: piece.serial(),
    };
    out.put(handle)
}

pub(crate) fn open(out: Out<u64>, handle: Handle, flags: u32) -> Outcome {
    out.check()?;
    let fits = handle.offset.checked_add(handle.size).is_some_and(|end| end <= handle.block);
    // A process cannot open its own handle: it has the memory already.
    if handle.magic != MAGIC
        || handle.piece == 0
        || !handle.block.is_multiple_of(BLOCK)
        || flags != 1
        || !fits
        || handle.process == u64::from(std::process::id())
    {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let (context, _) = table.current_device()?;
    let found = table.devices.iter().position(|device| device.gpu.index() as u64 == handle.gpu);
    let device = found.ok_or(Status::InvalidDevice)?;
    let path = format!("/proc/{}/fd/{}", handle.process, handle.file);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| Status::InvalidValue)?;
    let backing = Arc::new(Backing::from_file(file, handle.block)?);
    let base = table.reserved.take(handle.block, BLOCK).ok_or(Status::OutOfMemory)?;
    let piece = Shared::new(table.gpu(device), handle.piece);
    if let Err(refusal) = crate::memory::shared::join(driver, &mut table, piece) {
        table.reserved.give(base, handle.block);
        return Err(refusal);
    }
    let (id, size, offset) = (table.handle(), handle.size, handle.offset);
    let kind = Kind::Ipc(piece);
    table.ranges.insert(Range { base, size, kind, device, context, id, backing, offset });
    out.put(base)
}

pub(crate) fn close(address: u64) -> Outcome {
    let driver = driver()?;
    let mut table = driver.table();
    if !table.ranges.at(address).is_some_and(|range| matches!(range.kind, Kind::Ipc(_))) {
        return Err(Status::InvalidValue);
    }
    drop_range(driver, &mut table, address);
    Ok(())
}
