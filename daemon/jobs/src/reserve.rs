//! Room on the disk that is kept for the state: a file that is there to be removed.
//!
//! A disk that others have filled must not keep a slice from being made or ended. So the folder of the state holds a file
//! of zeros; when a write of the state finds no room, the file goes and the write is tried again. It comes back when
//! there is room.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};

const FILE: &str = "reserve";
/// Its length, in bytes, or a sixteenth of a disk that is small.
const BYTES: u64 = 8 << 20;
/// It is made where there is so many times as much room.
const TIMES: u64 = 4;

/// What logs leave free, in bytes, or a twentieth of a disk that is small: more than the state ever needs at once.
const LEFT_BY_LOGS: u64 = 256 << 20;

/// Makes the file, where there is none and there is room.
///
/// # Errors
/// If it cannot be written; nothing is left of it then.
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

/// Removes the file; says whether that made room.
pub fn give_up(folder: &Path) -> bool {
    fs::remove_file(folder.join(FILE)).is_ok()
}

/// Whether there was no room for something.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Bytes that logs may still take of the disk on which a file is; nothing where that is not known.
pub fn room_for_logs(file: &File) -> Option<u64> {
    let disk = fstatvfs(file.as_fd()).ok()?;
    Some(free(&disk).saturating_sub(LEFT_BY_LOGS.min(size(&disk) / 20)))
}

/// The size of the disk of a folder, in bytes.
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
    fn what_is_held_takes_room_until_it_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        hold(folder.path()).unwrap();
        let held = fs::metadata(folder.path().join(FILE)).unwrap();
        assert!(held.len() > 0 && held.blocks() * 512 >= held.len(), "{held:?}");
        hold(folder.path()).unwrap();
        assert!(give_up(folder.path()) && !give_up(folder.path()));
    }
}
