//! Cgroups of slices that an earlier helper left behind.

use std::fs;
use std::path::{Path, PathBuf};

/// Paths of the leaves of this name below a cgroup, relative to it.
pub(crate) fn below(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(cgroup) = open.pop() {
        for entry in fs::read_dir(root.join(&cgroup)).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = cgroup.join(entry.file_name());
            match is_named(&entry.file_name().to_string_lossy(), name) {
                true => found.push(path),
                false => open.push(path),
            }
        }
    }
    found
}

/// Tests for the program's name with a generation.
fn is_named(leaf: &str, name: &str) -> bool {
    let generation = leaf.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    generation.is_some_and(|generation| generation.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_leaves_of_this_daemon_are_found() {
        let root = tempfile::tempdir().unwrap();
        let own = ["tranche_0123456.7", "user.slice/session/tranche_0123456.8"];
        let others =
            ["tranche_6543210.7", "tranche_0123456", "tranche_0123456.x", "system.slice/tranche_0123456x.7"];
        for path in own.into_iter().chain(others) {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        fs::write(root.path().join("tranche_0123456.9"), "a file").unwrap();
        symlink("user.slice", root.path().join("link")).unwrap();
        let found: BTreeSet<PathBuf> = below(root.path(), "tranche_0123456").into_iter().collect();
        assert_eq!(found, own.map(PathBuf::from).into_iter().collect());
    }
}
