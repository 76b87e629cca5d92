//! Cgroups that a daemon with `only_slices` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::PATIENCE;
use crate::wait::until;

/// The root of the cgroup hierarchy of version 2, if it is mounted here.
pub fn hierarchy() -> Option<&'static Path> {
    let places = [Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/unified")];
    places
        .into_iter()
        .find(|place| place.join("cgroup.procs").exists() && !place.join("cgroup.type").exists())
}

/// Path of the leaf that a process is in, relative to the hierarchy; `None` if that is no leaf.
pub fn leaf_of(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = Path::new(text.lines().find_map(|line| line.strip_prefix("0::/"))?).to_owned();
    let is_leaf = path.file_name()?.to_str()?.starts_with("tranche_");
    is_leaf.then_some(path)
}

/// Removes the device rule of a daemon that has ended, and its leaves, of which `own` was one.
pub(crate) fn clear(own: &Path, open_gpus: &mut Command) {
    let _ = open_gpus.status(); // a rule that remains denies no driver's devices
    let own = hierarchy().unwrap_or(Path::new("/")).join(own);
    let name = own.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'));
    let (Some(above), Some((tag, _))) = (own.parent(), name) else { return };
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(tag);
    for entry in fs::read_dir(above).into_iter().flatten().flatten().filter(named) {
        // Killed processes may remain in it for a moment.
        let _ = until(PATIENCE, || fs::remove_dir(entry.path()).map_err(|error| error.to_string()));
    }
}
