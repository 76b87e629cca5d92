//! Revoked tickets of jobs in containers, which permit the removal of a container and nothing else.
//!
//! A submitter who deletes a job revokes its ticket at once, while its member may still have to be cleaned up after.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::libc::O_NOFOLLOW;

/// File that marks the folder of a revoked ticket.
const MARK: &str = "revoked";
/// Time for which such a ticket is kept.
const KEPT: Duration = Duration::from_hours(1);

/// Marks a ticket as revoked.
pub(super) fn mark(ticket: &Path) -> io::Result<()> {
    let mut how = OpenOptions::new();
    how.create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW)
        .open(ticket.join(MARK))?;
    File::open(ticket)?.sync_all()
}

/// Tests if a ticket has been revoked.
pub(super) fn is_marked(ticket: &Path) -> bool {
    ticket.join(MARK).exists()
}

/// Removes those of these tickets that were revoked long ago.
pub(super) fn purge<'a>(folder: &Path, names: impl IntoIterator<Item = &'a String>) -> io::Result<()> {
    for ticket in names.into_iter().map(|name| folder.join(name)) {
        let Ok(mark) = fs::symlink_metadata(ticket.join(MARK)) else { continue };
        let age = mark.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        if age.is_none_or(|age| age >= KEPT) {
            fs::remove_dir_all(ticket)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_revoked_tickets_alone_are_purged() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["valid", "fresh", "old"].map(str::to_owned);
        names.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        for name in ["fresh", "old"] {
            mark(&folder.path().join(name)).unwrap();
            assert!(is_marked(&folder.path().join(name)));
        }
        let old = File::options().write(true).open(folder.path().join("old").join(MARK)).unwrap();
        old.set_modified(SystemTime::now() - KEPT).unwrap();
        purge(folder.path(), &names).unwrap();
        let left = names.each_ref().map(|name| folder.path().join(name).exists());
        assert_eq!(left, [true, true, false]);
    }
}
