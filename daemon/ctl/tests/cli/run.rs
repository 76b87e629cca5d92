//! `tranche run`: start and end of the program, and the requests to the daemon for it.

use std::process::Command;

use tonic::Status;
use tranche_rpc::v1;
use tranche_rpc::v1::share::Kind;

use crate::answers::UUID;
use crate::daemon::{Asked, Daemon};
use crate::tranche::{Ending, ending, program, tranche};

fn run(daemon: &Daemon, script: &str) -> Ending {
    ending(&daemon.socket(), &["run", "-g", "0.5", "--", "sh", "-c", script])
}

fn created(daemon: &Daemon) -> v1::CreateSliceRequest {
    match daemon.asked().first() {
        Some(Asked::Create(request)) => request.clone(),
        other => panic!("the first question was {other:?}"),
    }
}

#[test]
fn a_program_runs_in_a_slice_that_is_made_and_entered() {
    let daemon = Daemon::new();
    assert_eq!(run(&daemon, "exit 0").printed(), "");
    let request = created(&daemon);
    assert_eq!(request.share, Some(v1::Share { kind: Some(Kind::FractionPermille(500)) }));
    assert!(request.ephemeral);
    assert_eq!(daemon.asked()[1..], [Asked::Enter(v1::EnterSliceRequest { name: "frac05".into() })]);
}

#[test]
fn every_option_reaches_the_daemon() {
    let daemon = Daemon::new();
    let options = ["run", "-g", "2", "--name", "x", "--memory", "16Gi", "--compute", "30%"];
    let more = [
        "--compute-mode",
        "best-effort",
        "--gpu",
        UUID,
        "--limit",
        "60%",
        "--priority",
        "-9",
        "--gang",
        "ranks",
        "--project",
        "vision",
        "--latency",
        "2500us",
    ];
    ending(&daemon.socket(), &[&options[..], &more[..], &["--", "true"]].concat()).printed();
    assert_eq!(
        created(&daemon),
        v1::CreateSliceRequest {
            name: Some("x".into()),
            share: Some(v1::Share { kind: Some(Kind::WholeGpus(2)) }),
            memory_bytes: Some(16 << 30),
            compute_permille: Some(300),
            compute_mode: v1::ComputeMode::BestEffort.into(),
            gpus: vec![UUID.into()],
            wait_ms: 0,
            ephemeral: true,
            park_idle_s: None,
            rotates: false,
            several_containers: false,
            limit_permille: Some(600),
            priority: -9,
            pod: None,
            latency_us: Some(2_500),
            gang: Some("ranks".into()),
            project: Some("vision".into()),
        }
    );
}

#[test]
fn memory_alone_is_a_share() {
    let daemon = Daemon::new();
    ending(&daemon.socket(), &["run", "--memory", "512Mi", "true"]).printed();
    let request = created(&daemon);
    assert_eq!(request.share, Some(v1::Share { kind: Some(Kind::MemoryBytes(512 << 20)) }));
    assert_eq!(request.memory_bytes, None);
}

#[test]
fn an_existing_slice_is_entered_and_stays() {
    let daemon = Daemon::new();
    ending(&daemon.socket(), &["run", "--slice", "frac05", "true"]).printed();
    assert_eq!(daemon.asked(), [Asked::Enter(v1::EnterSliceRequest { name: "frac05".into() })]);
}

#[test]
fn the_program_finds_its_slice_in_its_environment() {
    let daemon = Daemon::new();
    let mut command = tranche(&daemon.socket(), &["run", "-g", "0.5", "sh", "-c"]);
    command.arg("echo $LD_PRELOAD; echo $TRANCHE_SLICE_SOCKET; echo $CUDA_VISIBLE_DEVICES");
    let printed = Ending::of(command.env("LD_PRELOAD", "")).printed();
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].ends_with(".so") || lines[0].contains("/libc.so.6"), "{lines:?}");
    assert_eq!(lines[1..], ["/run/t/slices/frac05/attach.sock", UUID]);
}

#[test]
fn exit_status_is_the_programs() {
    let daemon = Daemon::new();
    assert_eq!(run(&daemon, "exit 7").status, Some(7));
    assert_eq!(run(&daemon, "kill -KILL $$").status, Some(137));
    assert_eq!(run(&daemon, "kill -SEGV $$").status, Some(139));
}

#[test]
fn missing_program_exits_127_and_unexecutable_126() {
    let daemon = Daemon::new();
    let start = |program: &str| ending(&daemon.socket(), &["run", "-g", "0.5", program]);
    start("no-such-program").refused(127, &["no-such-program", "No such file"]);
    start("/etc/passwd").refused(126, &["/etc/passwd", "Permission denied"]);
}

#[test]
fn a_script_without_an_interpreter_line_is_run_by_the_shell() {
    let daemon = Daemon::new();
    let script = daemon.folder().join("script");
    // Written by another program: a file open for writing here may be so in another test's child, which prevents its
    // execution.
    let write = "echo 'echo $1' > \"$0\" && chmod +x \"$0\"";
    assert!(Command::new("sh").arg("-c").arg(write).arg(&script).status().unwrap().success());
    let printed =
        ending(&daemon.socket(), &["run", "-g", "0.5", script.to_str().unwrap(), "hello"]).printed();
    assert_eq!(printed, "hello\n");
}

#[test]
fn input_and_output_are_the_programs_own() {
    let daemon = Daemon::new();
    let mut command = Command::new("sh");
    command.arg("-c").arg("echo in | \"$0\" run -g 0.5 -- sh -c 'cat; echo err >&2'").arg(program());
    command.env("TRANCHE_SOCKET", daemon.socket()).env_remove("TRANCHE_SLICE_SOCKET");
    let ending = Ending::of(&mut command);
    assert_eq!((ending.stdout.as_str(), ending.stderr.as_str()), ("in\n", "err\n"));
}

/// Runs a command whose program creates a file, and asserts that the file is missing.
fn leaves_no_trace(daemon: &Daemon, command: &mut Command) -> Ending {
    let trace = daemon.folder().join("trace");
    let ending = Ending::of(command.arg("touch").arg(&trace));
    assert!(!trace.exists(), "the program ran: {ending:?}");
    ending
}

#[test]
fn without_a_slice_nothing_is_run() {
    let full = "no GPU has 0.5 free: GPU 0 has 0.2";
    let daemon = Daemon::answering(|answers| answers.slice = Err(Status::resource_exhausted(full)));
    let mut command = tranche(&daemon.socket(), &["run", "-g", "0.5"]);
    leaves_no_trace(&daemon, &mut command).refused(1, &[full]);
}

#[test]
fn a_slice_that_cannot_be_entered_runs_nothing_and_is_given_back() {
    let daemon = Daemon::answering(|answers| answers.enter = Err(Status::permission_denied("not yours")));
    let mut command = tranche(&daemon.socket(), &["run", "-g", "0.5"]);
    leaves_no_trace(&daemon, &mut command).refused(1, &["not yours"]);
    assert!(matches!(daemon.asked().last(), Some(Asked::Delete(_))));
}

#[test]
fn without_the_library_that_governs_it_nothing_is_run() {
    let daemon = Daemon::answering(|answers| {
        answers.enter.as_mut().unwrap().preload_path = "/nonexistent/shim.so".into();
    });
    let mut command = tranche(&daemon.socket(), &["run", "-g", "0.5"]);
    leaves_no_trace(&daemon, &mut command).refused(1, &["/nonexistent/shim.so", "nothing was run"]);
}

#[test]
fn without_a_daemon_nothing_is_run() {
    let daemon = Daemon::new();
    let nobody = daemon.folder().join("nobody.sock");
    let mut command = tranche(&nobody, &["run", "-g", "0.5"]);
    leaves_no_trace(&daemon, &mut command).refused(1, &["nobody.sock", "systemctl start tranched"]);
}

#[test]
fn slices_do_not_nest() {
    let daemon = Daemon::answering(|answers| answers.who_am_i = Some("outer".into()));
    let mut command = tranche(&daemon.socket(), &["run", "-g", "0.5"]);
    leaves_no_trace(&daemon, &mut command).refused(1, &["inside slice outer", "do not nest"]);
    command.env("TRANCHE_SLICE_SOCKET", "/run/t/slices/other/attach.sock");
    leaves_no_trace(&daemon, &mut command).refused(1, &["inside slice other"]);
    assert_eq!(daemon.asked(), []);
}

#[test]
fn full_node_is_awaited_and_its_reason_printed() {
    let refusal = Status::resource_exhausted("GPU 0 is full");
    let daemon = Daemon::answering(|answers| answers.first_refusals.push(refusal));
    let ending = ending(&daemon.socket(), &["run", "-g", "0.5", "--wait", "1m30s", "true"]);
    assert_eq!(ending.status, Some(0), "{ending:?}");
    assert!(ending.stderr.contains("waiting up to 1m 30s for room: GPU 0 is full"), "{ending:?}");
    let waits = daemon.asked().into_iter().filter_map(|asked| match asked {
        Asked::Create(request) => Some(request.wait_ms),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [0, 90_000]);
}

#[test]
fn cordon_is_awaited_as_the_daemon_marks_it() {
    let mut refusal = Status::failed_precondition("GPU 0 is cordoned");
    let refused = ["run", "-g", "0.5", "--gpu", "0", "--wait", "1m", "true"];
    let unmarked = refusal.clone();
    let daemon = Daemon::answering(|answers| answers.first_refusals.push(unmarked));
    ending(&daemon.socket(), &refused).refused(1, &["is cordoned"]);
    refusal.metadata_mut().insert(tranche_rpc::MAY_PASS, "1".parse().unwrap());
    let daemon = Daemon::answering(|answers| answers.first_refusals.push(refusal));
    assert_eq!(ending(&daemon.socket(), &refused).status, Some(0));
}
