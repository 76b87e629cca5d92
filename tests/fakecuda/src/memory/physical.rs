//! Physical memory: who holds and who maps it, and how it comes from another process.

use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use simgpu::Shared;

use crate::driver::{Driver, Table, driver};
use crate::memory::backing::Backing;
use crate::memory::heap::BLOCK;
use crate::state::physical::{Payment, Physical};
use crate::status::{Outcome, Status};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_FILE: i32 = 1;
/// Bytes behind the content of an exported file.
///
/// They begin with the GPU's index on the node and the number of the shared piece.
pub(crate) const TRAILER: u64 = 4096;

/// Memory goes with its last handle and last mapping.
pub(crate) fn settle(driver: &Driver, table: &mut Table, handle: u64) {
    let Some(physical) = table.physical.get(&handle) else { return };
    if physical.held > 0 || physical.mapped > 0 {
        return;
    }
    match physical.payment {
        Payment::Own => driver.refund(table.gpu(physical.device), physical.size),
        Payment::Shared(piece) => crate::memory::shared::leave(driver, table, piece),
        Payment::Host => {}
    }
    table.physical.remove(&handle);
}

/// Makes what a descriptor names memory of this process, too.
pub(crate) fn take(driver: &Driver, table: &mut Table, fd: i32) -> Outcome<u64> {
    let file = duplicate(fd)?;
    let length = file.metadata().map_err(|_| Status::InvalidValue)?.len();
    let size =
        length.checked_sub(TRAILER).filter(|size| size.is_multiple_of(BLOCK)).ok_or(Status::InvalidValue)?;
    let mut trailer = [0; 16];
    file.read_exact_at(&mut trailer, size).map_err(|_| Status::InvalidValue)?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| trailer[at + byte]));
    let found = table.devices.iter().position(|device| device.gpu.index() as u64 == word(0));
    let device = found.ok_or(Status::InvalidDevice)?;
    let backing = Arc::new(Backing::from_file(file, size)?);
    let piece = Shared::new(table.gpu(device), word(8));
    crate::memory::shared::join(driver, table, piece)?;
    let handle = table.handle();
    let (handle_types, payment) = (POSIX_FILE, Payment::Shared(piece));
    let location = (1, device as i32);
    let imported = true;
    let physical =
        Physical { device, size, handle_types, location, backing, held: 1, mapped: 0, payment, imported };
    table.physical.insert(handle, physical);
    Ok(handle)
}

/// Gives a handle up.
pub(crate) fn give(driver: &Driver, table: &mut Table, handle: u64) -> Outcome {
    let physical = table.physical.get_mut(&handle).ok_or(Status::InvalidValue)?;
    physical.held = physical.held.checked_sub(1).ok_or(Status::InvalidValue)?;
    settle(driver, table, handle);
    Ok(())
}

/// Uses memory without a handle to it, as a mapping does.
pub(crate) fn pin(table: &mut Table, handle: u64) -> Outcome {
    table.physical.get_mut(&handle).ok_or(Status::InvalidValue)?.mapped += 1;
    Ok(())
}

/// Ends such a use.
pub(crate) fn unpin(driver: &Driver, table: &mut Table, handle: u64) {
    if let Some(physical) = table.physical.get_mut(&handle) {
        physical.mapped -= 1;
    }
    settle(driver, table, handle);
}

/// The same from a stream that has come to it.
pub(crate) fn unpin_in_turn(handle: u64) {
    if let Ok(driver) = driver() {
        unpin(driver, &mut driver.table(), handle);
    }
}

/// Device, size and bytes of memory.
pub(crate) fn facts(table: &Table, handle: u64) -> Outcome<(usize, u64, Arc<Backing>)> {
    let physical = table.physical.get(&handle).ok_or(Status::InvalidValue)?;
    Ok((physical.device, physical.size, physical.backing.clone()))
}

/// Another descriptor of the same file.
pub(crate) fn duplicate(fd: i32) -> Outcome<File> {
    // SAFETY: duplicating any number is harmless; one that is no descriptor is refused.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(Status::InvalidValue);
    }
    // SAFETY: a fresh descriptor, of which this is the only owner.
    Ok(unsafe { File::from_raw_fd(own) })
}
