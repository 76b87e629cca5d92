//! Properties of the machine that an ordinary user can read.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Observations of the machine, without judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// First line of the NVIDIA driver's version file.
    pub(super) driver: Option<String>,
    /// Device files of GPUs, and this user's access to each.
    pub(super) device_files: Vec<(PathBuf, Access)>,
    /// Signs of an MPS control daemon.
    pub(super) mps: Vec<String>,
    /// Entries of /etc/ld.so.preload.
    pub(super) ld_so_preload: Vec<String>,
    /// This process's pid namespace, as /proc shows it.
    pub(super) pid_namespace: Option<String>,
    /// Yama's ptrace scope, if the kernel has it.
    pub(super) ptrace_scope: Option<u32>,
    /// Hierarchy of control groups.
    pub(super) cgroups: Cgroups,
    /// The kernel's release, such as `6.8.0-41-generic`.
    pub(super) kernel: String,
}

/// Accessibility of a device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Granted,
    Refused,
}

/// Version of the control group hierarchy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cgroups {
    Unified,
    Legacy,
    #[default]
    Absent,
}

impl Machine {
    /// Reads the machine with its root file system at `root`.
    /// `mps_pipes` is the configured MPS pipe directory.
    pub(super) fn read(root: &Path, mps_pipes: Option<PathBuf>) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let lines = |path: &str| -> Vec<String> {
            text(path).unwrap_or_default().split([' ', ':', '\n', '\t']).map(Into::into).collect()
        };
        let namespace = fs::read_link(root.join("proc/self/ns/pid")).ok();
        Self {
            driver: text("proc/driver/nvidia/version").and_then(|text| text.lines().next().map(Into::into)),
            device_files: device_files(root),
            mps: mps(root, mps_pipes),
            ld_so_preload: lines("etc/ld.so.preload").into_iter().filter(|line| !line.is_empty()).collect(),
            pid_namespace: namespace.map(|link| link.display().to_string()),
            ptrace_scope: text("proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.trim().parse().ok()),
            cgroups: cgroups(root),
            kernel: text("proc/sys/kernel/osrelease").unwrap_or_default().trim().into(),
        }
    }
}

/// `/dev/nvidia0` and so on, and `/dev/nvidiactl`, without which no GPU can be used.
fn device_files(root: &Path) -> Vec<(PathBuf, Access)> {
    let is_gpu = |name: &str| {
        let rest = name.strip_prefix("nvidia");
        rest.is_some_and(|rest| rest == "ctl" || !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut files: Vec<_> = entries(&root.join("dev"))
        .filter(|(name, _)| is_gpu(name))
        .map(|(_, path)| match access(&path, AccessFlags::R_OK | AccessFlags::W_OK) {
            Ok(()) => (path, Access::Granted),
            Err(_) => (path, Access::Refused),
        })
        .collect();
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    files
}

fn mps(root: &Path, told: Option<PathBuf>) -> Vec<String> {
    let pipes = told.unwrap_or_else(|| root.join("tmp/nvidia-mps"));
    let pipe = pipes.join("control");
    let mut signs = Vec::new();
    signs.extend(pipe.exists().then(|| format!("its control pipe {}", pipe.display())));
    let processes = entries(&root.join("proc")).filter_map(|(pid, path)| {
        let command = fs::read_to_string(path.join("comm")).ok()?;
        // The kernel truncates names to 15 characters: nvidia-cuda-mps-control and -server are alike.
        command.starts_with("nvidia-cuda-mps").then(|| format!("process {pid}"))
    });
    signs.extend(processes);
    signs
}

fn cgroups(root: &Path) -> Cgroups {
    let mounted = root.join("sys/fs/cgroup");
    match mounted.join("cgroup.controllers").exists() {
        true => Cgroups::Unified,
        false if entries(&mounted).next().is_some() => Cgroups::Legacy,
        false => Cgroups::Absent,
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A root file system with these files and their contents.
    pub(in crate::doctor) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_gpu_node_is_read() {
        let root = tree(&[
            ("proc/driver/nvidia/version", "NVRM version: 550.90.07\nGCC version: 12\n"),
            ("dev/nvidia0", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
            ("proc/31/comm", "nvidia-cuda-mps\n"),
            ("tmp/nvidia-mps/control", ""),
            ("etc/ld.so.preload", "/a.so /b.so\n"),
            ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
            ("proc/sys/kernel/osrelease", "6.8.0\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu"),
        ]);
        let machine = Machine::read(root.path(), None);
        assert_eq!(machine.driver.as_deref(), Some("NVRM version: 550.90.07"));
        assert_eq!(machine.device_files.len(), 2);
        assert_eq!(machine.mps.len(), 2);
        assert_eq!(machine.mps[1], "process 31");
        assert_eq!(machine.ld_so_preload, ["/a.so", "/b.so"]);
        assert_eq!((machine.ptrace_scope, machine.cgroups), (Some(1), Cgroups::Unified));
        assert_eq!(machine.kernel, "6.8.0");
    }

    #[test]
    fn a_machine_with_nothing_is_no_error() {
        let root = tree(&[]);
        assert_eq!(Machine::read(root.path(), None), Machine::default());
    }

    #[test]
    fn mps_is_found_in_its_configured_directory() {
        let root = tree(&[("elsewhere/control", "")]);
        let machine = Machine::read(root.path(), Some(root.path().join("elsewhere")));
        assert_eq!(machine.mps.len(), 1);
    }
}
