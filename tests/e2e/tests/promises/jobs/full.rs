//! Jobs that print more than the disk holds: the state keeps its room, and logs mark missing output.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Node, eventually, skip};

use super::{submit, until};

/// A small disk, which is unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk in memory; `None`, with a skip, if that is not permitted.
    fn mount(path: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(path).expect("the test's own files and processes");
        let options = format!("size={size},mode=0700");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(path).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(Self(path.into()));
        }
        skip("only root can mount a small disk");
        None
    }

    /// Fills the disk to the last byte.
    fn fill(&self) {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(self.0.join("ballast"))
            .expect("the test's own files and processes");
        for length in [1 << 20, 4096, 1] {
            let piece = vec![7; length];
            while file.write_all(&piece).map_err(|error| error.kind()) != Err(ErrorKind::StorageFull) {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("ballast")).expect("the test's own files and processes");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A node whose state is on a disk of 64 MiB, with a project.
fn node_on_disk() -> Option<(Node, Disk)> {
    let mut node = Node::without_daemon("v100x8");
    let disk = Disk::mount(&node.state_dir(), "64m")?;
    node.start_daemon();
    node.tranche(&["project", "create", "a", "--quota", "8"]).success();
    Some((node, disk))
}

fn log_of(node: &Node) -> PathBuf {
    let jobs =
        fs::read_dir(node.state_dir().join("jobs")).expect("the test's own files and processes").flatten();
    jobs.map(|job| job.path().join("0.log")).next().expect("one job was started")
}

#[test]
fn slices_are_made_on_a_disk_that_is_full() {
    let Some((node, disk)) = node_on_disk() else { return };
    submit(&node, &["prints", "-g", "1", "--", "sh", "-c", "while :; do seq 100000; sleep 0.02; done"])
        .success();
    until(&node, "prints", "running");
    disk.fill();
    eventually("the log reports that output is not kept", || {
        let log = node.tranche(&["logs", "prints"]).success();
        if log.contains("[tranche: the disk is nearly full") {
            Ok(())
        } else {
            Err(format!("{} bytes", log.len()))
        }
    });
    for name in ["one", "two", "three"] {
        node.tranche(&["slice", "create", name, "-g", "0.1"]).success();
    }
    node.tranche(&["slice", "delete", "two"]).success();
    // The job continues meanwhile, and its log once there is room.
    until(&node, "prints", "running");
    disk.empty();
    let before = fs::metadata(log_of(&node)).expect("the test's own files and processes").len();
    eventually("the log continues", || {
        match fs::metadata(log_of(&node)).expect("the test's own files and processes").len() {
            now if now > before => Ok(()),
            now => Err(now.to_string()),
        }
    });
    node.tranche(&["delete", "prints"]).success();
}

#[test]
fn jobs_are_taken_again_once_a_full_disk_has_room() {
    let Some((node, disk)) = node_on_disk() else { return };
    // Effects of a full disk on the store must end with it.
    let long = "x".repeat(100 << 10);
    let mut refused = 0;
    let _ = fs::remove_file(node.state_dir().join("reserve"));
    disk.fill();
    for n in 0..20 {
        let name = format!("j{n}");
        let outcome = submit(&node, &[&name, "-g", "1", "--env", &format!("LONG={long}"), "--", "true"]);
        if outcome.code != Some(0) {
            assert!(outcome.stderr.to_lowercase().contains("no space left") || refused > 0, "{outcome}");
            refused += 1;
        }
    }
    assert!(refused > 0, "a store that takes all this is not on the full disk");
    disk.empty();
    submit(&node, &["after", "-g", "1", "--", "true"]).success();
    until(&node, "after", "succeeded");
}

#[test]
fn one_job_that_prints_without_end_leaves_room_for_the_state() {
    let Some((node, _disk)) = node_on_disk() else { return };
    submit(
        &node,
        &["prints", "-g", "1", "--", "sh", "-c", "yes | head -c 300000000; echo; echo printed; sleep 1000"],
    )
    .success();
    eventually("it has printed all", || {
        let tail = node.tranche(&["logs", "prints", "--tail", "1"]).success();
        if tail.contains("printed") { Ok(()) } else { Err(tail) }
    });
    let free = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(node.state_dir())
        .output()
        .expect("the test's own files and processes")
        .stdout;
    let free = String::from_utf8(free).expect("the test's own files and processes");
    let free: u64 = free.lines().last().expect("the test's own files and processes").trim().parse().unwrap();
    assert!(free >= 3 << 20, "{free} bytes are left of 64 MiB");
    eventually("the log is cut to a user's limit", || {
        let notes = node.tranche(&["smi"]).success();
        if notes.contains("their beginnings are cut") { Ok(()) } else { Err(notes) }
    });
    node.tranche(&["slice", "create", "one", "-g", "0.1"]).success();
    node.tranche(&["delete", "prints"]).success();
}
