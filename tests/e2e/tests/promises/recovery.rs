//! Promise 6: the daemon can die. Tenants continue within their limits, and the next daemon restores all slices.

use std::time::Duration;

use e2e::{CudaError, Kind, Node, Outcome, eventually, holds_for};
use tranche_domain::units::Bytes;

use crate::HALF_V100;

#[test]
fn tenants_outlive_a_killed_daemon_within_their_caps_and_are_found_again() {
    let mut node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "idle", "-g", "0.25"]).success();
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "busy"]).ready();
    let pid = tenant.pid();
    let piece = tenant.alloc(Kind::Plain, Bytes::mib(2048)).unwrap();
    let before = node.slice("busy");

    node.kill_daemon();
    assert_eq!(tenant.info().1, HALF_V100);
    tenant.free(piece).expect("freeing needs no daemon");
    tenant.alloc(Kind::Plain, Bytes::mib(2048)).expect("credit in hand needs no daemon");
    let device = node.device();
    assert!(device.held_by(0, &[pid]) <= HALF_V100);
    holds_for("the tenant lives", Duration::from_millis(500), || match tenant.process().runs() {
        true => Ok(()),
        false => Err("it has ended".to_string()),
    });

    node.start_daemon();
    let after = node.slice("busy");
    assert_eq!((after.pids(), after.cap()), (vec![pid], before.cap()));
    assert_eq!(after.used(), before.used());
    assert_eq!(after.devices[0].gpu_uuid, before.devices[0].gpu_uuid);
    let idle = node.slice("idle");
    assert_eq!(idle.cap(), Bytes::mib(32510 / 4));
    tenant.fill();
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
    assert!(node.device().held_by(0, &[pid]) <= HALF_V100);
    node.tranche(&["slice", "resize", "busy", "-g", "0.6"]).success();
    assert!(tenant.fill() > Bytes::mib(3000), "a resize by the new daemon reaches the tenant");
    assert_eq!(tenant.end().code, Some(0));
    eventually("the slice ends with its program", || match node.smi().find("busy") {
        None => Ok(()),
        Some(slice) => Err(format!("{slice:#?}")),
    });
}

/// Kills all processes of the daemon, as `systemctl kill` does: none keeps state for the next one.
#[test]
fn slices_survive_the_death_of_daemon_and_helper() {
    let mut node = Node::simulated("v100x8");
    let mut tenants = ["one", "other"].map(|name| node.tenant(&["-g", "0.5", "--name", name]).ready());
    for tenant in &mut tenants {
        tenant.alloc(Kind::Plain, Bytes::mib(2048)).unwrap();
    }
    let used = |node: &Node| ["one", "other"].map(|name| node.slice(name).used());
    for _ in 0..3 {
        let before = used(&node);
        let family = descendants(node.daemon_pid());
        assert!(!nix::unistd::geteuid().is_root() || !family.is_empty(), "root's daemon has a helper");
        node.pause_daemon();
        for pid in family {
            // It may end by itself.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        node.kill_daemon();
        node.start_daemon();
        assert_eq!(used(&node), before);
        assert_eq!(node.smi().notes, Vec::<String>::new());
        for tenant in &mut tenants {
            tenant.alloc(Kind::Plain, Bytes::mib(1024)).expect("the next daemon grants more");
        }
    }
    let pids = tenants.each_mut().map(|tenant| tenant.pid());
    for tenant in &mut tenants {
        tenant.fill();
        assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
    }
    for pid in pids {
        assert!(node.device().held_by(0, &[pid]) <= HALF_V100);
    }
}

/// Processes that a process has started, with all their descendants.
fn descendants(pid: u32) -> Vec<nix::unistd::Pid> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents = all.filter_map(|entry| {
        let child: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((child, parent))
    });
    let parents: Vec<(i32, u32)> = parents.collect();
    let mut family = Vec::new();
    let mut ancestors = vec![pid];
    while let Some(ancestor) = ancestors.pop() {
        for (child, _) in parents.iter().filter(|(_, parent)| *parent == ancestor) {
            family.push(nix::unistd::Pid::from_raw(*child));
            ancestors.push(child.unsigned_abs());
        }
    }
    family
}

#[test]
fn without_a_daemon_memory_is_refused_rather_than_given_away() {
    let mut node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "pair", "-g", "0.5"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "pair"]).ready());
    tenants[0].alloc(Kind::Plain, Bytes::mib(4096)).unwrap();
    node.kill_daemon();
    let pids = tenants.each_mut().map(|tenant| tenant.pid());
    for tenant in &mut tenants {
        // Each refusal may wait some seconds for the daemon, so that there are few.
        for _ in 0..2 {
            let _ = tenant.alloc(Kind::Plain, Bytes::mib(12 * 1024));
        }
        let held = node.device().held_by(0, &pids);
        assert!(held <= HALF_V100, "{held}");
    }
    node.start_daemon();
    for tenant in &mut tenants {
        tenant.fill();
    }
    let held = node.device().held_by(0, &pids);
    assert!(held <= HALF_V100, "{held}");
    assert!(held > Bytes::mib(16000), "all of the slice can be used again: {held}");
}

#[test]
fn a_process_that_died_while_the_daemon_was_away_is_cleared_up() {
    let mut node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "pair", "-g", "0.5"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "pair"]).ready());
    tenants[0].alloc(Kind::Plain, Bytes::mib(8192)).unwrap();
    node.kill_daemon();
    tenants[0].kill();
    node.start_daemon();
    let pid = tenants[1].pid();
    eventually("only the living process is left", || match node.slice("pair").pids() {
        pids if pids == [pid] => Ok(()),
        pids => Err(format!("{pids:?}")),
    });
    tenants[1].alloc(Kind::Plain, Bytes::mib(12 * 1024)).expect("the dead process's memory is free");
}

#[test]
fn new_programs_join_a_slice_that_is_older_than_the_daemon() {
    let mut node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "lasting", "-g", "0.5"]).success();
    let mut old = node.tenant(&["--slice", "lasting"]).ready();
    old.alloc(Kind::Plain, Bytes::mib(4096)).unwrap();
    let stopped: Outcome = node.stop_daemon();
    assert_eq!(stopped.code, Some(0), "an orderly end\n{stopped}");
    assert!(old.process().runs(), "stopping the daemon kills no process");
    node.start_daemon();
    let mut new = node.tenant(&["--slice", "lasting"]).ready();
    new.fill();
    let pids = [old.pid(), new.pid()];
    assert!(node.device().held_by(0, &pids) <= HALF_V100);
    assert_eq!(node.slice("lasting").pids().len(), 2);
}

#[test]
fn processes_that_knock_while_the_daemon_comes_back_keep_what_they_hold() {
    let mut node = Node::simulated("v100x8");
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut pairs = names.map(|name| {
        node.tranche(&["slice", "create", name, "-g", "0.5"]).success();
        [0, 1].map(|_| node.tenant(&["--slice", name]).ready())
    });
    for [rich, poor] in &mut pairs {
        rich.alloc(Kind::Plain, Bytes::mib(4096)).unwrap();
        poor.alloc(Kind::Plain, Bytes::mib(512)).unwrap();
    }
    node.kill_daemon();
    // None of them has credit for this, so that they repeat their requests until a daemon answers.
    for [rich, poor] in &mut pairs {
        rich.say(&format!("alloc plain {}", 11u64 << 30));
        poor.say(&format!("alloc plain {}", 11u64 << 30));
    }
    node.start_daemon();
    for pair in &mut pairs {
        let answers = pair.each_mut().map(|tenant| tenant.hear().is_ok());
        assert!(answers != [true, true], "11 GiB were given twice");
        for tenant in pair.iter_mut() {
            tenant.fill();
        }
    }
    let (device, snapshot) = (node.device(), node.smi());
    for (name, pair) in names.iter().zip(&mut pairs) {
        let slice = snapshot.slice(name);
        let mut pids = pair.each_mut().map(|tenant| tenant.pid());
        let held = device.held_by(slice.devices[0].gpu_index as usize, &pids);
        assert!(held <= slice.cap(), "{name} holds {held} of {}", slice.cap());
        assert!(held <= slice.used(), "{name} holds {held} and is charged {}", slice.used());
        pids.sort_unstable();
        assert_eq!(slice.pids(), pids);
    }
}

#[test]
fn a_second_daemon_on_the_same_directory_is_refused() {
    let node = Node::simulated("v100x8");
    let mut command = node.command(node.stage().daemon());
    command.args(["--runtime-dir".as_ref(), node.dir().join("run").as_os_str()]);
    command.args(["--state-dir".as_ref(), node.state_dir().as_os_str()]);
    let outcome = node.run(&mut command);
    assert!(outcome.code.is_some_and(|code| code != 0), "{outcome}");
    assert_eq!(node.smi().gpus.len(), 8, "the first one continues");
}
