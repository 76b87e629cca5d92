//! No gate hangs a program: it continues within a bounded time, and launches that passed are counted.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use e2e::{Counted, Held, Node, Process, compile, eventually};
use tranche_shm::compute::Tally;
use tranche_shm::lease::Lease;

pub(crate) const OPEN: Lease =
    Lease { open: true, governed: true, frozen: false, bell: true, depth_us: 4_000, least: 1 };
const SHALLOW: Lease = Lease { depth_us: 200, ..OPEN };
pub(crate) const CLOSED: Lease = Lease { open: false, ..OPEN };
const FROZEN: Lease = Lease { frozen: true, ..CLOSED };

/// A node with the slice `work`, under a driver of that branch.
pub(crate) fn ground_of(driver: &str) -> Node {
    let node = Node::with_driver("v100x8", driver);
    node.tranche(&["slice", "create", "work", "-g", "0.5", "--gpu", "0"]).success();
    node
}

fn ground() -> Node {
    ground_of("550")
}

pub(crate) fn hold(node: &Node, lease: Lease) -> Held<'_> {
    Held::hold(node, "work", lease)
}

/// Compute record of the first process of the slice.
pub(crate) fn counted(node: &Node) -> Counted {
    Counted::of(node, "work", 0)
}

/// Starts the program of `clients/launch.c`, which has a context and waits for the line `go`.
#[track_caller]
fn launcher(node: &Node, what: &[&str]) -> Process {
    launcher_with(node, what, &[]).0
}

/// As [`launcher`], with these variables; returns its pid, too.
#[track_caller]
pub(crate) fn launcher_with(node: &Node, what: &[&str], variables: &[(&str, &str)]) -> (Process, u32) {
    let program = compile("tests/e2e/clients/launch.c", &[]).expect("the tests need a C compiler");
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(what.iter().map(|word| word.to_string()));
    let mut command = node.run_in_slice(&["--slice", "work"], &words);
    let mut process = Process::start(command.envs(variables.iter().copied()));
    let line = process.line().unwrap_or_default();
    let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    (process, pid.unwrap_or_else(|| panic!("{line:?}")))
}

/// Result that a launcher prints at its end: number of launches, and milliseconds.
#[track_caller]
pub(crate) fn done(launcher: &mut Process) -> (u64, f64) {
    let line = launcher.line().unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["done", launches, ms] => (launches.parse().expect("a number"), ms.parse().expect("a time")),
        _ => panic!("{line:?}"),
    }
}

#[test]
fn a_closed_gate_holds_a_launch_and_lets_it_go_when_it_opens() {
    let node = ground();
    let mut launcher = launcher(&node, &["one"]);
    let closed = hold(&node, CLOSED);
    launcher.say("go");
    eventually("it waits", || match counted(&node).tally(Tally::Waiting) {
        1 => Ok(()),
        other => Err(format!("{other} wait")),
    });
    sleep(Duration::from_millis(200));
    assert_eq!((counted(&node).tally(Tally::Waiting), counted(&node).tally(Tally::Launches)), (1, 0));
    drop(closed);
    let (launches, ms) = done(&mut launcher);
    assert!(launches >= 1 && ms >= 200.0, "{launches} in {ms} ms");
    assert_eq!((counted(&node).tally(Tally::Waiting), counted(&node).tally(Tally::Launches)), (0, launches));
}

#[test]
fn waits_and_blocking_copies_do_not_wait_at_a_closed_gate() {
    let node = ground();
    // Three kernels of 40 ms are outstanding when it prints that it is ready.
    let mut launcher = launcher(&node, &["waits"]);
    let _closed = hold(&node, CLOSED);
    launcher.say("go");
    let (_, ms) = done(&mut launcher);
    assert!(ms < 1_000.0, "{ms} ms for waits of 120 ms at most");
}

#[test]
fn launches_behind_a_value_that_a_later_launch_brings_come_through() {
    let node = ground();
    let mut launcher = launcher(&node, &["value"]);
    let _open = hold(&node, SHALLOW);
    launcher.say("go");
    let (launches, ms) = done(&mut launcher);
    // Each of thirteen may be held for 50 ms, and this machine be slow.
    assert!(launches == 13 && ms < 3_000.0, "{launches} in {ms} ms");
    assert!(counted(&node).tally(Tally::Passes) > 0, "nothing was stuck, so nothing was tested");
}

#[test]
fn two_processes_that_spin_on_each_other_meet() {
    let node = ground();
    let place = node.dir().join("meet").to_string_lossy().into_owned();
    let mut both = [launcher(&node, &["meet", &place]), launcher(&node, &["meet", &place])];
    let _open = hold(&node, SHALLOW);
    both.iter_mut().for_each(|one| assert!(one.say("go")));
    for one in &mut both {
        assert_eq!(done(one).0, 40);
    }
}

#[test]
fn two_streams_that_spin_on_each_other_meet() {
    let node = ground();
    let mut launcher = launcher(&node, &["streams"]);
    let _open = hold(&node, SHALLOW);
    launcher.say("go");
    assert_eq!(done(&mut launcher).0, 80);
}

#[test]
fn used_or_abandoned_captures_disturb_no_launch() {
    let node = ground();
    for mode in ["0", "1", "2"] {
        for what in ["capture", "abandon"] {
            let mut launcher = launcher(&node, &[what, mode]);
            let _open = hold(&node, SHALLOW);
            launcher.say("go");
            // One launch beside the capture and the graph five times; or twenty after a capture that was not ended.
            let expected = if what == "capture" { 6 } else { 20 };
            assert_eq!(done(&mut launcher).0, expected, "{what} in mode {mode}");
        }
    }
}

#[test]
fn what_is_captured_is_neither_held_nor_counted() {
    let node = ground();
    let mut launcher = launcher(&node, &["record"]);
    let _closed = hold(&node, CLOSED);
    launcher.say("go");
    assert!(done(&mut launcher).1 < 1_000.0);
    assert_eq!(counted(&node).tally(Tally::Launches), 0);
}

#[test]
fn a_fork_after_use_leaves_parent_and_child_going() {
    let node = ground();
    let mut launcher = launcher(&node, &["fork"]);
    launcher.say("go");
    assert_eq!(done(&mut launcher).0, 21);
}

#[test]
fn threads_share_a_gate_and_every_launch_is_counted() {
    let node = ground();
    let mut launcher = launcher(&node, &["threads"]);
    let _open = hold(&node, SHALLOW);
    launcher.say("go");
    assert_eq!(done(&mut launcher).0, 800);
    assert_eq!(counted(&node).tally(Tally::Launches), 800);
}

#[test]
fn the_first_launch_of_a_lazily_loaded_module_comes_through() {
    let node = ground();
    let program = compile("tests/e2e/clients/launch.c", &[]).expect("the tests need a C compiler");
    let words = [program.to_string_lossy().into_owned(), "one".into()];
    let mut command = node.run_in_slice(&["--slice", "work"], &words);
    let mut lazy = Process::start(command.env("CUDA_MODULE_LOADING", "LAZY"));
    assert!(lazy.line().is_some_and(|line| line.starts_with("ready")));
    let _open = hold(&node, SHALLOW);
    lazy.say("go");
    assert!(done(&mut lazy).0 >= 1);
}

#[test]
fn a_frozen_slice_waits_until_it_is_thawed_with_a_daemon_or_without() {
    let node = ground();
    let mut launcher = launcher(&node, &["one"]);
    let frozen = Held::abandon(&node, "work", FROZEN);
    launcher.say("go");
    // Longer than a gate waits for an absent daemon.
    sleep(Duration::from_millis(1_500));
    assert_eq!((counted(&node).tally(Tally::Launches), counted(&node).tally(Tally::Passes)), (0, 0));
    drop(frozen);
    let _open = hold(&node, OPEN);
    assert!(done(&mut launcher).1 >= 1_500.0);
}

#[test]
fn launches_pass_counted_while_the_daemon_is_stopped() {
    let node = ground();
    let (mut passing, mut held) = (launcher(&node, &["saturate", "1000"]), launcher(&node, &["one"]));
    let stopped = Held::abandon(&node, "work", CLOSED);
    let began = Instant::now();
    passing.say("go");
    let (launches, _) = done(&mut passing);
    assert!(launches > 0 && began.elapsed() < Duration::from_secs(5), "{launches} in {:?}", began.elapsed());
    assert_eq!(counted(&node).tally(Tally::Degraded), launches);
    drop(stopped);
    // With a heartbeat, the gate holds launches again.
    let _closed = hold(&node, CLOSED);
    held.say("go");
    let second = Counted::of(&node, "work", 1);
    eventually("a launch is held", || match second.tally(Tally::Waiting) {
        1 => Ok(()),
        other => Err(format!("{other} wait")),
    });
    assert_eq!((second.tally(Tally::Launches), second.tally(Tally::Degraded)), (0, 0));
}

#[test]
fn program_continues_within_its_depth_after_daemon_death() {
    let mut node = ground();
    let mut launcher = launcher(&node, &["saturate", "2000"]);
    // The daemon leaves a closed lease behind.
    std::mem::forget(Held::abandon(&node, "work", CLOSED));
    let counted = counted(&node);
    node.kill_daemon();
    launcher.say("go");
    let (launches, ms) = done(&mut launcher);
    assert!(launches > 0 && counted.tally(Tally::Degraded) == launches);
    // A launch is of 1 ms, and 4 ms may be outstanding.
    assert!(launches as f64 <= ms + 20.0, "{launches} in {ms} ms");
}

/// The heartbeat stays recent here, and would hold the program without end if it alone counted.
#[test]
fn killed_daemon_is_known_by_its_socket_before_its_heartbeat_is_missed() {
    let node = ground();
    let mut launcher = launcher(&node, &["one"]);
    let beating = Held::hold_beating(&node, "work", CLOSED, Duration::from_millis(400));
    launcher.say("go");
    sleep(Duration::from_millis(1_500));
    let counted = counted(&node);
    assert_eq!(
        (counted.tally(Tally::Waiting), counted.tally(Tally::Launches)),
        (1, 0),
        "a stopped daemon counts as alive"
    );
    let daemon = Pid::from_raw(i32::try_from(node.daemon_pid()).expect("pids are small"));
    kill(daemon, Signal::SIGKILL).expect("the daemon runs");
    let (launches, _) = done(&mut launcher);
    assert_eq!(counted.tally(Tally::Degraded), launches);
    drop(beating);
}

/// In a container, the socket's file may be that of an earlier daemon, at which no process listens.
#[test]
fn socket_of_a_daemon_before_is_no_evidence_about_its_successor() {
    let mut node = ground();
    let (mut launcher, pid) = launcher_with(&node, &["one"], &[]);
    node.kill_daemon();
    node.start_daemon();
    let socket = variable_of(pid, "TRANCHE_SLICE_SOCKET");
    let stale = socket.with_extension("stale");
    drop(UnixListener::bind(&stale).expect("a socket can be bound"));
    std::fs::rename(&stale, &socket).expect("the socket can be replaced");
    let closed = Held::hold_beating(&node, "work", CLOSED, Duration::from_millis(400));
    launcher.say("go");
    sleep(Duration::from_millis(1_500));
    let counted = counted(&node);
    assert_eq!((counted.tally(Tally::Waiting), counted.tally(Tally::Launches)), (1, 0));
    drop(closed);
    let _open = hold(&node, OPEN);
    assert_eq!(done(&mut launcher).0, 1);
    assert_eq!(counted.tally(Tally::Degraded), 0);
}

fn variable_of(pid: u32, name: &str) -> PathBuf {
    let all = std::fs::read(format!("/proc/{pid}/environ")).expect("the process is there");
    let all = String::from_utf8_lossy(&all);
    let value = all.split('\0').find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("{name} is not set")).into()
}

/// Number of launches of 1 ms within a second by a program that does not wait for them.
#[track_caller]
fn rush(node: &Node, how: &str, variables: &[(&str, &str)]) -> u64 {
    let (mut launcher, _) = launcher_with(node, &[how, "1000"], variables);
    let _open = hold(node, OPEN);
    launcher.say("go");
    let (launches, ms) = done(&mut launcher);
    assert!(launches > 50, "{launches} in {ms} ms: it was held for want of marks");
    let counted = counted(node);
    let mean = counted.tally(Tally::KernelNs);
    assert!((500_000..5_000_000).contains(&mean), "a kernel of 1 ms was taken for {mean} ns");
    assert_eq!(counted.tally(Tally::Passes), 0);
    launches
}

#[test]
fn where_the_driver_writes_no_values_events_bound_what_is_outstanding() {
    // Without completion markers, the driver's own queue would be the bound, or the gate would pass one launch in
    // 50 ms.
    let off = rush(&ground(), "rush", &[("SIMGPU_STREAM_MEMORY", "off")]);
    assert!(off <= 1_020, "{off} launches of 1 ms within a second");
}

#[test]
fn second_context_is_bound_by_its_own_marks() {
    let elsewhere = rush(&ground(), "elsewhere", &[]);
    assert!(elsewhere <= 1_020, "{elsewhere} launches of 1 ms within a second");
}

/// Numbers by which the kernel identifies the eventfds that a process has open.
fn bells(pid: u32) -> Vec<u64> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the process is there");
    let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
    let id =
        |text: String| text.lines().find_map(|line| line.strip_prefix("eventfd-id:")?.trim().parse().ok());
    texts.filter_map(id).collect()
}

#[test]
fn waiting_process_uses_new_wakeup_after_daemon_restart() {
    let mut node = ground();
    let (mut launcher, pid) = launcher_with(&node, &["one"], &[]);
    let [former] = bells(pid)[..] else { panic!("{:?}", bells(pid)) };
    if !bells(node.daemon_pid()).contains(&former) {
        panic!("the wakeup is not the daemon's");
    }
    node.kill_daemon();
    node.start_daemon();
    assert_eq!(bells(pid), [former], "no process has had a reason to attach again");
    node.tranche(&["slice", "freeze", "work"]).success();
    launcher.say("go");
    eventually("the wakeup is the new daemon's", || match bells(pid)[..] {
        [bell] if bell != former && bells(node.daemon_pid()).contains(&bell) => Ok(()),
        ref other => Err(format!("{other:?}, and {former} before")),
    });
    node.tranche(&["slice", "thaw", "work"]).success();
    assert!(done(&mut launcher).0 >= 1);
}
