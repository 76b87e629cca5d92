//! Check of the preloaded library before a program is started with it.

use std::env;
use std::fs::{File, Metadata, canonicalize, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User, geteuid};

use super::error::RunError;

/// Write permission of a file's group, and of all users.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// In a sticky folder, only owners replace their files.
const STICKY: u32 = 0o1000;

/// Checks the preloaded library.
///
/// The loader skips one that cannot be opened, with a warning only, and the program would run without limits. The
/// library becomes part of the caller's programs, so it and its folders may be writable only by root, the caller and
/// the owner of this program: the daemon's statement alone does not suffice.
pub(super) fn check(preload_path: &str) -> Result<(), RunError> {
    let path = PathBuf::from(preload_path);
    if preload_path.contains([' ', ':']) {
        return Err(RunError::UnspeakableShim(path));
    }
    let opened = File::open(&path).and_then(|_| canonicalize(&path));
    let real = opened.map_err(|cause| RunError::NoShim { path, cause })?;
    let trusted = trusted_users();
    match real.ancestors().find(|part| !metadata(part).is_ok_and(|file| is_safe(&file, &trusted))) {
        None => Ok(()),
        Some(part) => Err(RunError::ForeignShim { path: real.clone(), part: part.to_owned() }),
    }
}

/// Root, the caller and the owner of this program.
fn trusted_users() -> Vec<Uid> {
    let program = env::current_exe().and_then(metadata).map(|file| Uid::from_raw(file.uid()));
    [Uid::from_raw(0), geteuid()].into_iter().chain(program).collect()
}

/// Tests if only trusted users can replace a file, or what lies in a folder.
fn is_safe(file: &Metadata, trusted: &[Uid]) -> bool {
    let is_sticky = file.is_dir() && file.mode() & STICKY != 0;
    let may_group = file.mode() & GROUP_WRITES != 0 && !is_group_of(Gid::from_raw(file.gid()), trusted);
    trusted.contains(&Uid::from_raw(file.uid())) && (is_sticky || file.mode() & ALL_WRITE == 0 && !may_group)
}

/// Tests if a group is root's, or a trusted user's own: of the same name, without other members.
fn is_group_of(group: Gid, trusted: &[Uid]) -> bool {
    let is_private = |group: &Group| {
        let users = trusted.iter().filter_map(|uid| User::from_uid(*uid).ok()?);
        users
            .into_iter()
            .any(|user| user.name == group.name && group.mem.iter().all(|name| *name == user.name))
    };
    group.as_raw() == 0 || Group::from_gid(group).is_ok_and(|group| group.as_ref().is_some_and(is_private))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::Path;

    #[test]
    fn unloadable_shim_prevents_the_start() {
        assert!(matches!(check("/nonexistent.so"), Err(RunError::NoShim { .. })));
        assert!(matches!(check("/a b.so"), Err(RunError::UnspeakableShim(_))));
        assert!(check("/proc/self/exe").is_ok());
    }

    #[test]
    fn shim_that_others_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("inner/lib.so");
        create_dir(folder.path().join("inner")).unwrap();
        write(&library, "").unwrap();
        let check = || check(&library.display().to_string());
        let allow = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let inner = library.parent().unwrap();
        assert!(check().is_ok());
        for (path, usual, open) in [(&*library, 0o644, 0o666), (inner, 0o755, 0o777)] {
            allow(path, open);
            assert!(matches!(check(), Err(RunError::ForeignShim { part, .. }) if part.ends_with(path)));
            allow(path, usual);
        }
        if !geteuid().is_root() {
            println!("SKIP: only root gives files to others");
            return;
        }
        for path in [&*library, inner] {
            chown(path, Some(4242), None).unwrap();
            assert!(matches!(check(), Err(RunError::ForeignShim { .. })));
            chown(path, Some(0), None).unwrap();
        }
        for (path, usual, open) in [(&*library, 0o644, 0o664), (inner, 0o755, 0o775)] {
            allow(path, open);
            assert!(check().is_ok(), "root's group may write");
            chown(path, None, Some(4242)).unwrap();
            assert!(matches!(check(), Err(RunError::ForeignShim { part, .. }) if part.ends_with(path)));
            allow(path, usual);
            assert!(check().is_ok(), "another group may read");
        }
    }
}
