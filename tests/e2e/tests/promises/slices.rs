//! Placement, lists and deletion of slices.

use e2e::{Kind, Node, Process, eventually};
use tranche_domain::units::Bytes;

use crate::HALF_V100;

#[test]
fn a_fraction_goes_where_it_fits_best() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
    node.tranche(&["slice", "create", "b", "-g", "0.7"]).success();
    // 0.3 fits both GPUs in use; it goes to the one that it fills.
    node.tranche(&["slice", "create", "c", "-g", "0.3"]).success();
    let gpu = |name: &str| node.slice(name).devices[0].gpu_index;
    assert_ne!(gpu("a"), gpu("b"));
    assert_eq!(gpu("c"), gpu("b"));
    node.tranche(&["slice", "create", "d", "-g", "0.5"]).success();
    assert_eq!(gpu("d"), gpu("a"));
}

#[test]
fn a_gpu_can_be_chosen_by_index_or_uuid() {
    let node = Node::simulated("v100x8");
    let uuid = node.smi().gpus[6].uuid.to_string();
    node.tranche(&["slice", "create", "by-index", "-g", "0.1", "--gpu", "4"]).success();
    node.tranche(&["slice", "create", "by-uuid", "-g", "0.1", "--gpu", &uuid]).success();
    assert_eq!(node.slice("by-index").devices[0].gpu_index, 4);
    assert_eq!(node.slice("by-uuid").devices[0].gpu_index, 6);
}

#[test]
fn a_slice_that_was_made_is_listed_and_shown() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "kept", "-g", "0.5"]).success();
    assert!(node.tranche(&["slice", "list"]).success().contains("kept"));
    let shown = node.tranche(&["slice", "show", "kept"]).success();
    assert!(shown.contains("kept") && shown.contains("16255"), "{shown}");
    let json = node.tranche(&["slice", "show", "kept", "--json"]).success();
    let slice: e2e::SliceView = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}\n{json}"));
    assert_eq!(slice.cap(), HALF_V100);
    let list = node.tranche(&["slice", "list", "--json"]).success();
    let slices: Vec<e2e::SliceView> =
        serde_json::from_str(&list).unwrap_or_else(|error| panic!("{error}\n{list}"));
    assert_eq!(slices.len(), 1);
}

#[test]
fn slice_shows_its_enforcement_tier_and_reason() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "plain", "-g", "0.5"]).success();
    let slice = node.slice("plain");
    assert!(!slice.tier.is_empty() && !slice.tier_reason.is_empty(), "{slice:#?}");
    let technique = node.smi().compute_enforcement;
    assert!(technique.contains("GPU time"), "{technique}");
    let table = node.tranche(&["smi"]).success();
    assert!(table.contains(&technique), "{table}");
}

#[test]
fn a_deleted_slice_is_gone_and_its_place_is_free() {
    let node = Node::simulated("h200x1");
    for _ in 0..3 {
        node.tranche(&["slice", "create", "again", "-g", "0.9"]).success();
        node.tranche(&["slice", "delete", "again"]).success();
        assert!(node.smi().slices.is_empty());
        assert_eq!(node.smi().gpus[0].committed, Bytes::ZERO);
        assert!(!node.dir().join("run/slices/again").exists(), "its regions and socket are left behind");
    }
}

#[test]
fn deleting_by_force_ends_the_programs_and_frees_their_memory() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "doomed", "-g", "0.5"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "doomed"]).ready());
    let mut bystander = node.tenant(&["-g", "0.3", "--gpu", "0"]).ready();
    for tenant in &mut tenants {
        tenant.alloc(Kind::Plain, Bytes::mib(1024)).unwrap();
    }
    let pids = tenants.each_mut().map(|tenant| tenant.pid());
    let answer = node.tranche(&["slice", "delete", "doomed", "--force", "--json"]).success();
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("it is JSON");
    assert_eq!(answer["deleted"], "doomed");
    let killed = answer["killed"].as_array().expect("killed processes are a list");
    assert!(pids.iter().all(|pid| killed.iter().any(|one| one == pid)), "{answer} and {pids:?}");
    eventually("its memory is released", || match node.device().held_by(0, &pids) {
        Bytes::ZERO => Ok(()),
        held => Err(held.to_string()),
    });
    assert!(node.smi().find("doomed").is_none());
    for mut tenant in tenants {
        eventually("the runner has ended", || match tenant.process().runs() {
            false => Ok(()),
            true => Err("it runs".to_string()),
        });
    }
    bystander.alloc(Kind::Plain, Bytes::mib(1024)).expect("the neighbour still works");
}

/// A shell that prints its child's pid and its own word, and what each does at SIGTERM. Neither opens a GPU.
const FAMILY: &str =
    "sh -c 'trap \"echo child ends; exit\" TERM; while :; do sleep 0.1; done' & echo $!; wait; echo over";

/// Starts the family in a slice of this name; returns the child's pid.
fn family(node: &Node, name: &str) -> (Process, u32) {
    let mut family =
        Process::start(&mut node.run_in_slice(&["-g", "0.1", "--name", name], &["sh", "-c", FAMILY]));
    let child = family.line().expect("it prints the pid").parse().expect("a pid");
    (family, child)
}

#[track_caller]
fn is_gone(pid: u32) {
    eventually("the child has ended", || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) if !stat.contains(") Z ") => Err(stat),
        _ => Ok(()),
    });
}

#[test]
fn deleting_by_force_ends_programs_that_never_used_a_gpu_with_their_children() {
    let node = Node::simulated("v100x8");
    let (family, child) = family(&node, "family");
    let answer = node.tranche(&["slice", "delete", "family", "--force", "--json"]).success();
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("it is JSON");
    let killed = answer["killed"].as_array().expect("killed processes are a list");
    assert!(killed.iter().any(|pid| *pid == child), "{answer} without {child}");
    is_gone(child);
    drop(family);
}

#[test]
fn sigterm_before_a_deletion_reaches_children_that_never_used_a_gpu() {
    let node = Node::simulated("h200x1");
    let (mut family, child) = family(&node, "family");
    node.tranche(&["gpu", "drain", "0", "--delete-slices", "--grace", "20s"]).success();
    assert_eq!(family.line().as_deref(), Some("child ends"));
    is_gone(child);
}

#[test]
fn several_slices_are_deleted_and_one_that_is_missing_is_named() {
    let node = Node::simulated("h200x1");
    for name in ["a", "b"] {
        node.tranche(&["slice", "create", name, "-g", "0.1"]).success();
    }
    let outcome = node.tranche(&["slice", "delete", "a", "missing", "b"]);
    outcome.refused(1, &["missing"]);
    assert!(node.smi().slices.is_empty(), "{outcome}");
}

#[test]
fn refusal_for_want_of_room_names_the_holders_and_the_option_to_wait() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "holder", "-g", "0.9"]).success();
    let refused = node.tranche(&["slice", "create", "more", "-g", "0.5"]);
    refused.refused(1, &["no room", "in use by holder (0.9 of ", "--wait"]);
}

#[test]
fn compute_follows_the_share_unless_given_apart() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "apart", "-g", "0.5", "--memory", "4Gi", "--compute", "30%"]).success();
    let json = node.tranche(&["slice", "show", "apart", "--json"]).success();
    let slice: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(slice["compute"], 300);
    assert_eq!(node.slice("apart").cap(), Bytes::mib(4096));
}
