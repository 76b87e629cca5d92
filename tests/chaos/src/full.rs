//! The disk is full, and then has room again: changes that need it are refused, all else continues.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use e2e::{Node, Outcome as Command, Required};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use stress::report::Claim;

use crate::book::{Change, Ended};
use crate::outcome::Outcome;
use crate::toll::Toll;
use crate::world::World;

/// Environment variable that is set if this process has its own mount namespace.
pub const OWN_MOUNTS: &str = "CHAOS_OWN_MOUNTS";

/// Fills the state directory, then the runtime directory.
pub(crate) fn run() -> Outcome {
    if std::env::var_os(OWN_MOUNTS).is_none() {
        return skipped(
            "file systems can only be mounted in a mount namespace of our own (`unshare --mount`), by root",
        );
    }
    let mut node = Node::without_daemon("v100x8");
    let disks = ["state", "run"].map(|name| Disk::mount(&node.dir().join(name)));
    node.start_daemon();
    let world = World::populate(node);
    // Declared after `world`, so that the disks are unmounted before the node's directory is removed, in any case.
    let disks = disks;
    let mut refused = 0;
    for disk in &disks {
        refused += blow(&world, disk);
    }
    world.close();
    let zero = |name| Claim::exactly(name, world.toll.count(name), "times", 0);
    let claims = vec![
        Claim::exactly("refused_in_words", refused, "calls", 5),
        zero("not_refused"),
        zero("half_made"),
        zero("not_ended"),
        zero("slices_wrong"),
        zero("charges_wrong"),
        zero("processes_lost"),
        zero("tenants_died"),
        zero("tenants_stuck"),
        zero("files_left"),
        zero("panics"),
    ];
    Outcome { claims, ..Outcome::default() }
}

fn skipped(why: &str) -> Outcome {
    let claims = match Required::from_environment() {
        Required::No => Vec::new(),
        Required::All => vec![Claim::exactly("could_be_tried", 0, "times", 1)],
    };
    Outcome { claims, skipped: Some(why.into()), ..Outcome::default() }
}

/// Fills one disk; returns the number of calls that were refused as they should be.
fn blow(world: &World, disk: &Disk) -> u64 {
    call(world, &["slice", "create", "ends", "--memory", "1Gi", "--gpu", "4"]).success();
    world.book().note("ends", Change::Create(1 << 30), Ended::Done);
    world.look();
    disk.fill();
    let mut refused = 0;
    refused += refuses(world, &["slice", "create", "more", "--memory", "1Gi", "--gpu", "4"]);
    nothing_half_made(world, "more");
    if disk.is_state() {
        // A resize needs no room in the runtime directory.
        refused += refuses(world, &["slice", "resize", "idle", "--memory", "123Mi"]);
    }
    world.look();
    ends(world, disk);
    // A daemon can start with a full disk, too.
    world.node_mut().kill_daemon();
    disk.fill();
    world.node_mut().start_daemon();
    world.look();
    refused += refuses(world, &["slice", "create", "more", "--memory", "1Gi", "--gpu", "4"]);
    nothing_half_made(world, "more");
    disk.empty();
    call(world, &["slice", "create", "more", "--memory", "1Gi", "--gpu", "4"]).success();
    call(world, &["slice", "resize", "more", "--memory", "2Gi"]).success();
    call(world, &["slice", "delete", "more"]).success();
    world.node_mut().kill_daemon();
    world.node_mut().start_daemon();
    world.look();
    refused
}

/// Checks that a slice is deleted on a full disk.
fn ends(world: &World, disk: &Disk) {
    let ended = call(world, &["slice", "delete", "ends"]);
    world.toll.wrong_if(ended.code != Some(0), "not_ended", || ended.to_string());
    world.book().note("ends", Change::Delete, Ended::Done);
    world.look();
    disk.fill();
}

fn call(world: &World, words: &[&str]) -> Command {
    world.node().tranche(words)
}

/// Returns 1 if a call is refused with a message that states the attempt and the reason, else 0.
fn refuses(world: &World, words: &[&str]) -> u64 {
    let outcome = call(world, words);
    let text = outcome.stderr.to_lowercase();
    let in_words = outcome.code == Some(1) && text.contains("no space left") && text.contains("cannot");
    world.toll.wrong_if(!in_words, "not_refused", || outcome.to_string());
    u64::from(in_words)
}

fn nothing_half_made(world: &World, name: &str) {
    check_nothing(&world.toll, world.node().dir(), name);
}

fn check_nothing(toll: &Toll, node: &Path, name: &str) {
    for path in ["run/slices", "run/mounts"].map(|folder| node.join(folder).join(name)) {
        toll.wrong_if(path.exists(), "half_made", || path.display().to_string());
    }
    let beside = node.join("state/.state.json.new");
    toll.wrong_if(beside.exists(), "half_made", || beside.display().to_string());
}

/// A small file system in memory.
struct Disk {
    path: PathBuf,
}

/// Room for the slices of the world and a few more: the regions of a slice take a few megabytes.
const OPTIONS: &str = "size=48m,mode=0755";

impl Disk {
    fn mount(path: &Path) -> Self {
        fs::create_dir_all(path).expect("the directory can be written");
        let mounted = mount(Some("none"), path, Some("tmpfs"), MsFlags::empty(), Some(OPTIONS));
        mounted.expect("a file system can be mounted in our own namespace");
        Self { path: path.to_owned() }
    }

    fn is_state(&self) -> bool {
        self.path.ends_with("state")
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Fills the disk to the last byte, without the reserve for the state.
    fn fill(&self) {
        let _ = fs::remove_file(self.path.join("reserve"));
        let mut file =
            File::options().append(true).create(true).open(self.ballast()).expect("it can be opened");
        for length in [1 << 20, 4096, 1] {
            let piece = vec![7; length];
            while file.write_all(&piece).map_err(|error| error.kind()) != Err(ErrorKind::StorageFull) {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).expect("the ballast is there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}
