//! `over_cap = "kill"` ends the largest processes of a slice over its cap after the grace.
//!
//! No other slice loses a process.

use std::time::{Duration, Instant};

use e2e::{Kind, Node, Tenant, eventually, holds_for};
use tranche_domain::units::Bytes;

const KILL: &str = "over_cap = \"kill\"\nover_cap_grace_s = 2\n";
const GRACE: Duration = Duration::from_secs(2);

const fn gib(gib: u64) -> Bytes {
    Bytes::mib(gib << 10)
}

/// Starts a process of the slice that holds `memory`.
#[track_caller]
fn holder(node: &Node, slice: &str, memory: Bytes) -> Tenant {
    let mut tenant = node.tenant(&["--slice", slice]).ready();
    tenant.alloc(Kind::Plain, memory).expect("the slice has as much");
    tenant
}

#[track_caller]
fn make(node: &Node, slice: &str, share: &str) {
    node.tranche(&["slice", "create", slice, "-g", share, "--gpu", "0"]).success();
}

#[track_caller]
fn shrink(node: &Node, slice: &str, memory: &str) {
    node.tranche(&["slice", "resize", slice, "--memory", memory]).success();
}

/// Notes that report a killed process.
#[track_caller]
fn killings(node: &Node) -> Vec<String> {
    node.smi().notes.into_iter().filter(|note| note.contains("killed process")).collect()
}

#[test]
fn the_largest_goes_after_the_grace_then_the_next_until_the_slice_is_within() {
    let node = Node::configured("v100x8", KILL);
    make(&node, "greedy", "0.5");
    make(&node, "modest", "0.4");
    let mut neighbour = holder(&node, "modest", gib(10));
    let [mut small, mut large, mut middle] = [1, 6, 4].map(|size| holder(&node, "greedy", gib(size)));
    let pids = [small.pid(), large.pid(), middle.pid()];
    let begun = Instant::now();
    shrink(&node, "greedy", "2Gi");
    eventually("only the smallest is left", || match node.slice("greedy").pids() {
        left if left == pids[..1] => Ok(()),
        left => Err(format!("{left:?} of {pids:?}")),
    });
    assert!(begun.elapsed() >= GRACE, "they had {:?}", begun.elapsed());
    let slice = node.slice("greedy");
    assert_eq!(slice.devices[0].over_cap, Bytes::ZERO, "{slice:#?}");
    let named = killings(&node);
    assert_eq!(named.len(), 2, "{named:?}");
    for (note, pid) in named.iter().zip(&pids[1..]) {
        assert!(note.contains(&format!("process {pid} of slice greedy")), "{named:?}");
    }
    for dead in [&mut large, &mut middle] {
        eventually("its runner ends with it", || match dead.process().runs() {
            false => Ok(()),
            true => Err("it runs".to_string()),
        });
    }
    small.alloc(Kind::Plain, Bytes::mib(256)).expect("the remaining process is served");
    neighbour.alloc(Kind::Plain, gib(1)).expect("a process of another slice is not concerned");
    assert_eq!(node.slice("modest").pids(), [neighbour.pid()]);
}

#[test]
fn slice_within_its_cap_before_grace_loses_no_process() {
    let node = Node::configured("v100x8", KILL);
    make(&node, "prompt", "0.5");
    let mut idle = holder(&node, "prompt", gib(1));
    let mut tenant = node.tenant(&["--slice", "prompt"]).ready();
    let piece = tenant.alloc(Kind::Plain, gib(6)).unwrap();
    shrink(&node, "prompt", "4Gi");
    assert!(node.slice("prompt").devices[0].over_cap > Bytes::ZERO);
    tenant.free(piece).unwrap();
    holds_for("both processes live", 2 * GRACE, || {
        let (lives, named) = ([idle.process().runs(), tenant.process().runs()], killings(&node));
        if lives == [true; 2] && named.is_empty() { Ok(()) } else { Err(format!("{lives:?} {named:?}")) }
    });
    tenant.alloc(Kind::Plain, gib(1)).expect("there is room below the new cap");
}

#[test]
fn over_cap_kills_no_process_by_default() {
    let node = Node::configured("v100x8", "over_cap_grace_s = 0\n");
    make(&node, "shown", "0.5");
    let mut tenant = holder(&node, "shown", gib(6));
    shrink(&node, "shown", "2Gi");
    holds_for("it is shown and lives", Duration::from_secs(3), || {
        let over = node.slice("shown").devices[0].over_cap;
        let ok = over > Bytes::ZERO && tenant.process().runs() && killings(&node).is_empty();
        if ok { Ok(()) } else { Err(format!("over by {over}, {:?}", node.smi().notes)) }
    });
}

#[test]
fn the_next_is_killed_only_when_the_first_ones_memory_is_free() {
    let node = Node::configured("v100x8", "over_cap = \"kill\"\nover_cap_grace_s = 0\n");
    make(&node, "greedy", "0.5");
    let [mut small, mut large] = [2, 6].map(|size| holder(&node, "greedy", gib(size)));
    let pid = large.pid();
    node.set_gpu(0, &["--linger-ms", "3600000"]);
    shrink(&node, "greedy", "3Gi");
    eventually("the largest is killed", || match killings(&node) {
        named if named.iter().any(|note| note.contains(&pid.to_string())) => Ok(()),
        named => Err(format!("{named:?}")),
    });
    holds_for("the other is not needed", Duration::from_secs(3), || {
        match (small.process().runs(), killings(&node)) {
            (true, named) if named.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    node.set_gpu(0, &["--linger-ms", "0"]);
    eventually("the slice is within", || match node.slice("greedy").devices[0].over_cap {
        Bytes::ZERO => Ok(()),
        over => Err(format!("over by {over}")),
    });
    small.alloc(Kind::Plain, Bytes::mib(256)).expect("the remaining process is served");
}

#[test]
fn what_the_driver_took_by_itself_counts_towards_the_cap_too() {
    let node = Node::configured("v100x8", KILL);
    make(&node, "full", "0.5");
    let mut small = holder(&node, "full", gib(1));
    let mut large = holder(&node, "full", gib(4));
    large.fill();
    let pids = [small.pid(), large.pid()];
    node.driver_takes(0, pids[0], Bytes::mib(200));
    eventually("the largest is gone", || match node.slice("full").pids() {
        left if left == pids[..1] => Ok(()),
        left => Err(format!("{left:?} of {pids:?}")),
    });
    let named = killings(&node);
    assert!(named.len() == 1 && named[0].contains(&pids[1].to_string()), "{named:?}");
    small.alloc(Kind::Plain, gib(8)).expect("its memory is free");
}
