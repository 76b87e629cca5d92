//! Processes that start processes: each is charged by itself, and none leaves its slice.

use e2e::{CudaError, Kind, Node, Tenant, eventually};
use tranche_domain::units::Bytes;

use crate::HALF_V100;

const PIECE: Bytes = Bytes::mib(1024);

/// Starts a child of the tenant, which receives the next commands; returns its pid.
#[track_caller]
fn beget(tenant: &mut Tenant, how: &str) -> u32 {
    let answer = tenant.numbers(how).expect("a process can have children");
    tenant.speak_to_child(answer[0]);
    u32::try_from(answer[1]).expect("pids fit 32 bits")
}

#[track_caller]
fn begin(tenant: &mut Tenant) {
    tenant.init().expect("the driver begins");
    tenant.ask("context 0").expect("the device has a context");
}

#[test]
fn a_forked_child_has_an_account_of_its_own() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "family"]);
    let parent = tenant.pid();
    let child = beget(&mut tenant, "fork");
    begin(&mut tenant);
    tenant.alloc(Kind::Plain, PIECE).unwrap();
    tenant.speak_to_first();
    begin(&mut tenant);
    tenant.fill();

    let slice = node.slice("family");
    assert_eq!(slice.pids(), [parent.min(child), parent.max(child)]);
    assert!(node.device().held_by(0, &slice.pids()) <= HALF_V100);
    assert_eq!(tenant.info().0, Bytes::ZERO.max(slice.cap().saturating_sub(slice.used())));
    let of_child = slice.processes.iter().find(|process| process.pid == child).unwrap();
    assert!(of_child.used[0] >= PIECE && of_child.used[0] < PIECE.saturating_add(PIECE), "{of_child:?}");
}

#[test]
fn a_child_forked_after_the_driver_began_leaves_its_parents_account_alone() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "family"]).ready();
    let piece = tenant.alloc(Kind::Plain, PIECE).unwrap();
    let before = node.slice("family");
    let parent = tenant.pid();
    let child = beget(&mut tenant, "fork");
    // A driver does not work in such a child, and none of its attempts may change its parent's account.
    let _ = tenant.init();
    let _ = tenant.ask("context 0");
    let _ = tenant.alloc(Kind::Plain, PIECE);
    let held = node.device().held_by(0, &[parent, child]);
    assert!(held <= HALF_V100, "{held}");
    let charged = node.slice("family").processes.iter().find(|process| process.pid == parent).cloned();
    assert_eq!(charged.map(|process| process.used), Some(before.processes[0].used.clone()));
    let _ = tenant.ask("exit 0");
    tenant.speak_to_first();
    eventually("the account is as before the child", || match node.slice("family") {
        now if now.used() == before.used() && now.pids() == [parent] => Ok(()),
        now => Err(format!("{now:#?}")),
    });
    tenant.free(piece).expect("the parent continues");
    tenant.fill();
    assert!(node.device().held_by(0, &[parent]) <= HALF_V100);
}

#[test]
fn a_fresh_child_of_a_busy_process_shares_its_cap() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "family"]).ready();
    tenant.alloc(Kind::Plain, PIECE).unwrap();
    let parent = tenant.pid();
    let child = beget(&mut tenant, "spawn");
    begin(&mut tenant);
    tenant.fill();
    assert_eq!(tenant.alloc(Kind::Plain, PIECE), Err(CudaError::OUT_OF_MEMORY));
    assert!(node.device().held_by(0, &[parent, child]) <= HALF_V100);
    assert_eq!(node.slice("family").pids().len(), 2);
}

#[test]
fn a_grandchild_belongs_to_the_slice_too() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "family"]);
    beget(&mut tenant, "fork");
    beget(&mut tenant, "spawn");
    let grandchild = beget(&mut tenant, "fork");
    begin(&mut tenant);
    assert_eq!(tenant.info().1, HALF_V100);
    assert_eq!(node.slice("family").pids(), [grandchild]);
}

#[test]
fn an_orphan_in_a_session_of_its_own_still_belongs_to_the_slice() {
    let node = Node::simulated("v100x8");
    // The shell starts the tenant in another session and ends: the tenant's parent is then the reaper.
    let script = "exec 3<&0; setsid \"$0\" <&3 & exec 3<&-";
    let program = Tenant::program();
    let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
    let mut command = node.run_in_slice(&["-g", "0.5", "--name", "orphanage"], &words);
    let mut tenant = node.tenant_of(&mut command);
    let pid = tenant.pid();
    eventually("its first parent is gone", || {
        let parent = tenant.numbers("pid").unwrap()[1];
        let runner = u64::from(tenant.process().pid());
        if parent == runner { Ok(()) } else { Err(format!("its parent is {parent}, the runner is {runner}")) }
    });
    begin(&mut tenant);
    assert_eq!(tenant.info().1, HALF_V100);
    assert_eq!(node.slice("orphanage").pids(), [pid]);
    assert_eq!(tenant.end().code, Some(0));
    eventually("the slice ends with its last process", || match node.smi().find("orphanage") {
        None => Ok(()),
        Some(slice) => Err(format!("{slice:#?}")),
    });
}

#[test]
fn a_process_that_becomes_another_program_begins_anew() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "reborn"]).ready();
    let pid = tenant.pid();
    let full = tenant.fill();
    tenant.say("exec");
    assert_eq!(tenant.pid(), pid);
    begin(&mut tenant);
    assert_eq!(tenant.info().1, HALF_V100);
    eventually("the first program's memory is free again", || match tenant.fill() {
        given if given == full => Ok(()),
        given => {
            tenant.drop_all();
            Err(format!("{given} instead of {full}"))
        }
    });
    assert!(node.device().held_by(0, &[pid]) <= HALF_V100);
}
