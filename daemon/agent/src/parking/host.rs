//! Host memory for the contents of parked slices.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::{Current, Meminfo};
use tranche_domain::id::HostPid;
use tranche_domain::units::Bytes;
use tranche_linux::process;
use tranche_privileged::ProcessFile;

/// Host memory that is left to others when a slice is parked.
const LEFT: Bytes = Bytes::mib(512);
/// The hierarchy of version 2.
const HIERARCHY: &str = "/sys/fs/cgroup";

/// A place whose host memory does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostMemory {
    /// Memory that is free there.
    pub(crate) free: Bytes,
    /// The place, to follow the amount in a message.
    pub(crate) place: &'static str,
}

/// Half of the node's memory; zero where that is unknown.
pub(crate) fn default_budget() -> Bytes {
    Meminfo::current().map_or(Bytes::ZERO, |memory| Bytes::mib(Bytes::new(memory.mem_total / 2).whole_mib()))
}

/// Checks that the node and the cgroups of these processes have room for what each of them needs.
///
/// The driver allocates the memory in the process, so it is charged to the cgroup of that.
pub(crate) fn check(needs: &[(HostPid, Bytes)]) -> Result<(), HostMemory> {
    let total: Bytes = needs.iter().map(|(_, need)| *need).sum();
    let available = Meminfo::current().ok().and_then(|memory| memory.mem_available);
    let available = Bytes::new(available.unwrap_or_default()).saturating_sub(LEFT);
    if available < total {
        return Err(HostMemory {
            free: available,
            place: "available on the node, besides 512 MiB for others",
        });
    }
    let mut of_cgroup: BTreeMap<PathBuf, Bytes> = BTreeMap::new();
    for (pid, need) in needs {
        let Some(folder) = cgroup(*pid) else { continue };
        for folder in folder.ancestors().take_while(|folder| folder.as_os_str().len() > HIERARCHY.len()) {
            let sum = of_cgroup.entry(folder.to_owned()).or_default();
            *sum = sum.saturating_add(*need);
        }
    }
    let free = of_cgroup.iter().filter_map(|(folder, need)| Some((room(folder)?, *need)));
    match free.filter(|(free, need)| free < need).map(|(free, _)| free).min() {
        Some(free) => Err(HostMemory { free, place: "left in the cgroup of its processes (memory.max)" }),
        None => Ok(()),
    }
}

/// Folder of a process's cgroup in the hierarchy of version 2.
fn cgroup(pid: HostPid) -> Option<PathBuf> {
    let text = process::text(pid, ProcessFile::Cgroup).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_plain = Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    is_plain.then(|| Path::new(HIERARCHY).join(path))
}

/// Memory that a cgroup may take beyond what it has; `None` without a limit.
fn room(folder: &Path) -> Option<Bytes> {
    let read = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(Bytes::new(read("memory.max")?.saturating_sub(read("memory.current")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_refuses_more_than_is_available() {
        let this = HostPid::new(std::process::id());
        assert_eq!(check(&[(this, Bytes::mib(1))]), Ok(()));
        let refused = check(&[(this, Bytes::mib(1 << 30))]).unwrap_err();
        assert!(refused.place.contains("node"), "{refused:?}");
        assert!(default_budget() > Bytes::ZERO);
    }

    #[test]
    fn cgroup_limits_bound_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(room(folder.path()), None);
        fs::write(folder.path().join("memory.max"), "max\n").unwrap();
        fs::write(folder.path().join("memory.current"), "4096\n").unwrap();
        assert_eq!(room(folder.path()), None);
        fs::write(folder.path().join("memory.max"), "12288\n").unwrap();
        assert_eq!(room(folder.path()), Some(Bytes::new(8192)));
    }
}
