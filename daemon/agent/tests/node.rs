//! The daemon through its sockets: real processes, scripted driver.

#![allow(clippy::unwrap_used)] // a failed unwrap names its line

mod common;
#[path = "node/isolation.rs"]
mod isolation;
#[path = "node/jobs.rs"]
mod jobs;
#[path = "node/memory.rs"]
mod memory;
#[path = "node/pods.rs"]
mod pods;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Calls, DaemonDirectories, PATIENCE, TenantProcess, expect_code, fraction, me};
use tonic::Code;
use tranche_domain::fault::Xid;
use tranche_domain::id::HostPid;
use tranche_domain::units::Bytes;
use tranche_inventory::GpuFault;
use tranche_inventory::scripted::{ScriptedDriver, v100};
use tranche_rpc::v1;
use tranche_shm::control::DEPARTURE_PATIENCE_NS;

/// Not a test: the child process of tests that need a tenant.
#[test]
fn child_process_plays_the_tenant() {
    common::play_tenant();
}

fn one_gpu() -> ScriptedDriver {
    ScriptedDriver::new(vec![v100(0)])
}

#[test]
fn half_gpu_slice_completes_its_life_cycle() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let slice = daemon.calls.create(fraction("a", 500)).unwrap();
    assert_eq!(slice.devices[0].cap_bytes >> 20, 16255);
    assert_eq!((slice.tier.as_str(), slice.root_pids.len()), ("preload", 0));
    assert_eq!(daemon.calls.who_am_i(), None);

    let entered = daemon.calls.enter("a").unwrap();
    assert_eq!(entered.gpu_uuids, [v100(0).uuid.to_string()]);
    assert_eq!(entered.preload_path, place.shim().display().to_string());
    assert_eq!(daemon.calls.who_am_i(), Some("a".into()));

    let view = daemon.calls.snapshot();
    assert_eq!((view.gpus[0].committed_bytes >> 20, view.gpus[0].committed_compute_permille), (16255, 500));
    assert_eq!(view.gpus[0].context_reserve_bytes >> 20, 308);
    assert_eq!(view.slices[0].root_pids, [me().get()]);
    assert!(view.compute_enforcement.starts_with("GPU time"), "{}", view.compute_enforcement);
    assert!(view.simulated);

    let refused = expect_code(daemon.calls.delete("a", false), Code::FailedPrecondition);
    assert!(refused.contains(&me().to_string()) && refused.contains("--force"), "{refused}");
    let unnamed = v1::CreateSliceRequest { name: None, ..fraction("", 100) };
    assert_eq!(daemon.calls.create(unnamed).unwrap().name, "slice-1");
    daemon.calls.delete("slice-1", false).unwrap();
    assert!(!place.runtime().join("slices/slice-1").exists(), "nothing is left of it");
}

#[test]
fn invalid_requests_name_the_error() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 700)).unwrap();
    expect_code(calls.create(fraction("a", 100)), Code::AlreadyExists);
    let refused = expect_code(calls.create(fraction("b", 500)), Code::ResourceExhausted);
    assert!(refused.contains("GPU 0 has 9753 MiB of 32510 MiB and 30 % of compute free"), "{refused}");
    let elsewhere = v1::CreateSliceRequest { gpus: vec!["7".into()], ..fraction("b", 100) };
    assert!(expect_code(calls.create(elsewhere), Code::NotFound).contains("no GPU 7"));
    let both = v1::CreateSliceRequest {
        compute_mode: v1::ComputeMode::Strict.into(),
        limit_permille: Some(200),
        ..fraction("b", 100)
    };
    expect_code(calls.create(both), Code::InvalidArgument);
    let below = v1::CreateSliceRequest { limit_permille: Some(99), ..fraction("b", 100) };
    let refused = expect_code(calls.create(below), Code::InvalidArgument);
    assert!(refused.contains("limit of 9.9 % is below the compute request of 10 %"), "{refused}");
    expect_code(calls.create(fraction("../b", 100)), Code::InvalidArgument);
    expect_code(calls.create(fraction("b", 0)), Code::InvalidArgument);
    expect_code(calls.delete("nobody", false), Code::NotFound);
    expect_code(calls.enter("nobody"), Code::NotFound);
    let nothing = v1::ResizeSliceRequest { name: "a".into(), ..v1::ResizeSliceRequest::default() };
    expect_code(calls.resize(nothing), Code::InvalidArgument);
    fs::remove_file(place.shim()).unwrap();
    assert!(expect_code(calls.enter("a"), Code::FailedPrecondition).contains("shim"));
}

#[test]
fn only_descendants_of_a_root_may_attach() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = place.runtime().join("slices/a/attach.sock").display().to_string();
    let mut tenant = TenantProcess::spawn(&socket);
    assert_eq!(tenant.tell("attach"), "refused NotAMember");
    calls.enter("a").unwrap();
    assert_eq!(tenant.tell("attach"), "slot 0");
    assert_eq!(tenant.tell("attach"), "slot 0");
    let mut sibling = TenantProcess::spawn(&socket);
    assert_eq!(sibling.tell("attach"), "slot 1");
    let processes = calls.snapshot().slices.remove(0).processes;
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().any(|process| process.pid == tenant.pid() && !process.command.is_empty()));
}

#[test]
fn processes_of_a_slice_share_its_cap() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let (mut one, mut other) = (TenantProcess::spawn(&socket), TenantProcess::spawn(&socket));
    assert_eq!((one.tell("attach"), other.tell("attach")), ("slot 0".into(), "slot 1".into()));
    assert_eq!(one.tell("alloc 6255"), "ok");
    assert_eq!(other.tell("alloc 10000"), "ok", "unused credit moves");
    assert_eq!(other.tell("alloc 1"), "out of memory");
    assert_eq!(one.tell("alloc 1"), "out of memory");
    assert_eq!(one.tell("free 5"), "ok");
    assert_eq!(other.tell("alloc 6"), "out of memory");
    assert_eq!(other.tell("alloc 5"), "ok");
    let slice = calls.snapshot().slices.remove(0);
    assert_eq!(slice.devices[0].used_bytes, slice.devices[0].cap_bytes);
}

#[test]
fn request_waits_for_memory_of_an_exiting_process() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let (mut heir, mut doomed) = (TenantProcess::spawn(&socket), TenantProcess::spawn(&socket));
    assert_eq!((heir.tell("attach"), doomed.tell("attach")), ("slot 0".into(), "slot 1".into()));
    assert_eq!((heir.tell("alloc 255"), doomed.tell("alloc 16000")), ("ok".into(), "ok".into()));
    assert_eq!((heir.tell("departing"), heir.tell("alloc 1")), ("false".into(), "out of memory".into()));
    let pid = HostPid::new(doomed.pid());
    driver.set_process(v100(0).uuid, pid, Bytes::mib(16000));
    let killed = Instant::now();
    doomed.kill();
    while heir.tell("departing") != "true" {
        assert!(killed.elapsed() < PATIENCE, "nobody noticed");
    }
    let asked = Instant::now();
    let in_vain = heir.tell("alloc 1");
    assert!(in_vain.starts_with("out of memory"), "the driver lists it still: {in_vain}");
    assert!(asked.elapsed() >= Duration::from_nanos(DEPARTURE_PATIENCE_NS), "hasty: {:?}", asked.elapsed());
    // A process that stays listed beyond the usual time no longer delays requests.
    std::thread::sleep(Duration::from_secs(3).saturating_sub(killed.elapsed()));
    while heir.tell("alloc 1") != "out of memory" {
        assert!(killed.elapsed() < PATIENCE, "it is waited for still");
    }
    driver.end_process(pid);
    calls.wait_until("it is gone", |view| view.slices[0].processes.len() == 1);
    assert_eq!((heir.tell("departing"), heir.tell("alloc 16000")), ("false".into(), "ok".into()));
}

#[test]
fn request_waits_until_the_driver_was_queried_about_ended_processes() {
    const SLOW: Duration = Duration::from_millis(400);
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let (mut heir, mut ended) = (TenantProcess::spawn(&socket), TenantProcess::spawn(&socket));
    assert_eq!((heir.tell("attach"), ended.tell("attach")), ("slot 0".into(), "slot 1".into()));
    assert_eq!(ended.tell("alloc 16255"), "ok");
    driver.delay_processes(SLOW);
    ended.kill();
    assert_eq!(heir.tell("alloc 16255"), "ok", "its memory is free; a slow answer is no reason to refuse");
}

#[test]
fn new_process_receives_credit_in_advance() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let [mut one, mut other, mut third] = [(); 3].map(|()| TenantProcess::spawn(&socket));
    one.tell("attach");
    assert_eq!(one.tell("unused"), "16255", "nobody else is there");
    other.tell("attach");
    assert_eq!((one.tell("unused"), other.tell("unused")), ("15883".into(), "372".into()), "308 and 64");
    assert_eq!(calls.snapshot().slices.remove(0).devices[0].used_bytes, 0);
    assert_eq!((one.tell("alloc 15883"), other.tell("alloc 372")), ("ok".into(), "ok".into()));
    assert_eq!(third.tell("attach"), "slot 2");
    assert_eq!(third.tell("unused"), "0");
}

#[test]
fn killed_process_is_reclaimed_after_the_driver_releases_it() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let (mut victim, mut heir) = (TenantProcess::spawn(&socket), TenantProcess::spawn(&socket));
    victim.tell("attach");
    heir.tell("attach");
    assert_eq!(victim.tell("alloc 16000"), "ok");
    let pid = HostPid::new(victim.pid());
    driver.set_process(v100(0).uuid, pid, Bytes::mib(16000));
    victim.kill();
    std::thread::sleep(Duration::from_millis(100));
    let held = calls.snapshot().slices.remove(0).devices.remove(0).used_bytes;
    assert_eq!(held >> 20, 16000, "the driver still lists it");
    driver.end_process(pid);
    // The next process's request waits for the exiting one instead of being refused.
    let asked = Instant::now();
    assert_eq!(heir.tell("alloc 16255"), "ok");
    assert!(asked.elapsed() < PATIENCE);
    calls.wait_until("the seat is free", |view| view.slices[0].processes.len() == 1);
}

#[test]
fn process_without_a_gpu_is_reclaimed_at_once() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let mut tenant = TenantProcess::spawn(&socket);
    tenant.tell("attach");
    tenant.tell("alloc 100");
    tenant.kill();
    let killed = Instant::now();
    calls.wait_until("all is back", |view| {
        view.slices[0].processes.is_empty() && view.slices[0].devices[0].used_bytes == 0
    });
    println!("reclaimed within {:?}", killed.elapsed());
}

#[test]
fn ephemeral_slice_ends_with_its_last_process() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(v1::CreateSliceRequest { ephemeral: true, ..fraction("a", 500) }).unwrap();
    let mut root = enters(&place);
    calls.wait_until("somebody enters", |view| !view.slices[0].root_pids.is_empty());
    root.kill().unwrap();
    root.wait().unwrap();
    calls.wait_until("it ends", |view| view.slices.is_empty());
    assert!(!place.runtime().join("slices/a").exists());
}

#[test]
fn forced_deletion_reports_killed_processes() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let mut root = enters(&place);
    calls.wait_until("somebody enters", |view| !view.slices[0].root_pids.is_empty());
    let refused = expect_code(calls.delete("a", false), Code::FailedPrecondition);
    assert!(refused.contains(&root.id().to_string()), "{refused}");
    assert_eq!(calls.delete("a", true).unwrap(), [root.id()]);
    assert!(!root.wait().unwrap().success());
    assert!(calls.snapshot().slices.is_empty());
    assert!(!place.runtime().join("slices/a").exists());
}

/// A root process of slice `a` other than this test, which can be killed.
fn enters(place: &DaemonDirectories) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_process_enters_a_slice", "--nocapture"]).stdout(Stdio::null());
    command.env("TRANCHE_TEST_ENTER", place.runtime().join("tranched.sock")).spawn().unwrap()
}

/// Not a test: a client that enters slice `a` and stays until it is killed.
#[test]
fn child_process_enters_a_slice() {
    let Some(socket) = std::env::var_os("TRANCHE_TEST_ENTER") else { return };
    let mut calls = Calls::connect(socket.as_ref());
    calls.enter("a").unwrap();
    std::thread::sleep(PATIENCE);
}

#[test]
fn shrink_below_use_refuses_new_memory() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let mut tenant = TenantProcess::spawn(&socket);
    tenant.tell("attach");
    assert_eq!(tenant.tell("alloc 16000"), "ok");
    let to = |permille| v1::ResizeSliceRequest {
        name: "a".into(),
        fraction_permille: Some(permille),
        ..v1::ResizeSliceRequest::default()
    };
    let slice = calls.resize(to(250)).unwrap();
    assert_eq!((slice.devices[0].cap_bytes >> 20, slice.devices[0].used_bytes >> 20), (8127, 16000));
    assert_eq!(tenant.tell("cap"), "8127 true");
    assert_eq!(tenant.tell("alloc 1"), "out of memory");
    expect_code(calls.create(fraction("b", 700)), Code::ResourceExhausted);
    assert_eq!(tenant.tell("free 8000"), "ok");
    let deadline = Instant::now() + PATIENCE;
    while tenant.tell("cap") != "8127 false" {
        assert!(Instant::now() < deadline, "the slice stays over its cap");
    }
    assert_eq!(tenant.tell("alloc 127"), "ok");
    assert_eq!(tenant.tell("alloc 1"), "out of memory");
    calls.create(fraction("b", 700)).unwrap();
    expect_code(calls.resize(to(500)), Code::ResourceExhausted);
    calls.delete("b", false).unwrap();
    calls.resize(to(500)).unwrap();
    assert_eq!(tenant.tell("alloc 8128"), "ok");
}

#[test]
fn waiting_request_leaves_the_queue_with_its_client() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    let socket = place.runtime().join("tranched.sock");
    calls.create(fraction("a", 700)).unwrap();
    let waiting = |name, ms| v1::CreateSliceRequest { wait_ms: ms, ..fraction(name, 600) };
    let timed_out = expect_code(calls.create(waiting("b", 30)), Code::ResourceExhausted);
    assert!(timed_out.contains("no room") && timed_out.contains("waited"), "{timed_out}");

    let mut other = Calls::connect(&socket);
    other.create_and_give_up(waiting("gone", 60_000), Duration::from_millis(50));
    calls.wait_until("the queue is empty", |view| view.waiting.is_empty());

    let waiter = std::thread::spawn(move || other.create(waiting("b", 60_000)));
    let view = calls.wait_until("somebody waits", |view| !view.waiting.is_empty());
    assert!(view.waiting[0].reason.contains("no room"), "{:?}", view.waiting);
    assert_eq!((view.waiting[0].name(), view.waiting[0].pid), ("b", me().get()));
    calls.delete("a", false).unwrap();
    assert_eq!(waiter.join().unwrap().unwrap().name, "b");
    assert!(calls.snapshot().waiting.is_empty());
}

#[test]
fn restarted_daemon_restores_slices_processes_and_memory() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction("a", 500)).unwrap();
    daemon.calls.create(fraction("idle", 100)).unwrap();
    let socket = daemon.calls.enter("a").unwrap().socket_path;
    let (mut tenant, mut doomed) = (TenantProcess::spawn(&socket), TenantProcess::spawn(&socket));
    tenant.tell("attach");
    doomed.tell("attach");
    assert_eq!(tenant.tell("alloc 6000"), "ok");
    assert_eq!(doomed.tell("alloc 1000"), "ok");
    drop(daemon);
    doomed.kill();
    assert_eq!(tenant.tell("free 1"), "ok", "life goes on without a daemon");

    let calls = &mut place.start(&driver).calls;
    let view = calls.wait_until("the dead one is gone", |view| view.slices[0].processes.len() == 1);
    assert_eq!(view.slices.len(), 2);
    assert_eq!(view.slices[0].root_pids, [me().get()]);
    assert_eq!(view.slices[0].processes[0].pid, tenant.pid());
    assert_eq!(view.slices[0].devices[0].used_bytes >> 20, 5999);
    assert_eq!(tenant.tell("attach"), "slot 0");
    assert_eq!(tenant.tell("alloc 10256"), "ok");
    assert_eq!(tenant.tell("alloc 1"), "out of memory");
    tenant.kill();
    calls.wait_until("it is watched again", |view| view.slices[0].processes.is_empty());
}

#[test]
fn corrupt_state_and_copy_keep_slices_of_live_processes() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction("a", 500)).unwrap();
    daemon.calls.create(fraction("idle", 100)).unwrap();
    let socket = daemon.calls.enter("a").unwrap().socket_path;
    let mut tenant = TenantProcess::spawn(&socket);
    tenant.tell("attach");
    tenant.tell("alloc 6000");
    drop(daemon);
    for name in ["state.json", "state.json.copy"] {
        fs::write(place.state().join(name), "{ half a sta").unwrap();
    }

    let calls = &mut place.start(&driver).calls;
    let view = calls.snapshot();
    assert!(view.notes.iter().any(|note| note.contains("state.json.corrupt-1")), "{:?}", view.notes);
    assert!(place.state().join("state.json.corrupt-1").exists());
    assert_eq!(view.slices.len(), 1, "nobody lived in the other");
    assert_eq!((view.slices[0].name.as_str(), view.gpus[0].committed_bytes >> 20), ("a", 16255));
    assert!(!place.runtime().join("slices/idle").exists());
    tenant.kill();
    calls.wait_until("it ends with its last process", |view| view.slices.is_empty());
}

#[test]
fn corrupt_state_is_replaced_by_its_copy() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction("idle", 100)).unwrap();
    let before = daemon.calls.snapshot().slices;
    drop(daemon);
    fs::write(place.state().join("state.json"), "").unwrap();

    let view = place.start(&driver).calls.snapshot();
    let caps =
        |slices: &[v1::SliceView]| slices.iter().map(|slice| slice.devices[0].cap_bytes).collect::<Vec<_>>();
    assert_eq!(caps(&view.slices), caps(&before));
    assert!(view.notes.iter().any(|note| note.contains("its copy has been used")), "{:?}", view.notes);
}

#[test]
fn slice_of_a_missing_gpu_is_kept() {
    let place = DaemonDirectories::new();
    let both = ScriptedDriver::new(vec![v100(0), v100(1)]);
    let on_second = v1::CreateSliceRequest { gpus: vec!["1".into()], ..fraction("a", 500) };
    place.start(&both).calls.create(on_second).unwrap();

    let mut daemon = place.start(&one_gpu());
    let view = daemon.calls.snapshot();
    assert!(view.slices.is_empty());
    assert!(view.notes.iter().any(|note| note.contains("slice a cannot be served")), "{:?}", view.notes);
    expect_code(daemon.calls.create(fraction("a", 100)), Code::AlreadyExists);
    drop(daemon);

    let mut daemon = place.start(&both);
    assert_eq!(daemon.calls.snapshot().slices[0].name, "a");
    drop(daemon);
    let calls = &mut place.start(&one_gpu()).calls;
    calls.delete("a", false).unwrap();
    calls.create(fraction("a", 100)).unwrap();
}

#[test]
fn foreign_processes_are_shown_and_lost_gpus_closed() {
    let (place, driver) = (DaemonDirectories::new(), ScriptedDriver::new(vec![v100(0), v100(1)]));
    let calls = &mut place.start(&driver).calls;
    driver.set_process(v100(0).uuid, me(), Bytes::mib(77));
    let view = calls.snapshot();
    assert_eq!(
        (view.gpus[0].foreign[0].pid, view.gpus[0].foreign[0].used_bytes),
        (me().get(), Some(77 << 20))
    );
    assert!(!view.gpus[0].foreign[0].command.is_empty());
    driver.lose(v100(0).uuid);
    calls.wait_until("the loss is seen", |view| view.gpus[0].not_sliceable.is_some());
    assert_eq!(calls.create(fraction("a", 500)).unwrap().devices[0].gpu_index, 1);
}

#[test]
fn fault_is_shown_until_its_gpu_stays_healthy() {
    let (place, driver) = (DaemonDirectories::new(), ScriptedDriver::new(vec![v100(0), v100(1)]));
    let calls = &mut place.start(&driver).calls;
    let fault = GpuFault { gpu: Some(v100(1).uuid), xid: Xid::new(48) };
    let view = calls.wait_until("the fault is heard", |view| {
        driver.raise(fault); // repeated until the daemon receives it
        !view.gpus[1].faults.is_empty()
    });
    assert_eq!((view.gpus[1].faults[0].xid, view.gpus[0].faults.len()), (48, 0));
    calls.wait_until("it is noted", |view| view.notes == ["GPU 1 has a fault: the driver reports Xid 48"]);
    calls.wait_until("it is over", |view| view.gpus[1].faults.is_empty() && view.notes.is_empty());
}

#[test]
fn fault_without_gpu_concerns_unresponsive_gpus() {
    let (place, driver) = (DaemonDirectories::new(), ScriptedDriver::new(vec![v100(0), v100(1)]));
    let calls = &mut place.start(&driver).calls;
    driver.lose(v100(1).uuid);
    let view = calls.wait_until("the fault is heard", |view| {
        driver.raise(GpuFault { gpu: None, xid: Xid::new(79) });
        view.gpus.iter().any(|gpu| !gpu.faults.is_empty())
    });
    assert_eq!(view.gpus.iter().map(|gpu| gpu.faults.len()).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn tenants_cannot_write_limits_or_stop_the_daemon() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    let slice = calls.create(fraction("a", 500)).unwrap();
    let socket = calls.enter("a").unwrap().socket_path;
    let mut tenant = TenantProcess::spawn(&socket);
    tenant.tell("attach");
    if slice.tier_reason.contains("cannot write") {
        assert_eq!(tenant.tell("write-control"), format!("refused {}", libc::EROFS));
    } else {
        println!("SKIP: no read-only mounts here: {}", slice.tier_reason);
    }
    // A user's own daemon uses a file, whose truncation the tests of regions cover.
    if nix::unistd::geteuid().is_root() {
        assert_ne!(tenant.tell("truncate-usage"), "ok");
        assert_eq!(calls.snapshot().notes, Vec::<String>::new());
    }
    tenant.kill();
    calls.wait_until("the daemon lives", |view| view.slices[0].processes.is_empty());
}

#[test]
fn sockets_and_regions_have_required_permissions() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&driver).calls;
    calls.create(fraction("a", 500)).unwrap();
    let mode = |path: &str| fs::metadata(place.runtime().join(path)).unwrap().permissions().mode() & 0o777;
    let privileged = nix::unistd::geteuid().is_root();
    assert_eq!(mode("tranched.sock"), if privileged { 0o666 } else { 0o600 });
    assert_eq!(mode("slices/a/attach.sock"), if privileged { 0o666 } else { 0o600 });
    let usage = fs::metadata(place.usage("a")).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("slices/a/control"), usage), (0o600, 0o600));
}
