//! Atomic replacement of files: a reader finds the old content or the new, never a mixture.
//!
//! The new content is written beside the file under a fixed name, so a daemon killed in between leaves at most one
//! extra file, which the next write replaces. There is no other writer: the caller holds the directory for this
//! daemon and the lock that keeps the content consistent.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tranche_shm::crash::point;

/// Crashes that the new content must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Death of this process; nothing is synced.
    ProcessDeath,
    /// Power cuts as well: file and directory are synced.
    PowerCuts,
}

/// Mode of files that only the daemon may read.
pub const PRIVATE: u32 = 0o600;
/// Mode of files that every user may read.
pub const PUBLIC: u32 = 0o644;

/// Replaces the content of a file and sets its mode.
///
/// # Errors
/// The file is unchanged, and no temporary file is left.
pub fn replace(path: &Path, content: &[u8], mode: u32, survives: Survives) -> io::Result<()> {
    let temporary = temporary_path(path);
    point("file: begun");
    let written = write(&temporary, content, mode, survives).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    point("file: renamed");
    if survives == Survives::PowerCuts {
        sync_directory(path);
    }
    point("file: kept");
    Ok(())
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn write(path: &Path, content: &[u8], mode: u32, survives: Survives) -> io::Result<()> {
    // A new file, not the one that an earlier daemon may have left: another process may still have that open.
    tranche_privileged::remove(path)?;
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

/// Syncs the directory. The new file is already in place and readers find it; if the sync fails, only a power cut
/// could restore the old one, so the failure is logged and nothing is undone.
fn sync_directory(path: &Path) {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if let Err(error) = File::open(directory).and_then(|directory| directory.sync_all()) {
        tracing::warn!(path = %path.display(), %error, "a power cut now would bring back what it was");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_has_its_mode_and_no_leftovers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(temporary_path(&path), "half of what a daemon before us").unwrap();
        for (text, mode, survives) in
            [("a", PRIVATE, Survives::ProcessDeath), ("bb", PUBLIC, Survives::PowerCuts)]
        {
            replace(&path, text.as_bytes(), mode, survives).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn failed_replacement_leaves_the_file_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"a", PRIVATE, Survives::PowerCuts).is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
