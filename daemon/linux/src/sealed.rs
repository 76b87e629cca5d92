//! Usage regions of fixed size: memory sealed by the kernel.
//!
//! Tenants write a slice's usage region, so no system call may change its size. Sealed memory has no name in a file
//! system and ends with its last descriptor and mapping. A slice's processes map its region while they live, so the
//! next daemon takes it from one of them; a region that no process maps holds nothing of value. A link in the slice's
//! directory holds the region's inode number, which identifies it among a process's mappings.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tranche_domain::id::HostPid;
use tranche_domain::slice::ProcessId;

use crate::privileges;
use crate::process::Process;
use crate::sys::Mapping;

/// Seals of a usage region: it can neither grow nor shrink, and the seals are permanent.
const SEALS: SealFlag = SealFlag::F_SEAL_GROW.union(SealFlag::F_SEAL_SHRINK).union(SealFlag::F_SEAL_SEAL);
/// Time after which no further process of a slice is searched. Each attached process maps the region, and one that
/// has unmapped it may have tens of thousands of other mappings.
const PATIENCE: Duration = Duration::from_millis(500);

/// Creates memory of a fixed size for the usage region of a slice.
pub fn make(slice: &str, bytes: usize) -> io::Result<File> {
    let name = CString::new(name_of(slice)).map_err(io::Error::other)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(name.as_c_str(), flags)?);
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.set_len(bytes as u64)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(file)
}

/// Writes the link that identifies a region.
pub fn record(region: &File, link: &Path) -> io::Result<()> {
    let unfinished = link.with_extension("new");
    tranche_privileged::remove(&unfinished)?;
    symlink(format!("memory:[{}]", region.metadata()?.ino()), &unfinished)?;
    fs::rename(unfinished, link)
}

/// The region that a link identifies, from the first of these processes that maps it.
///
/// # Errors
/// `NotFound` if no process maps it; otherwise errors of the kernel or the helper.
pub fn find(link: &Path, slice: &str, processes: impl Iterator<Item = ProcessId>) -> io::Result<File> {
    let target = fs::read_link(link)?;
    let inode =
        target.to_str().and_then(|text| text.strip_prefix("memory:[")?.strip_suffix(']')?.parse().ok());
    let inode = inode.ok_or_else(|| io::Error::other(format!("{} names no region", link.display())))?;
    let mut missing = io::Error::new(io::ErrorKind::NotFound, "no process maps it");
    let deadline = Instant::now() + PATIENCE;
    for process in processes.filter_map(|id| Process::reopen(id).ok()) {
        match privileges::mapped_memory(process.as_fd(), inode).and_then(|region| check(region, slice)) {
            Ok(region) => return Ok(region),
            Err(error) => missing = error,
        }
        if Instant::now() > deadline {
            break;
        }
    }
    Err(missing)
}

/// Succeeds if this daemon could find a region that a process maps, which takes root's capabilities.
///
/// # Errors
/// The missing capability.
pub fn can_be_found() -> io::Result<()> {
    privileges::sees_mappings()?;
    let probe = make("probe", size_of::<u64>())?;
    let _mapped = Mapping::shared(&probe, 1)?;
    let this = Process::open(HostPid::new(std::process::id()))?;
    privileges::mapped_memory(this.as_fd(), probe.metadata()?.ino())
        .and_then(|found| check(found, "probe"))
        .map(drop)
}

/// Name of a slice's region, as the kernel shows it.
fn name_of(slice: &str) -> String {
    format!("slices/{slice}/usage")
}

/// Passes on a file if it is the sealed usage region of that slice, created by this user.
fn check(file: File, slice: &str) -> io::Result<File> {
    let seals = SealFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GET_SEALS)?);
    let shown = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let named = PathBuf::from(format!("/memfd:{} (deleted)", name_of(slice)));
    let ours = file.metadata()?.uid() == nix::unistd::geteuid().as_raw();
    if seals.contains(SEALS) && shown == named && ours {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "what is mapped is no usage region of this slice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_found_in_a_mapping_process_only() {
        if let Err(error) = can_be_found() {
            println!("SKIP: mappings of a process cannot be opened: {error}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("usage");
        let region = make("a", 4096).unwrap();
        record(&region, &link).unwrap();
        let this = Process::open(HostPid::new(std::process::id())).unwrap().id;
        assert!(find(&link, "a", [this].into_iter()).is_err(), "nothing maps it");
        let mapped = Mapping::shared(&region, 512).unwrap();
        let ino = region.metadata().unwrap().ino();
        drop(region);
        let found = find(&link, "a", [this].into_iter()).unwrap();
        assert_eq!(found.metadata().unwrap().ino(), ino);
        assert!(find(&link, "b", [this].into_iter()).is_err(), "it is another slice's");
        assert!(find(&link, "a", std::iter::empty()).is_err());
        drop((mapped, found));
        assert!(find(&link, "a", [this].into_iter()).is_err(), "it has gone with its last mapping");
    }

    #[test]
    fn unsealed_memory_of_the_name_is_rejected() {
        let name = CString::new(name_of("a")).unwrap();
        let unsealed = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_ALLOW_SEALING).unwrap());
        assert!(check(unsealed, "a").is_err());
        assert!(check(make("a", 8).unwrap(), "a").is_ok() && check(make("a", 8).unwrap(), "b").is_err());
    }
}
