//! Identity: reused pids, passed connections and pages, other users, and programs without a loader.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use e2e::{CudaError, Event, Kind, Node, Process, Tenant, eventually, holds_for, skip, usage_of};
use tranche_domain::units::Bytes;

use crate::ground::{Ground, LOOKS, compiled, ready};

/// Uid of a user without a name.
const MALLORY: u32 = 54323;

fn trespass() -> String {
    compiled("trespass.c", &[])
}

fn events_of(node: &Node, kind: &str) -> Vec<Event> {
    node.events().into_iter().filter(|event| event.kind == kind).collect()
}

/// Kills a program that holds 2 GiB in the slice `stays`; returns its pid once that is free.
#[track_caller]
fn dead_member(node: &Node) -> u32 {
    let mut tenant = node.tenant(&["--slice", "stays"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(2048)).expect("the slice has as much");
    let pid = tenant.pid();
    tenant.kill();
    drop(tenant);
    eventually("its pid is free", || match Path::new(&format!("/proc/{pid}")).exists() {
        false => Ok(pid),
        true => Err("it is there".into()),
    })
}

#[test]
fn reused_pid_gets_no_charge_and_no_grant() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can choose a pid");
    }
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "stays", "-g", "0.5", "--gpu", "0"]).success();
    let pid = dead_member(&node);
    let (program, text) = (Tenant::program(), pid.to_string());
    let mut reborn = node.tenant_of(node.command(trespass()).args(["reborn", &text]).arg(&program)).ready();
    assert_eq!(reborn.pid(), pid, "it has the pid of the dead");
    reborn.alloc(Kind::Plain, Bytes::mib(1024)).expect("it is in no slice");
    let since = Instant::now();
    eventually("it is reported as foreign", || match events_of(&node, "foreign-process").first() {
        Some(event) if event.pid == Some(pid) && event.slice.is_none() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    println!("seen after {:?} (simulated)", since.elapsed());
    holds_for("the slice has nothing to do with it", LOOKS, || {
        let slice = node.slice("stays");
        let nothing = slice.used() == Bytes::ZERO && slice.pids().is_empty();
        if nothing { Ok(()) } else { Err(format!("{slice:#?}")) }
    });
    node.tranche(&["slice", "delete", "stays", "--force"]).success();
    assert!(reborn.process().runs() && reborn.info().1 > Bytes::ZERO, "deleting the slice does not kill it");
    drop(reborn);

    node.tranche(&["slice", "create", "stays", "-g", "0.5", "--gpu", "0"]).success();
    let pid = dead_member(&node).to_string();
    let mut command = node.command(trespass());
    command.args(["reborn", &pid]).arg(&program).env("LD_PRELOAD", node.stage().shim());
    command.env("TRANCHE_SLICE_SOCKET", node.dir().join("run/slices/stays/attach.sock"));
    assert_eq!(node.tenant_of(&mut command).init(), Err(CudaError::SYSTEM_NOT_READY));
    assert!(
        events_of(&node, "refused")
            .iter()
            .any(|event| event.pid.map(|pid| pid.to_string()) == Some(pid.clone()))
    );
}

#[test]
fn passed_connection_and_pages_harm_only_their_owner() {
    let mut ground = Ground::new();
    let door = ground.node.dir().join("door").display().to_string();
    let mut stranger = Process::start(ground.node.command(trespass()).args(["receive", &door]));
    let stranger_pid = ready(&mut stranger);
    let (mut process, pid) = ground.begin(&[], "hand-on", &door);
    process.say("go");
    let since = Instant::now();
    assert!(process.line().unwrap_or_default().starts_with("done"));
    // Its messages on the connection are refused, and what it writes counts for the owner of the pages.
    assert_eq!(stranger.line().as_deref(), Some("asked 0"));
    let refused = ground.sees("refused", Some(stranger_pid), since);
    assert_eq!(refused.slice.as_deref(), Some("tamper"));
    assert_eq!(stranger.line().as_deref(), Some("done 0"));
    let event = ground.sees("under-reported", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"));
    assert_eq!(ground.node.slice("tamper").pids(), [pid], "the stranger is no member");
    ground.neighbour_is_unharmed("hand-on");
}

#[test]
fn credentials_of_another_are_refused_and_reported() {
    let mut ground = Ground::new();
    let detail = format!("{} {}", ground.attach_socket("neighbour"), ground.neighbour_pid());
    let (mut process, pid) = ground.begin(&[], "credentials", &detail);
    process.say("go");
    let since = Instant::now();
    assert!(process.line().unwrap_or_default().starts_with("impossible"));
    let event = ground.sees("refused", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("neighbour"), "{event:?}");
    ground.neighbour_is_unharmed("credentials");
}

#[test]
fn stolen_connection_of_same_user_is_refused_and_reported() {
    let mut ground = Ground::new();
    let victim = ground.neighbour_pid().to_string();
    let words = [&trespass(), "steal", &victim];
    let mut thief = Process::start(&mut ground.node.run_in_slice(&["--slice", "tamper"], &words));
    let (since, answer) = (Instant::now(), thief.line().unwrap_or_default());
    // The kernel may prevent the theft itself (`kernel.yama.ptrace_scope`).
    if !answer.starts_with("impossible") {
        let pid = answer.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        assert_eq!(thief.line().as_deref(), Some("asked 0"));
        let event = ground.sees("refused", pid, since);
        assert_eq!(event.slice.as_deref(), Some("neighbour"), "{event:?}");
    }
    assert_eq!(ground.node.slice("tamper").pids(), [0u32; 0]);
    ground.neighbour_is_unharmed("steal");
}

#[test]
fn another_user_reaches_no_process_and_no_page_of_a_slice() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can be several users");
    }
    let mut ground = Ground::new();
    let (_tenant, member) = ground.begin(&[], "hold", "");
    let copy = ground.node.dir().join("trespass");
    ground.node.run(ground.node.command("cp").arg(trespass()).arg(&copy)).success();
    for path in [ground.node.dir(), &copy] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
    }
    let pids = [member, ground.neighbour_pid(), ground.node.daemon_pid()].map(|pid| pid.to_string());
    let by_mallory = |arguments: &[String]| {
        let mut command = ground.node.command("setpriv");
        command.args([format!("--reuid={MALLORY}"), format!("--regid={MALLORY}"), "--clear-groups".into()]);
        ground.node.run(command.arg(&copy).args(arguments)).stdout
    };
    assert_eq!(by_mallory(&[vec!["reach".into()], pids.to_vec()].concat()), "impossible 0\n");
    let slice = ground.node.dir().join("run/slices/neighbour");
    // The usage region has no name: it is reachable through the daemon, which has it open.
    let usage = usage_of(&ground.node, "neighbour");
    let files = [slice.join("control"), usage, slice.join("shared")].map(|path| path.display().to_string());
    assert!(files.iter().take(2).all(|path| Path::new(path).exists()), "{files:?}");
    assert_eq!(by_mallory(&[vec!["open".into()], files.to_vec()].concat()), "impossible 0\n");
    // The same attempt succeeds with the right to it, so that the failures above are not those of the program.
    let root = ground.node.run(ground.node.command(trespass()).args(["open", &files[1]])).stdout;
    assert_eq!(root, "done 1\n");
    ground.neighbour_is_unharmed("another user");
}

/// The program is static, so that no library can be loaded into it.
///
/// On a real node it would take memory by `ioctl`; here the simulated driver is made to take it.
#[test]
fn static_program_is_reported_with_its_slice_and_killed() {
    let mut ground = Ground::configured("violations = \"kill\"\nviolations_grace_s = 1\n");
    let program = compiled("trespass.c", &["-static"]);
    let words = [program.as_str(), "stay", "-"];
    let mut process = Process::start(&mut ground.node.run_in_slice(&["--slice", "tamper"], &words));
    let pid = ready(&mut process);
    let since = Instant::now();
    ground.node.own_driver_takes(0, pid, Bytes::mib(1024));
    let event = ground.sees("unshimmed-process", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{event:?}");
    ground.sees("killed", Some(pid), since);
    eventually("it has ended", || if process.runs() { Err("it runs".into()) } else { Ok(()) });
    ground.neighbour_is_unharmed("static");
}
