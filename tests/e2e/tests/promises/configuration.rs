//! The configuration of the running daemon can be shown, and reloaded without a restart.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use e2e::{Node, Tenant, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tranche_domain::units::Bytes;

fn shown(node: &Node) -> String {
    node.tranche(&["config", "show"]).success()
}

#[track_caller]
fn assert_shown(node: &Node, line: &str) {
    let shown = shown(node);
    let lines = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(lines.into_iter().any(|shown| shown.starts_with(line)), "{line:?} is not in\n{shown}");
}

#[test]
fn what_is_in_force_is_shown_with_where_it_came_from() {
    let node = Node::configured("v100x8", "over_cap = \"report\"\nslices_per_user = 3\n");
    assert_shown(&node, "slices_per_user = 3 # ");
    assert_shown(&node, "over_cap_grace_s = 60 # default");
    let shown = shown(&node);
    assert!(shown.contains("tranched.toml:2"), "{shown}");
    let settings = node.tranche(&["config", "show", "--json"]).success();
    assert!(settings.contains("\"slices_per_user\""), "{settings}");
}

#[test]
fn a_changed_file_is_read_again_and_what_needs_a_restart_is_named() {
    let node = Node::configured("v100x8", "slices_per_user = 3\n");
    let daemon = node.daemon_pid();
    node.configure("slices_per_user = 4\ncontext_reserve_mib = 700\n");
    let output = node.tranche(&["config", "reload"]).success();
    assert!(output.contains("in force from now on: slices_per_user"), "{output}");
    assert!(output.contains("needs a restart") && output.contains("context_reserve_mib"), "{output}");
    assert_shown(&node, "slices_per_user = 4 # ");
    assert_shown(&node, "context_reserve_mib = 512 # default");
    assert_eq!(node.daemon_pid(), daemon);
}

#[test]
fn a_bad_file_changes_nothing_and_every_fault_in_it_is_named() {
    let node = Node::configured("v100x8", "slices_per_user = 3\n");
    node.configure("slices_per_user = 4\nslice_per_user = 5\nover_cap = \"shout\"\n");
    let refused = node.tranche(&["config", "reload"]);
    refused.refused(1, &["tranched.toml", "slice_per_user", "did you mean", "shout"]);
    assert_shown(&node, "slices_per_user = 3 # ");
}

#[test]
fn a_hangup_has_the_file_read_again() {
    let node = Node::configured("v100x8", "slices_per_user = 3\n");
    node.configure("slices_per_user = 5\n");
    kill(Pid::from_raw(node.daemon_pid().try_into().unwrap()), Signal::SIGHUP).unwrap();
    eventually("the new value is in force", || match shown(&node) {
        shown if shown.contains("slices_per_user = 5") => Ok(()),
        shown => Err(shown),
    });
}

#[test]
fn gpus_that_are_not_named_are_left_alone() {
    let uuid = Node::simulated("v100x8").smi().gpus[2].uuid;
    let mut node = Node::configured("v100x8", &format!("gpus = [0, \"{uuid}\"]\n"));
    let index = |node: &Node| node.smi().gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>();
    assert_eq!(index(&node), [0, 2]);
    assert_shown(&node, &format!("gpus = [0,\"{uuid}\"] # "));
    node.tranche(&["slice", "create", "a", "-g", "2"]).success();
    let gpus = node.slice("a").devices.into_iter().map(|device| device.gpu_index).collect::<Vec<_>>();
    assert_eq!(gpus, [0, 2]);
    node.tranche(&["slice", "create", "b", "-g", "0.1", "--gpu", "1"])
        .refused(1, &["there is no GPU 1", "there is 0"]);
    node.tranche(&["slice", "create", "b", "-g", "1"]).refused(1, &["no room"]);
    // A program on another GPU has all of it, and is not reported.
    let mut free = node.command(Tenant::program());
    let mut free = node.tenant_of(free.env("CUDA_VISIBLE_DEVICES", "1")).ready();
    assert_eq!(free.info().1, Bytes::mib(32510));
    assert!(node.smi().gpus.iter().all(|gpu| gpu.foreign.is_empty()));
    assert!(node.events().iter().all(|event| event.kind != "foreign-process"));
    free.end().success();

    node.configure("gpus = \"all\"\n");
    let output = node.tranche(&["config", "reload"]).success();
    assert!(output.contains("needs a restart") && output.contains("gpus"), "{output}");
    assert_eq!(index(&node), [0, 2]);
    node.stop_daemon();
    node.start_daemon();
    assert_eq!(index(&node).len(), 8);
    node.slice("a");
}

#[test]
fn a_gpu_that_is_not_there_is_refused_by_the_check_and_at_the_start() {
    let node = Node::simulated("h200x1");
    node.configure("gpus = [0, 7]\n");
    let (run, state) = (node.dir().join("run2"), node.dir().join("state2"));
    let daemon = |option: Option<&str>| {
        let mut command = node.command(node.stage().daemon());
        command.args(option).arg("--config").arg(node.dir().join("tranched.toml"));
        node.run(command.arg("--runtime-dir").arg(&run).arg("--state-dir").arg(&state))
    };
    for option in [Some("--check"), None] {
        daemon(option).refused(1, &["`gpus`", "there is no GPU 7", "there is 0 (GPU-"]);
    }
    node.configure("gpus = [0]\n");
    assert!(daemon(Some("--check")).success().contains("gpus = [0]"));
}

#[test]
fn library_that_cannot_be_used_keeps_the_daemon_from_starting() {
    let mut node = Node::without_daemon("h200x1");
    let bytes = fs::read(node.stage().shim()).unwrap();
    let folder = node.dir().to_owned();
    let copy = |name: &str, mode: u32, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    };
    // One digit more or less would move what follows.
    let (own, other) = (format!("preload.so.{}\0", tranche_shm::ABI), b"preload.so.9\0");
    let at = bytes.windows(own.len()).position(|window| window == own.as_bytes()).unwrap();
    let mut another = bytes.clone();
    another[at..at + own.len()].copy_from_slice(other);
    let cases = [
        (folder.join("missing.so"), "cannot be read"),
        (folder.clone(), "no regular file"),
        (copy("open.so", 0o666, &bytes), "can be written by others"),
        (copy("script.so", 0o644, b"#!/bin/sh\n"), "no shared library"),
        (copy("other.so", 0o644, &another), "version 9 of shared memory"),
    ];
    for (path, complaint) in &cases {
        node.configure(&format!("shim = {:?}\n", path.display().to_string()));
        node.try_start_daemon().expect_err("its programs could not use the library");
        let log = node.daemon_log();
        let told = log.lines().last().unwrap_or_default();
        assert!(told.contains(complaint) && told.contains(&path.display().to_string()), "{complaint}: {log}");
    }
    let usable = copy("usable.so", 0o644, &bytes);
    node.configure(&format!("shim = {:?}\n", usable.display().to_string()));
    node.try_start_daemon().unwrap();
}
