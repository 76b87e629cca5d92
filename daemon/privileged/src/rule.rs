//! Device rule: only processes in cgroups of slices can open the node's GPUs.
//!
//! The BPF program is attached to the root cgroup and outlives this process with its map of cgroups: without
//! the daemon, running slices keep their access and no other process gains any. A later daemon finds it by
//! name.
//!
//! A process that attaches to or enters a slice is moved into a *leaf*: a cgroup of the slice below the
//! process's former one, so that all limits stay in force. Cgroups with other processes are never listed, and
//! leaves belong to root, so no other user can move a process into one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{geteuid, getppid};

use crate::bounds::Bounds;
use crate::bpf::{self, Map};
use crate::evidence::{Subject, majors, pid_of};
use crate::leaves;
use crate::protocol::{Denied, Refusal};
use crate::sys;

/// Mount points of the cgroup v2 hierarchy, alone or beside version 1.
const PLACES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Inode of the root cgroup; the root of a cgroup namespace has another.
const ROOT: u64 = 1;
/// NVIDIA's fixed device major; its others are dynamic.
const NVIDIA: u32 = 195;
/// Maximum number of listed cgroups.
const MOST_CGROUPS: u32 = 1 << 16;
const MOST_MAJORS: u32 = 64;
/// Generation of the daemon's own leaf; those of slices begin at 1.
const DAEMON: u64 = 0;
/// Prefix of the names of programs and leaves.
const PREFIX: &str = "tranche_";
const DIGITS: usize = 7;

/// Tests if a cgroup with this name is a leaf.
pub fn is_leaf(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.'));
    rest.is_some_and(|(tag, generation)| {
        tag.len() == DIGITS
            && tag.bytes().all(|digit| digit.is_ascii_hexdigit())
            && generation.parse::<u64>().is_ok()
    })
}

/// Detaches the rule of the daemon with this runtime directory, if any.
/// Every process can then open GPUs again.
///
/// # Errors
/// If the kernel fails.
pub fn open_gpus(runtime: &Path) -> io::Result<()> {
    let Ok(root) = Hierarchy::find() else { return Ok(()) };
    for (_, program) in bpf::attached(root.as_fd(), &name(runtime))? {
        bpf::detach(root.as_fd(), program.as_fd())?;
    }
    Ok(())
}

/// Moves this process into the daemon's leaf, and lists the leaf in the rule of an earlier daemon.
/// This process can then open GPUs before its own rule is loaded. Where cgroups are recreated at each start, as
/// for systemd units, the earlier rule does not list the new leaf.
///
/// # Errors
/// If the kernel fails. Succeeds without an earlier rule.
pub fn join_standing_rule(runtime: &Path) -> io::Result<()> {
    let Ok(root) = Hierarchy::find() else { return Ok(()) };
    let name = name(runtime);
    let standing = bpf::attached(root.as_fd(), &name)?;
    if standing.is_empty() {
        return Ok(());
    }
    let this = sys::pidfd_open(std::process::id())?;
    let hierarchy = Hierarchy::open().map_err(io::Error::other)?;
    let leaf = hierarchy.leaf_for(this.as_fd(), &name, DAEMON).map_err(io::Error::other)?;
    let leaf = hierarchy.settle(this.as_fd(), leaf).map_err(io::Error::other)?;
    let id = fs::metadata(hierarchy.path(&leaf))?.ino();
    let enter = |(_, program): &(u32, OwnedFd)| {
        bpf::table_of(program, size_of::<u64>())?.set(&id.to_ne_bytes(), &DAEMON.to_ne_bytes())
    };
    standing.iter().try_for_each(enter)
}

/// Name of a daemon's program, of at most 15 characters, unique for its runtime directory.
fn name(runtime: &Path) -> String {
    let hash = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193); // FNV-1a
    let tag = runtime.as_os_str().as_bytes().iter().fold(0x811c_9dc5, hash);
    format!("{PREFIX}{:0DIGITS$x}", tag >> 4)
}

/// Device rule of one daemon.
pub(crate) struct Rule {
    name: String,
    hierarchy: Hierarchy,
    program: OwnedFd,
    majors: Map,
    cgroups: Map,
    denied: BTreeSet<u32>,
    simulated_major: Option<u32>,
    leaves: Vec<Leaf>,
    /// Additional cgroups that may open GPUs, with their ids while they exist.
    besides: Vec<(PathBuf, Option<u64>)>,
}

/// A leaf with its slice, or without one if processes are left after the slice's end.
struct Leaf {
    id: u64,
    generation: Option<u64>,
    path: PathBuf,
}

impl Rule {
    /// Loads the program, and moves the daemon into a leaf. Denies nothing yet.
    pub(crate) fn prepare(bounds: &Bounds, besides: &[PathBuf]) -> Result<Self, Denied> {
        let hierarchy = Hierarchy::open()?;
        let majors = Map::create(size_of::<u32>(), 1, MOST_MAJORS);
        let majors = majors.map_err(logged("make a table for the device rule"))?;
        let cgroups = Map::create(size_of::<u64>(), size_of::<u64>(), MOST_CGROUPS)
            .map_err(logged("make a table for the device rule"))?;
        let name = name(&bounds.runtime);
        let program = bpf::device_program(majors.number(), cgroups.number());
        let program = bpf::load(&program, &name).map_err(logged("load the program of the device rule"))?;
        let mut rule = Self {
            name,
            hierarchy,
            program,
            majors,
            cgroups,
            denied: BTreeSet::new(),
            simulated_major: bounds.simulated_major,
            leaves: Vec::new(),
            besides: besides.iter().map(|path| (path.clone(), None)).collect(),
        };
        rule.refresh()?;
        for pid in [getppid().as_raw().cast_unsigned(), std::process::id()] {
            rule.admit(sys::pidfd_open(pid)?.as_fd(), DAEMON)?;
        }
        Ok(rule)
    }

    /// Enforces the rule, and removes that of an earlier daemon.
    pub(crate) fn enforce(&mut self) -> Result<(), Denied> {
        let root = self.hierarchy.root()?;
        let own = bpf::id_of(&self.program)?;
        let there = bpf::attached(root.as_fd(), &self.name).map_err(logged("list device programs"))?;
        if there.iter().all(|(id, _)| *id != own) {
            bpf::attach(root.as_fd(), self.program.as_fd())
                .map_err(logged("attach the program of the device rule"))?;
        }
        for (_, old) in there.iter().filter(|(id, _)| *id != own) {
            bpf::detach(root.as_fd(), old.as_fd()).map_err(logged("detach the device rule before"))?;
        }
        self.reclaim();
        Ok(())
    }

    /// Removes empty leaves of earlier daemons with this runtime directory.
    ///
    /// Those with processes are removed with the next slice that ends, unless processes of a slice are admitted there.
    fn reclaim(&mut self) {
        for path in leaves::below(&self.hierarchy.path(Path::new("")), &self.name) {
            let Ok(cgroup) = fs::metadata(self.hierarchy.path(&path)) else { continue };
            let id = cgroup.ino();
            if cgroup.uid() == geteuid().as_raw() && self.leaves.iter().all(|leaf| leaf.id != id) {
                self.leaves.push(Leaf { id, generation: None, path });
            }
        }
        self.tidy(DAEMON);
    }

    /// Updates NVIDIA's majors, and the ids of the additional cgroups.
    /// The driver may have been loaded meanwhile.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
        let known = majors(&devices).into_iter().filter_map(|major| u32::try_from(major).ok());
        let now: BTreeSet<u32> = known.chain([NVIDIA]).chain(self.simulated_major).collect();
        for major in now.difference(&self.denied) {
            self.majors.set(&major.to_ne_bytes(), &[1])?;
        }
        for major in self.denied.difference(&now) {
            self.majors.remove(&major.to_ne_bytes())?;
        }
        self.denied = now;
        for (path, known) in &mut self.besides {
            let id = fs::metadata(self.hierarchy.path(path)).ok().map(|cgroup| cgroup.ino());
            if id == *known {
                continue;
            }
            if let Some(gone) = known.take() {
                self.cgroups.remove(&gone.to_ne_bytes())?;
            }
            if let Some(id) = id {
                self.cgroups.set(&id.to_ne_bytes(), &DAEMON.to_ne_bytes())?;
            }
            *known = id;
        }
        Ok(())
    }

    /// Moves a process into its slice's leaf below its cgroup, and permits that leaf to open GPUs.
    /// A process that is in such a leaf stays there.
    pub(crate) fn admit(&mut self, process: BorrowedFd<'_>, generation: u64) -> Result<(), Denied> {
        let leaf = self.hierarchy.leaf_for(process, &self.name, generation)?;
        if let Place::ToMake(_) = leaf {
            self.tidy(generation);
        }
        let leaf = self.hierarchy.settle(process, leaf)?;
        Ok(self.allow(leaf, generation)?)
    }

    fn allow(&mut self, path: PathBuf, generation: u64) -> io::Result<()> {
        let id = fs::metadata(self.hierarchy.path(&path))?.ino();
        if self.leaves.iter().any(|leaf| leaf.id == id && leaf.generation == Some(generation)) {
            return Ok(());
        }
        self.cgroups.set(&id.to_ne_bytes(), &generation.to_ne_bytes())?;
        self.leaves.retain(|leaf| leaf.id != id);
        self.leaves.push(Leaf { id, generation: Some(generation), path });
        Ok(())
    }

    /// Revokes the permission of all leaves of a slice, and removes the empty ones.
    pub(crate) fn dismiss(&mut self, generation: u64) -> io::Result<()> {
        let mut dismissed = Ok(());
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.generation == Some(generation)) {
            match self.cgroups.remove(&leaf.id.to_ne_bytes()) {
                Ok(_) => leaf.generation = None,
                // The remaining leaves are revoked all the same.
                Err(error) => dismissed = Err(error),
            }
        }
        self.tidy(generation);
        dismissed
    }

    /// Removes empty leaves of this slice and of slices that have ended.
    fn tidy(&mut self, generation: u64) {
        let Self { leaves, hierarchy, cgroups, .. } = self;
        leaves.retain(|leaf| {
            let is_due = leaf.generation.is_none_or(|of| of == generation);
            let removed = is_due.then(|| fs::remove_dir(hierarchy.path(&leaf.path)));
            let is_gone = removed.is_some_and(|removed| match removed {
                Err(error) => error.kind() == io::ErrorKind::NotFound,
                Ok(()) => true,
            });
            // Ids are never reused, so an entry that could not be removed permits nothing.
            !(is_gone && cgroups.remove(&leaf.id.to_ne_bytes()).is_ok())
        });
    }
}

/// Leaf of a process.
enum Place {
    /// The process is in it.
    Entered(PathBuf),
    /// The process has to be moved into it.
    ToMake(PathBuf),
}

/// The cgroup v2 hierarchy through a writable mount of this process; that of the unit is read-only.
struct Hierarchy(OwnedFd);

impl Hierarchy {
    fn find() -> io::Result<File> {
        let is_root = |path: &&&str| {
            statfs(**path).is_ok_and(|system| system.filesystem_type() == CGROUP2_SUPER_MAGIC)
                && fs::metadata(path).is_ok_and(|root| root.ino() == ROOT)
        };
        PLACES.iter().find(is_root).ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(File::open)
    }

    fn open() -> Result<Self, Denied> {
        let root = Self::find().map_err(|_| Denied::Refused(Refusal::NoHierarchy))?;
        let tree = sys::detach_writable(root.as_fd());
        Ok(Self(tree.map_err(logged("mount the hierarchy of cgroups"))?))
    }

    fn root(&self) -> io::Result<File> {
        File::open(self.path(Path::new("")))
    }

    fn path(&self, below: &Path) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join("").join(below)
    }

    fn is_roots(&self, cgroup: &Path) -> bool {
        fs::metadata(self.path(cgroup)).is_ok_and(|cgroup| cgroup.uid() == geteuid().as_raw())
    }

    /// The leaf of this generation for a process.
    fn leaf_for(&self, process: BorrowedFd<'_>, name: &str, generation: u64) -> Result<Place, Denied> {
        let subject = Subject::of(process).map_err(Denied::Refused)?;
        let cgroup = cgroup_of(&subject)?;
        let name = format!("{name}.{generation}");
        if cgroup.file_name() == Some(OsStr::new(&name)) && self.is_roots(&cgroup) {
            return Ok(Place::Entered(cgroup));
        }
        // Not below a cgroup that a user may change, since that user could move other processes in.
        let above = cgroup.ancestors().find(|above| self.is_roots(above));
        Ok(Place::ToMake(above.ok_or(Denied::Refused(Refusal::NoHierarchy))?.join(name)))
    }

    /// Moves a process into its leaf, unless it is there.
    fn settle(&self, process: BorrowedFd<'_>, leaf: Place) -> Result<PathBuf, Denied> {
        let leaf = match leaf {
            Place::Entered(leaf) => return Ok(leaf),
            Place::ToMake(leaf) => leaf,
        };
        self.make(&leaf).map_err(logged("make a cgroup for a slice"))?;
        let pid = pid_of(process).ok_or(Denied::Refused(Refusal::NotAProcess))?;
        let moved = fs::write(self.path(&leaf.join("cgroup.procs")), pid.to_string());
        moved.map_err(logged("move a process into the cgroup of its slice")).inspect_err(|_| {
            // Fails where other processes of the slice are in it.
            let _ = fs::remove_dir(self.path(&leaf));
        })?;
        // The pid belonged to the process throughout, so no other process was moved.
        pid_of(process).filter(|now| *now == pid).ok_or(Denied::Refused(Refusal::NotAProcess))?;
        Ok(leaf)
    }

    /// Creates a leaf. An existing one was made by an earlier helper: it belongs to root, in a cgroup of
    /// root.
    fn make(&self, leaf: &Path) -> io::Result<()> {
        if leaf.components().count() == 1 {
            // Without a cgroup manager processes are in the root cgroup, whose mode does not permit root to
            // create cgroups without CAP_DAC_OVERRIDE.
            fs::set_permissions(self.path(Path::new("")), Permissions::from_mode(0o755))?;
        }
        match fs::create_dir(self.path(leaf)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.is_roots(leaf) => Ok(()),
            made => made,
        }
    }
}

/// Cgroup path of a process, from the kernel.
fn cgroup_of(subject: &Subject) -> Result<PathBuf, Denied> {
    let text = fs::read(subject.path("cgroup"))?;
    let path = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::/"));
    let path = PathBuf::from(OsStr::from_bytes(path.unwrap_or(b"..")));
    // A cgroup outside this namespace's part of the hierarchy begins with `..`.
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then_some(path).ok_or(Denied::Refused(Refusal::NoHierarchy))
}

/// Logs a failed operation; the reply contains the error number only.
fn logged(attempt: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        eprintln!("tranched: the privileged helper cannot {attempt}: {error}");
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leaf_names_are_recognised() {
        let name = name(Path::new("/run/tranche"));
        assert_eq!(name.len(), 15, "the kernel takes no longer one: {name}");
        assert!(is_leaf(&format!("{name}.0")) && is_leaf(&format!("{name}.18446744073709551615")));
        for other in [&*name, "tranche.7", "tranched.service", "tranche_xxxxxxx.7", "tranche_0123456.x", ""] {
            assert!(!is_leaf(other), "{other}");
        }
    }
}
