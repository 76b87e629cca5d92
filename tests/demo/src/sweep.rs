//! Search for leftover processes.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Processes of any user whose environment names the folder, except this one.
pub(crate) fn processes_of(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| pid != std::process::id() && names(pid, folder)).collect()
}

/// Kills those of them that were started in a slice, which no longer exists.
pub(crate) fn end_members(folder: &Path) {
    let inside = |pid: &u32| environment_has(*pid, b"TRANCHE_SLICE_SOCKET=");
    for pid in processes_of(folder).into_iter().filter(inside) {
        if let Ok(pid) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // or it has ended
        }
    }
}

fn names(pid: u32, folder: &Path) -> bool {
    environment_has(pid, folder.as_os_str().as_bytes())
}

fn environment_has(pid: u32, wanted: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn leftover_process_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("60").env("ANY", folder.path().join("x")).spawn().unwrap();
        let found = processes_of(folder.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
        assert!(processes_of(folder.path()).is_empty());
    }
}
