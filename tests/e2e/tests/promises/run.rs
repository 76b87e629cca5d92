//! `tranche run` passes input, output and signals on, and its slice lives as long as its programs.

use std::time::{Duration, Instant};

use e2e::{Node, PATIENCE, Process, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::top::Screen;

fn shell(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

#[track_caller]
fn await_end_of(node: &Node, slice: &str) {
    eventually("the slice has ended", || match node.smi().find(slice) {
        None => Ok(()),
        Some(slice) => Err(format!("{slice:#?}")),
    });
}

#[test]
fn the_exit_code_is_the_programs() {
    let node = Node::simulated("h200x1");
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15), ("kill -KILL $$", 128 + 9)]
    {
        let outcome = node.run(&mut node.run_in_slice(&["-g", "0.5"], &shell(script)));
        assert_eq!(outcome.code, Some(code), "{outcome}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let node = Node::simulated("h200x1");
    let missing = node.run(&mut node.run_in_slice(&["-g", "0.5"], &["no-such-program"]));
    missing.refused(127, &["no-such-program"]);
    let plain = node.dir().join("plain-file");
    std::fs::write(&plain, "").unwrap();
    let outcome = node.run(&mut node.run_in_slice(&["-g", "0.5"], &[&plain]));
    outcome.refused(126, &["plain-file"]);
    assert!(node.smi().slices.is_empty());
}

#[test]
fn input_output_and_arguments_pass_through_untouched() {
    let node = Node::simulated("h200x1");
    let script = "read line; echo \"got $line\"; echo oops >&2; printf '%s|' \"$@\"";
    let words = ["sh", "-c", script, "sh", "-g", "two words", "", "--"];
    let mut process = Process::start(&mut node.run_in_slice(&["-g", "0.5"], &words));
    assert!(process.say("a line"));
    let outcome = process.end();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), "got a line\n-g|two words||--|"),
        "{outcome}"
    );
    assert_eq!(outcome.stderr, "oops\n");
}

#[test]
fn environment_names_the_gpu_of_the_slice() {
    let node = Node::simulated("v100x8");
    let script = "echo $CUDA_VISIBLE_DEVICES; echo $LD_PRELOAD; echo $TRANCHE_SLICE_SOCKET";
    let output = node.run(&mut node.run_in_slice(&["-g", "0.5", "--gpu", "5"], &shell(script))).success();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], node.smi().gpus[5].uuid.to_string());
    assert!(lines[1].ends_with("libtranche_preload.so"), "{output}");
    assert!(lines[2].ends_with("attach.sock"), "{output}");
}

#[test]
fn a_signal_to_the_runner_reaches_the_program() {
    let node = Node::simulated("h200x1");
    let script = "trap 'echo asked to end; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut process = Process::start(&mut node.run_in_slice(&["-g", "0.5"], &shell(script)));
    assert_eq!(process.line().as_deref(), Some("ready"));
    process.signal(Signal::SIGTERM);
    let outcome = process.end();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(5), "asked to end\n"), "{outcome}");
}

#[test]
fn program_that_stops_itself_gives_the_terminal_back_to_the_shell() {
    let node = Node::simulated("h200x1");
    let Some(screen) = Screen::open(&node) else { return };
    // Stopped by itself first, then by the key.
    let script = "echo bef''ore; kill -STOP $$; echo resu''med; read line; echo got $line\n";
    std::fs::write(node.dir().join("stops"), script).unwrap();
    let command = format!("{} run -g 0.5 sh stops", node.stage().command().display());
    screen.press(&[&command, "Enter"]);
    screen.shows("before");
    screen.shows("Stopped");
    screen.press(&["clear; fg", "Enter"]);
    screen.shows("resumed");
    screen.press(&["C-z"]);
    screen.shows("Stopped");
    screen.press(&["fg", "Enter"]);
    screen.press(&["a line", "Enter"]);
    screen.shows("got a line");
    eventually("the slice has ended", || match node.smi().slices.len() {
        0 => Ok(()),
        count => Err(format!("{count} slices")),
    });
    screen.press(&["clear; jobs; echo all en''ded", "Enter"]);
    assert!(!screen.shows("all ended").contains("Stopped"));
}

#[test]
fn stopped_program_without_a_terminal_does_not_stop_its_runner() {
    let node = Node::simulated("h200x1");
    let mut process =
        Process::start(&mut node.run_in_slice(&["-g", "0.5"], &shell("echo $$; kill -STOP $$")));
    let program = process.line().and_then(|line| line.parse().ok()).expect("the shell prints its pid");
    let state = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    eventually("the program has stopped", || match state(program) {
        Some('T') => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let runner = i32::try_from(process.pid()).unwrap();
    e2e::holds_for("the runner goes on", Duration::from_millis(200), || match state(runner) {
        Some('T') => Err("it has stopped".to_owned()),
        _ => Ok(()),
    });
    kill(Pid::from_raw(program), Signal::SIGKILL).unwrap();
    assert_eq!(process.end().code, Some(128 + 9));
}

#[test]
fn the_slice_ends_with_its_last_descendant() {
    let node = Node::simulated("h200x1");
    // The program ends at once; its child ends once the file exists.
    let flag = node.dir().join("go");
    let script = format!("(while [ ! -e {} ]; do sleep 0.05; done) & echo started", flag.display());
    let mut process =
        Process::start(&mut node.run_in_slice(&["-g", "0.5", "--name", "tail"], &shell(&script)));
    assert_eq!(process.line().as_deref(), Some("started"));
    e2e::holds_for("the slice stays", Duration::from_millis(600), || {
        match (process.runs(), node.smi().find("tail")) {
            (true, Some(_)) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    });
    std::fs::write(&flag, "").unwrap();
    assert_eq!(process.end().code, Some(0));
    await_end_of(&node, "tail");
}

#[test]
fn a_slice_that_exists_outlives_its_programs() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "lasting", "-g", "0.5"]).success();
    node.run(&mut node.run_in_slice(&["--slice", "lasting"], &["true"])).success();
    assert!(node.slice("lasting").processes.is_empty());
}

#[test]
fn a_killed_runner_leaves_no_slice_behind_once_its_program_ends() {
    let node = Node::simulated("h200x1");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "headless"]).ready();
    tenant.process().signal(Signal::SIGKILL);
    tenant.process().hang_up(); // the tenant ends at the end of its input
    await_end_of(&node, "headless");
    eventually("its memory is released", || match node.device().held() {
        held if held.get() == 0 => Ok(()),
        held => Err(held.to_string()),
    });
}

#[test]
fn waiting_run_starts_when_there_is_room() {
    let node = Node::simulated("h200x1");
    let mut first = node.tenant(&["-g", "0.7", "--name", "first"]);
    first.pid();
    let words = ["sh", "-c", "echo my turn"];
    let options = ["-g", "0.5", "--name", "second", "--wait", "60s"];
    let mut second = Process::start(&mut node.run_in_slice(&options, &words));
    eventually("smi shows the request that waits", || match &node.smi().waiting[..] {
        [waiting] if waiting.name.as_deref() == Some("second") => Ok(()),
        waiting => Err(format!("{waiting:?}")),
    });
    let table = node.tranche(&["smi"]).success();
    assert!(table.contains("second"), "{table}");
    assert_eq!(first.end().code, Some(0));
    assert_eq!(second.line().as_deref(), Some("my turn"));
    assert_eq!(second.end().code, Some(0));
    assert!(node.smi().waiting.is_empty());
}

#[test]
fn wait_that_expires_reports_free_memory() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "most", "-g", "0.7"]).success();
    let start = Instant::now();
    let outcome = node.run(&mut node.run_in_slice(&["-g", "0.5", "--wait", "1s"], &["true"]));
    assert!(start.elapsed() >= Duration::from_secs(1) && start.elapsed() < PATIENCE);
    let code = outcome.code.unwrap_or_default();
    assert_ne!(code, 0, "{outcome}");
    outcome.refused(code, &["no room", "gpu 0 has", "free"]);
    assert!(node.smi().waiting.is_empty());
}

#[test]
fn abandoned_wait_delays_no_other_request() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "most", "-g", "0.7"]).success();
    let options = ["-g", "0.5", "--name", "impatient", "--wait", "10m"];
    let mut waiting = Process::start(&mut node.run_in_slice(&options, &["true"]));
    eventually("it waits", || match node.smi().waiting.len() {
        1 => Ok(()),
        count => Err(format!("{count} wait")),
    });
    waiting.signal(Signal::SIGINT);
    eventually("it has ended", || if waiting.runs() { Err(String::new()) } else { Ok(()) });
    eventually("no request waits", || match node.smi().waiting.len() {
        0 => Ok(()),
        count => Err(format!("{count} wait")),
    });
    node.tranche(&["slice", "delete", "most"]).success();
    node.run(&mut node.run_in_slice(&["-g", "0.9"], &["true"])).success();
}
