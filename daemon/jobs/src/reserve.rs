//! Disk space reserved for the state.
//!
//! A full disk must not prevent slices from being created or ended. The state folder therefore holds a file
//! of zeros; when a write of the state finds no space, the file is removed and the write repeated. It is
//! created again once there is space.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};

const FILE: &str = "reserve";
/// Size in bytes; a sixteenth of the disk if that is less.
const BYTES: u64 = 8 << 20;
/// The file is created if this many times its size is free.
const TIMES: u64 = 4;

/// Space in bytes that logs leave free; a twentieth of a small disk.
/// It is more than the state ever needs at once.
const LEFT_BY_LOGS: u64 = 256 << 20;

/// Creates the reserve if it does not exist and there is space.
///
/// # Errors
/// If it cannot be written; no partial file remains.
pub fn hold(folder: &Path) -> io::Result<()> {
    let path = folder.join(FILE);
    if path.exists() {
        return Ok(());
    }
    let disk = statvfs(folder)?;
    let bytes = BYTES.min(size(&disk) / 16);
    if bytes == 0 || free(&disk) < bytes.saturating_mul(TIMES) {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let length = i64::try_from(bytes).unwrap_or(i64::MAX);
    fallocate(file, FallocateFlags::empty(), 0, length).map_err(|errno| {
        let _ = fs::remove_file(&path);
        errno.into()
    })
}

/// Removes the reserve; returns whether that freed space.
pub fn give_up(folder: &Path) -> bool {
    fs::remove_file(folder.join(FILE)).is_ok()
}

/// Tests if the error means a full disk or quota.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Bytes of the file's disk that logs may still take; `None` if unknown.
pub fn room_for_logs(file: &File) -> Option<u64> {
    let disk = fstatvfs(file.as_fd()).ok()?;
    Some(free(&disk).saturating_sub(LEFT_BY_LOGS.min(size(&disk) / 20)))
}

/// Size of a folder's disk in bytes.
pub(crate) fn disk_size(folder: &Path) -> io::Result<u64> {
    Ok(size(&statvfs(folder)?))
}

fn size(disk: &Statvfs) -> u64 {
    disk.blocks().saturating_mul(disk.fragment_size())
}

fn free(disk: &Statvfs) -> u64 {
    disk.blocks_available().saturating_mul(disk.fragment_size())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn reserve_takes_space_until_removed() {
        let folder = tempfile::tempdir().unwrap();
        hold(folder.path()).unwrap();
        let held = fs::metadata(folder.path().join(FILE)).unwrap();
        assert!(held.len() > 0 && held.blocks() * 512 >= held.len(), "{held:?}");
        hold(folder.path()).unwrap();
        assert!(give_up(folder.path()) && !give_up(folder.path()));
    }
}
