//! Limits of a member on the host, by a cgroup of its own below one that was delegated.
//!
//! The job runner is in the member's cgroup until it has started the command, and beside it from then on: a member that
//! exceeds its memory ends as a whole, and the runner stays to record the reason. The device rule of `only_slices` thus
//! finds the runner where the command will be. All files here belong to root, or to the user whose daemon it is; a job
//! runner that becomes its user opens the one that it needs before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tranche_domain::jobs::HostLimits;
use tranche_domain::units::Bytes;

/// Mount point of the hierarchy.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// Period of the processors' limit, in microseconds; the kernel's default.
const PERIOD_US: u64 = 100_000;

/// Reason for which a member cannot be limited.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum NoLimits {
    #[error(
        "cannot limit processors or memory of a job here: {0} has no cgroups of version 2 with the controllers cpu and \
         memory; leave --cpus and --mem out, or boot the node with systemd.unified_cgroup_hierarchy=1"
    )]
    Unsupported(PathBuf),
    #[error(
        "cannot limit processors or memory of a job here: this daemon has no cgroup that it may divide; leave --cpus and \
         --mem out, or run it as a service with Delegate=yes and DelegateSubgroup=daemon"
    )]
    NotDelegated,
    #[error(
        "cannot limit processors or memory of a job of root's here: root's daemon does so by its job launcher; leave --cpus \
         and --mem out, or enable it with `systemctl enable --now tranche-attest.socket tranche-job.socket`"
    )]
    NoLauncher,
    #[error(
        "cannot limit its processors or memory: {action} {path}: {cause}; tranche-job@.service has to have Delegate=cpu memory"
    )]
    File { action: &'static str, path: PathBuf, cause: io::Error },
}

/// Checks that the kernel can limit processors and memory below this mount point.
///
/// # Errors
/// If there is another version of cgroups, or a controller is missing.
pub fn check_controllers(root: &Path) -> Result<(), NoLimits> {
    let known = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let has = |name: &str| known.split_ascii_whitespace().any(|known| known == name);
    if has("cpu") && has("memory") { Ok(()) } else { Err(NoLimits::Unsupported(root.into())) }
}

/// A delegated cgroup, and the one below it where this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    base: PathBuf,
    home: PathBuf,
}

impl Delegated {
    /// The cgroup of this process's unit, which only this process is in.
    ///
    /// # Errors
    /// If the hierarchy has no such cgroup, or this process cannot move below it.
    pub fn of_unit(root: &Path, own: &str) -> Result<Self, NoLimits> {
        check_controllers(root)?;
        let base = path_of(root, own)?;
        let home = base.join("runner");
        make(&home)?;
        put(&home.join("cgroup.procs"), "0")?;
        Ok(Self { base, home })
    }

    /// The cgroup delegated to this user's daemon, which is in one below it with its job runners.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_service(root: &Path, own: &str, uid: u32) -> Result<Self, NoLimits> {
        check_controllers(root)?;
        if uid == 0 {
            return Err(NoLimits::NoLauncher);
        }
        let home = path_of(root, own)?;
        let base = home.parent().filter(|base| base.starts_with(root)).ok_or(NoLimits::NotDelegated)?;
        let is_own = |path: &Path| fs::metadata(path).is_ok_and(|file| file.uid() == uid);
        let files = ["", "cgroup.procs", "cgroup.subtree_control"].map(|name| base.join(name));
        let is_empty = fs::read_to_string(base.join("cgroup.procs")).is_ok_and(|pids| pids.trim().is_empty());
        match is_empty && files.iter().all(|path| is_own(path)) {
            true => Ok(Self { base: base.into(), home }),
            false => Err(NoLimits::NotDelegated),
        }
    }

    /// Creates the cgroup of a member, and moves this process into it.
    ///
    /// # Errors
    /// If a limit cannot be set, or this process cannot be moved.
    pub fn member(&self, name: &str, limits: HostLimits) -> Result<MemberCgroup, NoLimits> {
        put(&self.base.join("cgroup.subtree_control"), &controllers(limits))?;
        let folder = self.base.join(name);
        make(&folder)?;
        for (file, text) in settings(limits) {
            match put(&folder.join(file), &text) {
                // A kernel that does not account swap limits memory alone.
                Err(NoLimits::File { cause, .. })
                    if file == SWAP && cause.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        let outside = open(&self.home.join("cgroup.procs"))?;
        let kills = kills(&folder);
        put(&folder.join("cgroup.procs"), "0")?;
        Ok(MemberCgroup { outside, folder, memory: limits.memory, kills })
    }
}

/// The cgroup of a member, with the file by which this process leaves it as whatever user it is.
#[derive(Debug)]
pub struct MemberCgroup {
    outside: File,
    folder: PathBuf,
    memory: Option<Bytes>,
    /// Number of processes that the kernel killed here before.
    kills: u64,
}

impl MemberCgroup {
    /// Moves this process out; what it has started stays.
    ///
    /// # Errors
    /// If the kernel does not let it out.
    pub fn leave(&self) -> Result<(), NoLimits> {
        let path = || self.folder.clone();
        let failed = |cause| NoLimits::File { action: "cannot leave", path: path(), cause };
        (&self.outside).write_all(b"0").map_err(failed)
    }

    /// The limit of memory, if the kernel ended processes here because of it.
    pub fn exceeded(&self) -> Option<Bytes> {
        self.memory.filter(|_| kills(&self.folder) > self.kills)
    }
}

impl Drop for MemberCgroup {
    /// Removes an empty cgroup of the own user; systemd removes those of its units.
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// File for the limit of swap.
const SWAP: &str = "memory.swap.max";

/// Controllers that these limits need, as they are enabled.
fn controllers(limits: HostLimits) -> String {
    let names = [limits.cpus.map(|_| "+cpu"), limits.memory.map(|_| "+memory")];
    names.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Files of a member's cgroup with their contents.
fn settings(limits: HostLimits) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    if let Some(cpus) = limits.cpus {
        let quota_us = u64::from(cpus.milli()) * PERIOD_US / 1000;
        settings.push(("cpu.max", format!("{quota_us} {PERIOD_US}")));
    }
    if let Some(memory) = limits.memory {
        settings.push(("memory.max", memory.get().to_string()));
        settings.push((SWAP, "0".into()));
        settings.push(("memory.oom.group", "1".into()));
    }
    settings
}

/// Path of a process's cgroup, from its /proc/PID/cgroup.
fn path_of(root: &Path, own: &str) -> Result<PathBuf, NoLimits> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let path = path.filter(|path| !path.is_empty() && path.split('/').all(|part| part != ".."));
    path.map(|path| root.join(path)).ok_or(NoLimits::NotDelegated)
}

/// Cgroup of this process, as the kernel describes it.
pub fn own_cgroup() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Number of processes that the kernel killed in a cgroup for want of memory.
fn kills(folder: &Path) -> u64 {
    let events = fs::read_to_string(folder.join("memory.events")).unwrap_or_default();
    let count = events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

fn make(folder: &Path) -> Result<(), NoLimits> {
    match fs::create_dir(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            Err(NoLimits::File { action: "cannot make", path: folder.into(), cause })
        }
        _ => Ok(()),
    }
}

fn open(path: &Path) -> Result<File, NoLimits> {
    let opened = OpenOptions::new().write(true).open(path);
    opened.map_err(|cause| NoLimits::File { action: "cannot open", path: path.into(), cause })
}

fn put(path: &Path, text: &str) -> Result<(), NoLimits> {
    let failed = |cause| NoLimits::File { action: "cannot write", path: path.into(), cause };
    open(path)?.write_all(text.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the files of a cgroup.
    fn cgroup(folder: &Path) -> &Path {
        fs::create_dir_all(folder).unwrap();
        for file in
            ["cgroup.procs", "cgroup.subtree_control", "cpu.max", "memory.max", SWAP, "memory.oom.group"]
        {
            fs::write(folder.join(file), "").unwrap();
        }
        folder
    }

    fn limits(cpus: Option<&str>, mib: Option<u64>) -> HostLimits {
        HostLimits { cpus: cpus.map(|cpus| cpus.parse().unwrap()), memory: mib.map(Bytes::mib) }
    }

    fn hierarchy(controllers: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), controllers).unwrap();
        root
    }

    fn read(folder: &Path, file: &str) -> String {
        fs::read_to_string(folder.join(file)).unwrap()
    }

    #[test]
    fn limits_are_set_before_the_program_starts_inside() {
        let root = hierarchy("cpuset cpu io memory pids\n");
        let unit = root.path().join("system.slice/tranche-job@1.service");
        for folder in [unit.clone(), unit.join("runner"), unit.join("member")] {
            cgroup(&folder);
        }
        let delegated = Delegated::of_unit(root.path(), "0::/system.slice/tranche-job@1.service\n").unwrap();
        assert_eq!(read(&unit, "runner/cgroup.procs"), "0", "this process is out of the member's way");
        let member = delegated.member("member", limits(Some("2.5"), Some(8192))).unwrap();
        assert_eq!(read(&unit, "cgroup.subtree_control"), "+cpu +memory");
        let folder = unit.join("member");
        assert_eq!(read(&folder, "cpu.max"), "250000 100000");
        assert_eq!(read(&folder, "memory.max"), (8u64 << 30).to_string());
        assert_eq!((read(&folder, SWAP), read(&folder, "memory.oom.group")), ("0".into(), "1".into()));
        assert_eq!(read(&folder, "cgroup.procs"), "0", "what starts is inside from its beginning");
        fs::write(unit.join("runner/cgroup.procs"), "").unwrap();
        member.leave().unwrap();
        assert_eq!(read(&unit, "runner/cgroup.procs"), "0");
        assert_eq!(member.exceeded(), None);
        fs::write(folder.join("memory.events"), "low 0\noom 2\noom_kill 1\noom_group_kill 1\n").unwrap();
        assert_eq!(member.exceeded(), Some(Bytes::mib(8192)));
    }

    #[test]
    fn only_what_is_limited_is_written() {
        assert_eq!(settings(limits(Some("0.01"), None)), [("cpu.max", "1000 100000".into())]);
        assert_eq!(settings(limits(None, Some(1))).len(), 3);
        assert_eq!(
            (controllers(limits(None, Some(1))), controllers(limits(None, None))),
            ("+memory".into(), "".into())
        );
    }

    #[test]
    fn other_hierarchies_are_refused() {
        for controllers in ["", "hugetlb\n", "cpu io\n", "memory cpuset\n"] {
            let root = hierarchy(controllers);
            let refused = Delegated::of_unit(root.path(), "0::/a\n").unwrap_err().to_string();
            assert!(refused.contains("version 2"), "{controllers}: {refused}");
        }
        let root = hierarchy("cpu memory\n");
        for own in ["0::/\n", "1:cpu:/a\n", "0::/../a\n", ""] {
            assert!(matches!(Delegated::of_unit(root.path(), own), Err(NoLimits::NotDelegated)), "{own}");
        }
        let refused = Delegated::of_unit(root.path(), "0::/gone\n").unwrap_err().to_string();
        assert!(refused.contains("gone/runner") && refused.contains("Delegate"), "{refused}");
    }

    #[test]
    fn service_of_a_user_has_to_own_the_empty_cgroup_above() {
        let root = hierarchy("cpu memory\n");
        let base = root.path().join("user.slice/tranched.service");
        cgroup(&base);
        cgroup(&base.join("daemon"));
        let uid = fs::metadata(&base).unwrap().uid();
        let own = "0::/user.slice/tranched.service/daemon\n";
        let of = |uid: u32| Delegated::of_service(root.path(), own, uid);
        assert!(matches!(of(uid + 1), Err(NoLimits::NotDelegated)), "it is another's");
        if uid == 0 {
            assert!(matches!(of(0), Err(NoLimits::NoLauncher)));
            return;
        }
        assert_eq!(of(uid).unwrap().base, base);
        fs::write(base.join("cgroup.procs"), "12\n").unwrap();
        assert!(matches!(of(uid), Err(NoLimits::NotDelegated)), "processes are in it");
    }
}
