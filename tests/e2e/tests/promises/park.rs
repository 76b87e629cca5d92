//! Slices that leave their GPU and come back, with their contents.

use e2e::{Kind, Node, Tenant, eventually};

use crate::load::Load;
use tranche_domain::units::Bytes;

/// Drivers that have the checkpoint calls.
const DRIVERS: [&str; 3] = ["570", "580", "610"];
const PIECE: Bytes = Bytes::mib(64);

/// A tenant with memory that has contents, and their checksum.
pub(crate) fn holder(node: &Node, arguments: &[&str], seed: u64) -> (Tenant, u64, u64) {
    let mut tenant = node.tenant(arguments).ready();
    let piece = tenant.alloc(Kind::Plain, PIECE).expect("there is room");
    assert_eq!(tenant.ask(&format!("write {piece} {seed}")), Ok(Vec::new()));
    let sum = tenant.number(&format!("sum {piece}")).expect("it can be read");
    (tenant, piece, sum)
}

#[test]
fn parked_slice_frees_its_part_and_returns_with_its_contents() {
    for driver in DRIVERS {
        let node = Node::with_driver("v100x8", driver);
        let (mut tenant, piece, sum) = holder(&node, &["-g", "0.6", "--gpu", "0", "--name", "night"], 7);
        let (pid, second) = (tenant.pid(), ["slice", "create", "day", "-g", "0.6", "--gpu", "0"]);
        node.tranche(&second).refused(1, &["no room"]);

        node.tranche(&["slice", "park", "night"]).success();
        assert_eq!(node.device().held_by(0, &[pid]), Bytes::ZERO, "driver {driver}");
        let table = node.tranche(&["smi"]).success();
        assert!(table.contains("parked"), "{table}");
        assert!(node.tranche(&["slice", "show", "night"]).success().contains("of host memory"));
        node.tranche(&["slice", "park", "night"]).refused(1, &["is parked"]);

        // Its part is another slice's, in full.
        node.tranche(&second).success();
        let mut other = node.tenant(&["--slice", "day"]).ready();
        assert!(other.fill() > Bytes::mib(18 * 1024), "driver {driver}");
        node.tranche(&["slice", "unpark", "night"]).refused(1, &["cannot come back", "gpu 0", "--wait"]);
        drop(other);
        node.tranche(&["slice", "delete", "day", "--force"]).success();

        node.tranche(&["slice", "unpark", "night", "--wait", "30s"]).success();
        assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum), "driver {driver}");
        assert!(node.device().held_by(0, &[pid]) > PIECE);
        node.tranche(&["slice", "unpark", "night"]).refused(1, &["is not parked"]);
        tenant.alloc(Kind::Plain, PIECE).unwrap();
    }
}

#[test]
fn call_of_a_parked_program_waits_until_it_is_back() {
    let node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.5", "--name", "waiter"], 3);
    node.tranche(&["slice", "park", "waiter"]).success();
    tenant.say(&format!("sum {piece}"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    node.tranche(&["slice", "unpark", "waiter"]).success();
    assert_eq!(tenant.hear_numbers(), Ok(vec![sum]));
}

#[test]
fn slice_of_several_processes_is_parked_whole() {
    let node = Node::with_driver("v100x8", "580");
    node.tranche(&["slice", "create", "both", "-g", "0.5"]).success();
    let mut tenants = [1, 2, 3].map(|seed| holder(&node, &["--slice", "both"], seed));
    let pids = tenants.each_mut().map(|(tenant, ..)| tenant.pid());
    for _ in 0..5 {
        node.tranche(&["slice", "park", "both"]).success();
        assert_eq!(node.device().held_by(0, &pids), Bytes::ZERO);
        node.tranche(&["slice", "unpark", "both"]).success();
        for (tenant, piece, sum) in &mut tenants {
            assert_eq!(tenant.number(&format!("sum {piece}")), Ok(*sum));
        }
    }
}

#[test]
fn requests_that_meet_wait_for_each_other() {
    let mut node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.5", "--name", "met"], 9);
    for verb in ["park", "unpark"] {
        // The daemon reserves the slice, unasked, for a moment after its start.
        node.kill_daemon();
        node.start_daemon();
        std::thread::scope(|scope| {
            let requests = [(); 4].map(|()| scope.spawn(|| node.tranche(&["slice", verb, "met"])));
            let outcomes = requests.map(|request| request.join().unwrap());
            let done = outcomes.iter().filter(|outcome| outcome.code == Some(0)).count();
            let reason = if verb == "park" { "is parked" } else { "is not parked" };
            assert!(
                outcomes.iter().all(|it| it.code == Some(0) || it.stderr.contains(reason)) && done == 1,
                "{}",
                outcomes.map(|outcome| outcome.to_string()).join("\n")
            );
        });
    }
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
}

#[test]
fn what_cannot_be_checkpointed_is_refused_with_its_reason() {
    let node = Node::with_driver("v100x8", "580");
    let (mut managed, piece, sum) = holder(&node, &["-g", "0.3", "--name", "managed"], 5);
    managed.alloc(Kind::Managed, PIECE).unwrap();
    node.tranche(&["slice", "park", "managed"]).refused(1, &["managed memory", "nothing was changed"]);
    assert_eq!(managed.number(&format!("sum {piece}")), Ok(sum));

    // A variable of a program's code, `__managed__`.
    let (mut declares, piece, sum) = holder(&node, &["-g", "0.3", "--name", "declares"], 5);
    declares.ask("managed").unwrap();
    node.tranche(&["slice", "park", "declares"]).refused(1, &["managed memory", "nothing was changed"]);
    assert_eq!(declares.number(&format!("sum {piece}")), Ok(sum));

    let (mut lender, piece, _) = holder(&node, &["-g", "0.3", "--name", "lender"], 5);
    lender.lend(piece);
    node.tranche(&["slice", "park", "lender"]).refused(1, &["cuIpcGetMemHandle"]);
}

#[test]
fn older_driver_refuses_without_a_change() {
    let node = Node::with_driver("v100x8", "550");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.5", "--name", "old"], 9);
    node.tranche(&["slice", "park", "old"]).refused(1, &["driver 570"]);
    node.tranche(&["slice", "create", "empty", "-g", "0.1"]).success();
    node.tranche(&["slice", "park", "empty"]).refused(1, &["driver 570"]);
    node.tranche(&["slice", "create", "idle", "-g", "0.1", "--park-idle", "10s"]).refused(1, &["driver 570"]);
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
    assert!(!node.tranche(&["smi"]).success().contains("parked"));
}

#[test]
fn driver_that_is_known_to_fail_refuses_with_the_reason() {
    let node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.5", "--name", "wary"], 9);
    node.configure("park_refused_drivers = [\"595\", \"580\"]\nmemory_overcommit = 2.0");
    node.tranche(&["config", "reload"]).success();
    node.tranche(&["slice", "park", "wary"])
        .refused(1, &["driver 580", "park_refused_drivers", "nothing was changed"]);
    node.tranche(&["slice", "create", "turns", "-g", "0.6", "--rotate"])
        .refused(1, &["park_refused_drivers"]);
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
    node.configure("park_refused_drivers = []");
    node.tranche(&["config", "reload"]).success();
    node.tranche(&["slice", "park", "wary"]).success();
}

#[test]
fn host_memory_has_a_budget() {
    let node = Node::with_driver("v100x8", "580");
    node.configure("park_memory_mib = 100");
    node.tranche(&["config", "reload"]).success();
    let (_tenant, ..) = holder(&node, &["-g", "0.5", "--name", "large"], 9);
    node.tranche(&["slice", "park", "large"]).refused(1, &["host memory", "100 mib", "park_memory_mib"]);
}

#[test]
fn parked_slice_outlives_the_daemon() {
    let mut node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.6", "--gpu", "0", "--name", "sleeper"], 11);
    let used = node.slice("sleeper").used();
    node.tranche(&["slice", "park", "sleeper"]).success();
    for _ in 0..2 {
        node.kill_daemon();
        node.start_daemon();
        // Its part of the GPU is still free, and its charge is not forgotten.
        node.tranche(&["slice", "create", "guest", "-g", "0.6", "--gpu", "0"]).success();
        node.tranche(&["slice", "unpark", "sleeper"]).refused(1, &["cannot come back"]);
        node.tranche(&["slice", "delete", "guest"]).success();
    }
    node.tranche(&["slice", "unpark", "sleeper"]).success();
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
    assert_eq!(node.slice("sleeper").used(), used);
}

#[test]
fn parked_slice_can_be_ended() {
    let node = Node::with_driver("v100x8", "580");
    let (mut tenant, ..) = holder(&node, &["-g", "0.5", "--name", "ended"], 1);
    node.tranche(&["slice", "park", "ended"]).success();
    node.tranche(&["slice", "delete", "ended", "--force"]).success();
    eventually("its process has ended", || match tenant.process().runs() {
        false => Ok(()),
        true => Err("it runs".to_string()),
    });
    assert!(node.smi().find("ended").is_none());
}

#[test]
fn drained_gpu_is_left_by_parking() {
    let node = Node::with_driver("v100x8", "580");
    let (mut tenant, piece, sum) = holder(&node, &["-g", "0.5", "--gpu", "0", "--name", "evacuee"], 13);
    let (mut managed, ..) = holder(&node, &["-g", "0.3", "--gpu", "0", "--name", "fixed"], 14);
    managed.alloc(Kind::Managed, PIECE).unwrap();
    let drain = ["gpu", "drain", "0", "--park", "--delete-slices", "--grace", "0s"];
    let said = node.tranche(&drain).success();
    assert!(said.contains("parked evacuee") && said.contains("nothing is left"), "{said}");
    assert!(node.smi().find("fixed").is_none(), "what cannot be parked ends");
    assert_eq!(node.device().held_by(0, &[tenant.pid()]), Bytes::ZERO);
    node.tranche(&["slice", "unpark", "evacuee"]).refused(1, &["cannot come back", "cordoned by"]);
    node.tranche(&["gpu", "uncordon", "0"]).success();
    node.tranche(&["slice", "unpark", "evacuee"]).success();
    assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum));
}

/// Waits until a slice is parked.
#[track_caller]
fn until_parked(node: &Node, name: &str) {
    eventually(&format!("{name} is parked"), || {
        let shown = node.tranche(&["slice", "show", name]).success();
        if shown.contains("parked since") { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn idle_slice_is_parked_and_returns_at_its_next_call() {
    for driver in DRIVERS {
        let node = Node::with_driver("v100x8", driver);
        let size = ["-g", "0.6", "--gpu", "0", "--name", "notebook", "--park-idle", "2s"];
        let (mut tenant, piece, sum) = holder(&node, &size, 21);
        for call in [format!("sum {piece}"), "alloc plain 1024".into(), "info".into()] {
            until_parked(&node, "notebook");
            assert_eq!(node.device().held_by(0, &[tenant.pid()]), Bytes::ZERO);
            // Its part is another slice's meanwhile.
            node.tranche(&["slice", "create", "guest", "-g", "0.6", "--gpu", "0"]).success();
            tenant.say(&call);
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert!(node.tranche(&["slice", "show", "notebook"]).success().contains("until its next call"));
            node.tranche(&["slice", "delete", "guest"]).success();
            let heard = tenant.hear();
            assert!(heard.is_ok(), "driver {driver}, {call}: {heard:?}");
        }
        assert_eq!(tenant.number(&format!("sum {piece}")), Ok(sum), "driver {driver}");
        // A call returns before the daemon has recorded why it could.
        eventually(&format!("driver {driver}: three returns are recorded"), || {
            let woken = node.events().into_iter().filter(|event| event.kind == "slice-unparked").count();
            if woken == 3 { Ok(()) } else { Err(format!("{woken} are")) }
        });
    }
}

#[test]
fn launch_of_an_idle_program_brings_its_slice_back() {
    let node = Node::with_driver("v100x8", "580");
    let mut load = Load::start(&node, &["-g", "0.5", "--name", "worker", "--park-idle", "2s"], &[]);
    load.tell("stop");
    for _ in 0..3 {
        until_parked(&node, "worker");
        load.tell("start");
        eventually("it computes again", || match node.tranche(&["smi"]).success() {
            table if table.contains("parked") => Err(table),
            _ => Ok(()),
        });
        load.tell("stop");
    }
}

#[test]
fn idle_slice_that_cannot_be_parked_stays() {
    let node = Node::with_driver("v100x8", "580");
    let (mut managed, piece, sum) = holder(&node, &["-g", "0.3", "--name", "fixed", "--park-idle", "2s"], 5);
    managed.alloc(Kind::Managed, PIECE).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!node.tranche(&["smi"]).success().contains("parked"));
    assert_eq!(managed.number(&format!("sum {piece}")), Ok(sum));
    node.tranche(&["slice", "create", "short", "-g", "0.1", "--park-idle", "1s"])
        .refused(2, &["2 s to 30 days"]);
}

#[test]
fn program_that_starts_in_a_parked_slice_waits_until_it_is_back() {
    let node = Node::with_driver("v100x8", "580");
    node.tranche(&["slice", "create", "shared", "-g", "0.5"]).success();
    let (mut first, piece, sum) = holder(&node, &["--slice", "shared"], 17);
    node.tranche(&["slice", "park", "shared"]).success();
    let mut second = node.tenant(&["--slice", "shared"]);
    for line in ["cuda", "context 0", "alloc plain 1048576"] {
        second.say(line);
    }
    // Longer than a request waits for a daemon.
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert_eq!(node.device().held().get(), 0);
    node.tranche(&["slice", "unpark", "shared"]).success();
    for _ in 0..3 {
        let heard = second.hear();
        assert!(heard.is_ok(), "{heard:?}");
    }
    assert_eq!(first.number(&format!("sum {piece}")), Ok(sum));
}

#[test]
fn slices_without_room_have_their_stays_in_turn() {
    let mut node = Node::with_driver("v100x8", "580");
    let create = |name| ["slice", "create", name, "-g", "0.6", "--gpu", "0", "--rotate"];
    node.tranche(&create("a")).refused(1, &["do not rotate", "memory_overcommit"]);
    node.configure("memory_overcommit = 1.8");
    node.tranche(&["config", "reload"]).success();
    let names = ["a", "b", "c"];
    for name in names {
        node.tranche(&create(name)).success();
    }
    node.tranche(&create("d")).refused(1, &["no room", "1.8 times"]);
    assert!(node.tranche(&["slice", "show", "b"]).success().contains("rotates"));

    // Each begins only once it has its first stay.
    let mut tenants = [0, 1, 2].map(|index| holder(&node, &["--slice", names[index]], index as u64 + 20));
    let pids = tenants.each_mut().map(|(tenant, ..)| tenant.pid());
    for round in 0..2 {
        for (tenant, piece, sum) in &mut tenants {
            assert_eq!(tenant.number(&format!("sum {piece}")), Ok(*sum), "round {round}");
            assert!(node.tranche(&["slice", "list"]).success().contains("away (rotates)"));
            let device = node.device();
            let there = pids.iter().filter(|pid| device.held_by(0, &[**pid]) > Bytes::ZERO);
            assert!(there.count() <= 1, "one is there at a time");
        }
        node.kill_daemon();
        node.start_daemon();
    }
    // What does not rotate has what the largest of them leaves.
    node.tranche(&["slice", "create", "fixed", "-g", "0.5", "--gpu", "0"]).refused(1, &["no room"]);
    node.tranche(&["slice", "create", "fixed", "-g", "0.4", "--gpu", "0"]).success();
}
