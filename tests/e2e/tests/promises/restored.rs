//! Ends of restored processes, on a driver that takes its GPUs down when one ends with a live context.
//!
//! So it was seen on driver 595.71.05 (NVIDIA/cuda-checkpoint issue 53): what the daemon ends is checkpointed before.

use std::path::Path;
use std::thread;
use std::time::Duration;

use e2e::{Kind, Node, Process, Tenant, eventually};
use tranche_domain::units::Bytes;

use crate::jobs::{submit, until};

const PIECE: Bytes = Bytes::mib(64);

/// A node whose driver has the fault on GPU 0.
fn node(configuration: &str) -> Node {
    let node = Node::with_driver("v100x8", "580");
    node.configure(configuration);
    node.tranche(&["config", "reload"]).success();
    node.set_gpu(0, &["--restored-hangs", "on"]);
    node
}

/// Tenants of a slice of GPU 0, each with a piece of memory that has contents.
fn tenants<const COUNT: usize>(node: &Node, slice: &str) -> [(Tenant, u64); COUNT] {
    node.tranche(&["slice", "create", slice, "-g", "0.5", "--gpu", "0"]).success();
    [(); COUNT].map(|()| {
        let mut tenant = node.tenant(&["--slice", slice]).ready();
        let piece = tenant.alloc(Kind::Plain, PIECE).expect("there is room");
        assert_eq!(tenant.ask(&format!("write {piece} 3")), Ok(Vec::new()));
        (tenant, piece)
    })
}

#[track_caller]
fn restore(node: &Node, slice: &str) {
    node.tranche(&["slice", "park", slice]).success();
    node.tranche(&["slice", "unpark", slice]).success();
}

#[track_caller]
fn ends(tenant: &mut Tenant) {
    eventually("its process has ended", || match tenant.process().runs() {
        false => Ok(()),
        true => Err("it runs".to_string()),
    });
}

#[track_caller]
fn is_healthy(node: &Node) {
    let mut guest = node.tenant(&["-g", "0.1", "--gpu", "0"]).ready();
    guest.alloc(Kind::Plain, PIECE).expect("the GPU works");
}

#[test]
fn driver_of_these_tests_has_the_fault() {
    let node = node("");
    let [(mut tenant, _)] = tenants(&node, "doomed");
    restore(&node, "doomed");
    tenant.kill();
    eventually("its end takes the GPUs down", || match node.simgpu(&["show", "--json"], &[]).success() {
        shown if shown.contains("lost") => Ok(()),
        shown => Err(shown),
    });
}

#[test]
fn slice_that_has_returned_is_deleted_without_harm() {
    let node = node("");
    let [(mut first, _), (mut second, _)] = tenants(&node, "back");
    restore(&node, "back");
    node.tranche(&["slice", "delete", "back", "--force"]).success();
    ends(&mut first);
    ends(&mut second);
    is_healthy(&node);
}

#[test]
fn process_over_the_cap_is_killed_without_harm() {
    let node = node("over_cap = \"kill\"\nover_cap_grace_s = 1");
    let [(mut small, piece), (mut large, _)] = tenants(&node, "greedy");
    large.alloc(Kind::Plain, Bytes::mib(4096)).unwrap();
    let sum = small.number(&format!("sum {piece}")).unwrap();
    restore(&node, "greedy");
    node.tranche(&["slice", "resize", "greedy", "--memory", "2Gi"]).success();
    ends(&mut large);
    assert_eq!(small.number(&format!("sum {piece}")), Ok(sum));
    node.tranche(&["slice", "delete", "greedy", "--force"]).success();
    is_healthy(&node);
}

#[test]
fn process_that_violates_its_limits_is_killed_without_harm() {
    let mut node = node("violations = \"kill\"\nviolations_grace_s = 1");
    // This key is read at the start.
    node.kill_daemon();
    node.start_daemon();
    let [(mut tenant, _)] = tenants(&node, "hides");
    restore(&node, "hides");
    node.driver_takes(0, tenant.pid(), Bytes::mib(4096));
    ends(&mut tenant);
    is_healthy(&node);
}

#[test]
fn drained_gpu_loses_its_slices_without_harm() {
    let node = node("");
    let [(mut tenant, _)] = tenants(&node, "leaves");
    restore(&node, "leaves");
    node.tranche(&["gpu", "drain", "0", "--delete-slices", "--timeout", "1s", "--grace", "1s"]).success();
    ends(&mut tenant);
    node.tranche(&["gpu", "uncordon", "0"]).success();
    is_healthy(&node);
}

/// A node whose project `a` takes GPUs back from project `b`.
fn node_of_projects() -> Node {
    let node = node("preemption = \"park\"");
    node.tranche(&["project", "create", "a", "--quota", "8"]).success();
    node.tranche(&["project", "create", "b", "--quota", "0", "--weight", "1"]).success();
    node
}

fn workload(node: &Node, more: &str) -> String {
    let (workload, work) = (node.stage().workload(), node.dir().join("work"));
    std::fs::write(&work, "").expect("the directory can be written");
    let while_there = |path: &Path| path.display().to_string();
    let (workload, work) = (while_there(&workload), while_there(&work));
    format!("{more}exec {workload} --memory 64Mi --kernel-ns 2000000 --while-exists {work}")
}

#[test]
fn job_that_was_preempted_is_deleted_without_harm() {
    let node = node_of_projects();
    // One ends by SIGTERM, one at the end of its grace.
    for (name, more) in [("plain", ""), ("stubborn", "trap '' TERM; ")] {
        let command = workload(&node, more);
        submit(&node, &[name, "-p", "b", "-g", "8", "--grace", "4s", "--", "sh", "-c", &command]).success();
        until(&node, name, "running");
        let slice = format!("b.{name}.0");
        eventually("it uses its GPUs", || match node.slice(&slice).used().get() {
            0 => Err("nothing is used".to_string()),
            _ => Ok(()),
        });
        submit(&node, &["urgent", "-p", "a", "-g", "1", "--", "sleep", "0.3"]).success();
        until(&node, name, "parked");
        until(&node, "urgent", "succeeded");
        until(&node, name, "running");
        node.tranche(&["delete", "-p", "a", "urgent"]).success();
        node.tranche(&["delete", "-p", "b", name]).success();
        eventually("its slice is gone", || match node.smi().slices.len() {
            0 => Ok(()),
            left => Err(format!("{left} slices")),
        });
        is_healthy(&node);
    }
}

#[test]
fn processes_that_a_killed_daemon_did_not_end_continue() {
    let mut node = node("");
    let [(mut tenant, piece)] = tenants(&node, "spared");
    // its copy takes half a second, long enough to be met there.
    tenant.alloc(Kind::Plain, Bytes::mib(6 << 10)).unwrap();
    let sum = tenant.number(&format!("sum {piece}")).unwrap();
    restore(&node, "spared");
    let deletes =
        Process::start(node.command(node.stage().command()).args(["slice", "delete", "spared", "--force"]));
    eventually("it is about to be ended", || match node.simgpu(&["show", "--json"], &[]).success() {
        shown if shown.contains("\"stopped\":[]") => Err(shown),
        _ => Ok(()),
    });
    node.kill_daemon();
    drop(deletes);
    thread::sleep(Duration::from_secs(3));
    node.start_daemon();
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
    node.tranche(&["slice", "delete", "spared", "--force"]).success();
    ends(&mut tenant);
    is_healthy(&node);
}
