//! Cgroups that a daemon with `only_slices` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::PATIENCE;
use crate::wait::until;

/// The hierarchy of version 2, where its root is.
pub fn hierarchy() -> Option<&'static Path> {
    let places = [Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/unified")];
    places
        .into_iter()
        .find(|place| place.join("cgroup.procs").exists() && !place.join("cgroup.type").exists())
}

/// The leaf that a process is in, by its path in the hierarchy.
pub fn leaf_of(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = Path::new(text.lines().find_map(|line| line.strip_prefix("0::/"))?).to_owned();
    let is_leaf = path.file_name()?.to_str()?.starts_with("tranche_");
    is_leaf.then_some(path)
}

/// Takes back the rule of a daemon that has ended, and removes its leaves, of which `own` was one.
pub(crate) fn clear(own: &Path, open_gpus: &mut Command) {
    let _ = open_gpus.status(); // a rule that stays denies devices of no driver
    let own = hierarchy().unwrap_or(Path::new("/")).join(own);
    let name = own.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'));
    let (Some(above), Some((tag, _))) = (own.parent(), name) else { return };
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(tag);
    for entry in fs::read_dir(above).into_iter().flatten().flatten().filter(named) {
        // Killed processes may be there for a moment.
        let _ = until(PATIENCE, || fs::remove_dir(entry.path()).map_err(|error| error.to_string()));
    }
}
