//! Files that are whole at any instant: whoever reads one finds what was there or what came after, and nothing between.
//!
//! What is new is written beside the file under a name that is always the same, so that a daemon that dies on the way
//! leaves one file too many at most, and the next to write makes it anew. Nobody else writes there: whoever calls holds
//! the directory for this daemon, and the lock that keeps what the file says together.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tranche_shm::crash::point;

/// What a file is to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    /// This process's death.
    Us,
    /// The machine's as well.
    PowerCuts,
}

/// For the daemon's eyes alone.
pub(crate) const PRIVATE: u32 = 0o600;
/// For everybody to read.
pub(crate) const PUBLIC: u32 = 0o644;

/// Puts `content` in the place of what a file holds.
///
/// # Errors
/// The file is as it was, and nothing is left beside it.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32, survives: Survives) -> io::Result<()> {
    let fresh = beside(path);
    point("file: begun");
    let written = write(&fresh, content, mode, survives).and_then(|()| fs::rename(&fresh, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&fresh);
        return Err(error);
    }
    point("file: renamed");
    if survives == Survives::PowerCuts {
        keep_name(path);
    }
    point("file: kept");
    Ok(())
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn write(path: &Path, content: &[u8], mode: u32, survives: Survives) -> io::Result<()> {
    // Not the file that a daemon before us may have left: somebody may still have it open.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(PRIVATE).open(path)?;
    point("file: made");
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    point("file: written");
    if survives == Survives::PowerCuts {
        file.sync_all()?;
        point("file: synced");
    }
    Ok(())
}

/// The new file is in its place, and whoever reads finds it there. Should the directory not get to the disk, only a power
/// cut would bring the old one back: no reason to take back what has been done.
fn keep_name(path: &Path) {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if let Err(error) = File::open(directory).and_then(|directory| directory.sync_all()) {
        tracing::warn!(path = %path.display(), %error, "a power cut now would bring back what it was");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_has_its_mode_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(beside(&path), "half of what a daemon before us").unwrap();
        for (text, mode, survives) in [("a", PRIVATE, Survives::Us), ("bb", PUBLIC, Survives::PowerCuts)] {
            replace(&path, text.as_bytes(), mode, survives).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"a", PRIVATE, Survives::PowerCuts).is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
