//! Who somebody is: pids that are used again, lines and pages in others' hands, other users, programs without a loader.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use e2e::{CudaError, Event, Kind, Node, Process, Tenant, eventually, holds_for, skip, usage_of};
use tranche_domain::units::Bytes;

use crate::ground::{Ground, LOOKS, compiled, ready};

/// A user of no name.
const MALLORY: u32 = 54323;

fn trespass() -> String {
    compiled("trespass.c", &[])
}

fn events_of(node: &Node, kind: &str) -> Vec<Event> {
    node.events().into_iter().filter(|event| event.kind == kind).collect()
}

/// A program that holds 2 GiB in the slice `stays` until it is killed; its pid, once nobody has that any more.
#[track_caller]
fn dead_member(node: &Node) -> u32 {
    let mut tenant = node.tenant(&["--slice", "stays"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(2048)).expect("the slice has as much");
    let pid = tenant.pid();
    tenant.kill();
    drop(tenant);
    eventually("it was waited for", || match Path::new(&format!("/proc/{pid}")).exists() {
        false => Ok(pid),
        true => Err("it is there".into()),
    })
}

#[test]
fn whoever_has_a_dead_members_pid_is_charged_nothing_and_granted_nothing() {
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
    eventually("it is seen for what it is", || match events_of(&node, "foreign-process").first() {
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
    assert!(reborn.process().runs() && reborn.info().1 > Bytes::ZERO, "it is not the slice's to be killed");
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
fn a_line_and_pages_in_a_strangers_hands_harm_none_but_who_passed_them() {
    let mut ground = Ground::new();
    let door = ground.node.dir().join("door").display().to_string();
    let mut stranger = Process::start(ground.node.command(trespass()).args(["receive", &door]));
    let stranger_pid = ready(&mut stranger);
    let (mut process, pid) = ground.begin(&[], "hand-on", &door);
    process.say("go");
    let since = Instant::now();
    assert!(process.line().unwrap_or_default().starts_with("done"));
    // On the line it is not heard, and what it writes is whose pages they are.
    assert_eq!(stranger.line().as_deref(), Some("asked 0"));
    let asked = ground.sees("refused", Some(stranger_pid), since);
    assert_eq!(asked.slice.as_deref(), Some("tamper"));
    assert_eq!(stranger.line().as_deref(), Some("done 0"));
    let event = ground.sees("under-reported", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"));
    assert_eq!(ground.node.slice("tamper").pids(), [pid], "the stranger is no member");
    ground.neighbour_is_unharmed("hand-on");
}

#[test]
fn credentials_of_another_are_not_heard_and_the_attempt_is_seen() {
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
fn a_line_stolen_from_a_sibling_of_the_same_user_is_of_no_use_and_the_attempt_is_seen() {
    let mut ground = Ground::new();
    let victim = ground.neighbour_pid().to_string();
    let words = [&trespass(), "steal", &victim];
    let mut thief = Process::start(&mut ground.node.run_in_slice(&["--slice", "tamper"], &words));
    let (since, said) = (Instant::now(), thief.line().unwrap_or_default());
    // The kernel may keep it from getting the line at all (`kernel.yama.ptrace_scope`).
    if !said.starts_with("impossible") {
        let pid = said.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
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
    // The usage region has no name: there is the way through the daemon that has it open.
    let usage = usage_of(&ground.node, "neighbour");
    let files = [slice.join("control"), usage, slice.join("shared")].map(|path| path.display().to_string());
    assert!(files.iter().take(2).all(|path| Path::new(path).exists()), "{files:?}");
    assert_eq!(by_mallory(&[vec!["open".into()], files.to_vec()].concat()), "impossible 0\n");
    // The same attempts are possible for who has the right: it is not the attempts that are broken.
    let root = ground.node.run(ground.node.command(trespass()).args(["open", &files[1]])).stdout;
    assert_eq!(root, "done 1\n");
    ground.neighbour_is_unharmed("another user");
}

/// It is linked to all it needs, so that no library can be loaded into it. That it has memory of the GPU, as it had by
/// `ioctl` on a real node's devices, the simulated driver is told.
#[test]
fn a_program_that_no_loader_touches_is_seen_with_its_slice_and_killed_where_that_is_said() {
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
