//! Device memory of one process used by another, plain or of a pool.
//!
//! A handle names a process, and its file that holds the bytes.
//!
//! The memory is counted once, and is there until the last process that has it has freed or closed it. A handle can be
//! opened while its maker lives and the opener has access to it (the same user, or more).

use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use simgpu::Shared;

use crate::driver::{Driver, Table, driver};
use crate::lookup::find;
use crate::memory::backing::Backing;
use crate::memory::heap::BLOCK;
use crate::memory::physical::{self, POSIX_FILE};
use crate::memory::pool;
use crate::memory::ranges::{Kind, Range};
use crate::memory::release::drop_range;
use crate::status::{Outcome, Status};
use crate::wall::{Host, In, Out, copy};

/// Mark that distinguishes a handle from noise: `SIMGPUIP`.
const MAGIC: u64 = u64::from_ne_bytes(*b"SIMGPUIP");

/// The same for handles of pools: `SIMGPUPL`.
const POOL_MAGIC: u64 = u64::from_ne_bytes(*b"SIMGPUPL");

/// `CUipcMemHandle`, `CUipcEventHandle` and `CUmemPoolPtrExportData`.
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

impl Handle {
    /// Names a file of this process.
    pub(crate) fn new(magic: u64, file: u64) -> Self {
        Self {
            magic,
            process: u64::from(std::process::id()),
            file,
            block: 0,
            offset: 0,
            size: 0,
            gpu: 0,
            piece: 0,
        }
    }

    /// Tests if it is one of a kind.
    pub(crate) const fn is(&self, magic: u64) -> bool {
        self.magic == magic
    }

    /// Pid of the process that made it.
    pub(crate) const fn process(&self) -> u64 {
        self.process
    }

    /// Descriptor of the file in that process.
    pub(crate) const fn file(&self) -> u64 {
        self.file
    }
}

pub(crate) fn export(out: Out<Handle>, address: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let range = table.ranges.around(address).filter(|range| range.kind == Kind::Device).cloned();
    let handle = describe(driver, &mut table, &range.ok_or(Status::InvalidValue)?, MAGIC)?;
    out.put(handle)
}

fn describe(driver: &Driver, table: &mut Table, range: &Range, magic: u64) -> Outcome<Handle> {
    let gpu = table.gpu(range.device);
    let (block, bytes) = (range.base - range.offset, range.backing.size());
    let piece = crate::memory::shared::export(driver, table, gpu, block, bytes)?;
    Ok(Handle {
        magic,
        process: u64::from(std::process::id()),
        // Stays open as long as the process: a handle has no end of its own.
        file: range.backing.file()?.into_raw_fd() as u64,
        block: range.backing.size(),
        offset: range.offset,
        size: range.size,
        gpu: gpu.index() as u64,
        piece: piece.serial(),
    })
}

pub(crate) fn open(out: Out<u64>, handle: Handle, flags: u32) -> Outcome {
    out.check()?;
    if handle.magic != MAGIC || flags != 1 {
        return Err(Status::InvalidValue);
    }
    out.put(open_range(handle, Kind::Ipc)?)
}

/// Makes what another process has described a range of this one's.
fn open_range(handle: Handle, kind: fn(Shared) -> Kind) -> Outcome<u64> {
    let fits = handle.offset.checked_add(handle.size).is_some_and(|end| end <= handle.block);
    // A process cannot open its own handle: it has the memory already.
    if handle.piece == 0
        || !handle.block.is_multiple_of(BLOCK)
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
    table.ranges.insert(Range { base, size, kind: kind(piece), device, context, id, backing, offset });
    Ok(base)
}

// ---- pools ----

/// Makes a file descriptor by which another process can open a pool.
pub(crate) fn export_pool(out: Host, handle: u64, kind: i32, flags: u64) -> Outcome {
    if kind != POSIX_FILE || flags != 0 || out == Host::NULL {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    if !pool::known(&driver.table(), handle)?.is_shareable() {
        return Err(Status::InvalidValue);
    }
    let file = Backing::sparse(BLOCK).file()?;
    let words = [POOL_MAGIC, u64::from(std::process::id()), handle].map(u64::to_ne_bytes).concat();
    file.write_all_at(&words, 0).map_err(|_| Status::OperatingSystem)?;
    let fd = file.into_raw_fd();
    copy(Host(std::ptr::from_ref(&fd).cast_mut().cast()), out, size_of_val(&fd));
    Ok(())
}

/// Opens another process's pool. Nothing can be allocated from it.
pub(crate) fn import_pool(out: Out<u64>, shared: Host, kind: i32, flags: u64) -> Outcome {
    out.check()?;
    let fd = i32::try_from(shared.address()).map_err(|_| Status::InvalidValue)?;
    if kind != POSIX_FILE || flags != 0 {
        return Err(Status::InvalidValue);
    }
    let mut words = [0; 24];
    physical::duplicate(fd)?.read_exact_at(&mut words, 0).map_err(|_| Status::InvalidValue)?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| words[at + byte]));
    if word(0) != POOL_MAGIC {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let handle = table.handle();
    table.imported_pools.insert(handle, word(8));
    out.put(handle)
}

/// Describes a pointer of a pool that other processes may open.
pub(crate) fn export_pointer(out: Out<Handle>, address: u64) -> Outcome {
    out.check()?;
    let driver = driver()?;
    let mut table = driver.table();
    let range = table.ranges.at(address).cloned().ok_or(Status::InvalidValue)?;
    let Kind::Pool(handle) = range.kind else { return Err(Status::InvalidValue) };
    if !pool::known(&table, handle)?.is_shareable() {
        return Err(Status::InvalidValue);
    }
    let handle = describe(driver, &mut table, &range, POOL_MAGIC)?;
    out.put(handle)
}

/// Opens such a pointer; its end is a free.
pub(crate) fn import_pointer(out: Out<u64>, pool: u64, shared: In<Handle>) -> Outcome {
    out.check()?;
    let handle = shared.get()?;
    let process = *find(&driver()?.table().imported_pools, pool)?;
    if handle.magic != POOL_MAGIC || handle.process != process {
        return Err(Status::InvalidValue);
    }
    out.put(open_range(handle, Kind::Lent)?)
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
