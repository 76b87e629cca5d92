//! Bad input and a daemon that cannot be reached: each with a message that names a remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::Uid;

use crate::daemon::Daemon;
use crate::tranche::{Ending, ending, program};

#[test]
fn bad_share_is_refused_without_a_request() {
    let daemon = Daemon::new();
    for (share, part) in [
        ("0", "no part of a GPU"),
        ("-1", "no part of a GPU"),
        ("1.5", "never straddles GPUs"),
        ("abc", "not a number of GPUs"),
        ("0.0001", "finer than a thousandth"),
    ] {
        ending(&daemon.socket(), &["run", "-g", share, "true"]).refused(2, &[part]);
        ending(&daemon.socket(), &["slice", "create", "a", "-g", share]).refused(2, &[part]);
    }
    assert_eq!(daemon.asked(), []);
}

#[test]
fn other_bad_quantities_are_refused_too() {
    let nobody = "/nonexistent/tranched.sock".as_ref();
    ending(nobody, &["run", "--memory", "lots", "true"]).refused(2, &["lots", "16Gi"]);
    ending(nobody, &["run", "-g", "1", "--compute", "130%", "true"]).refused(2, &["130%", "30%"]);
    ending(nobody, &["run", "-g", "1", "--gpu", "first", "true"]).refused(2, &["first", "GPU-"]);
    ending(nobody, &["run", "-g", "1", "--wait", "long", "true"]).refused(2, &["long", "90s"]);
    ending(nobody, &["slice", "create", "a", "--memory", "-5Gi"]).refused(2, &["\"-5Gi\"", "16Gi"]);
    let huge = "99999999999999999999Gi";
    ending(nobody, &["slice", "create", "a", "--memory", huge])
        .refused(2, &[huge, "more memory than any GPU"]);
    ending(nobody, &["run", "-g", "1", "--name", "A/B", "true"]).refused(2, &["A/B", "cannot name a slice"]);
    ending(nobody, &["run", "-g", "1", "--mode", "lax", "true"]).refused(2, &["lax", "best-effort"]);
    ending(nobody, &["slice", "resize", "a", "-g", "2"]).refused(2, &["create another slice"]);
    ending(nobody, &["run", "--slice", "a", "--latency", "5ms", "true"])
        .refused(2, &["--slice", "--latency"]);
    ending(nobody, &["submit", "j", "-g", "0.5", "--latency", "1ms", "--", "true"])
        .refused(2, &["2 ms to 10 s"]);
    ending(nobody, &["submit", "j", "-g", "0.5", "--cpus", "0", "--", "true"])
        .refused(2, &["no number of processors"]);
    ending(nobody, &["submit", "j", "-g", "0.5", "--mem", "10", "--", "true"]).refused(2, &["1 MiB"]);
    ending(nobody, &["submit", "j", "--compute", "0.5", "--", "true"]).refused(2, &["--memory"]);
    ending(nobody, &["submit", "j", "-g", "0.5", "--parallelism", "0", "--", "true"])
        .refused(2, &["\"0\" is no number of members", "such as 4"]);
    ending(nobody, &["report", "--step", "0"]).refused(2, &["\"0\" is no number of hours", "such as 24"]);
    ending(nobody, &["smi", "-l", "0"]).refused(2, &["\"0\" is no time between two looks", "500ms"]);
    ending(nobody, &["run", "true"]).refused(2, &["--gpus"]);
    ending(nobody, &["run", "-g", "0.5"]).refused(2, &["CMD"]);
}

#[test]
fn job_is_deleted_where_an_earlier_daemon_ignores_its_limits() {
    let daemon = Daemon::new();
    let submit = ["submit", "train", "-p", "vision", "-g", "0.5"];
    for limit in [["--mem", "8Gi"], ["--cpus", "2"], ["--memory", "4Gi"], ["--compute", "0.3"]] {
        ending(&daemon.socket(), &[&submit[..], &limit, &["--", "true"]].concat())
            .refused(1, &[limit[0], "earlier release"]);
    }
    ending(&daemon.socket(), &[&submit[..], &["--", "true"]].concat()).printed();
}

#[test]
fn a_misspelt_option_is_no_program() {
    let daemon = Daemon::new();
    for words in [&["-g", "0.3", "--nam", "foo", "--", "true"][..], &["--nam", "foo", "-g", "0.3", "true"]] {
        ending(&daemon.socket(), &[&["run"], words].concat()).refused(2, &["--nam", "--name"]);
    }
    assert_eq!(daemon.asked(), []);
    ending(&daemon.socket(), &["run", "-g", "0.3", "sh", "-c", "exit 0", "--nam"]).printed();
}

#[test]
fn a_usage_line_names_only_what_has_to_be_given() {
    let ending = ending("/nonexistent".as_ref(), &["slice", "create", "a"]);
    assert!(!ending.stderr.contains("--socket"), "{}", ending.stderr);
}

#[test]
fn a_command_that_does_not_exist_gets_a_suggestion() {
    ending("/nonexistent".as_ref(), &["slcie"]).refused(2, &["slcie", "slice"]);
}

#[test]
fn missing_daemon_is_reported_with_its_start_command() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tranched.sock");
    let runtime_dir = format!("--runtime-dir {}", folder.path().display());
    for arguments in [&["smi"][..], &["slice", "list"], &["run", "-g", "0.5", "true"]] {
        ending(&socket, arguments).refused(1, &["tranched.sock", "systemctl start tranched", &runtime_dir]);
    }
    // A socket that outlived its daemon.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    ending(&socket, &["smi"]).refused(1, &["Connection refused", "systemctl start tranched"]);
}

#[test]
fn an_option_goes_before_the_environment() {
    let daemon = Daemon::new();
    let socket = daemon.socket();
    ending("/nonexistent".as_ref(), &["--socket", socket.to_str().unwrap(), "smi"]).printed();
}

#[test]
fn forbidden_socket_is_reported_with_a_remedy() {
    let daemon = Daemon::new();
    let folder = daemon.folder();
    // Root may open every socket, so another user connects; with a copy, as the build folder may be closed to it.
    // Another program copies: a file open for writing here may be so in another test's child, which prevents its
    // execution.
    let copy = folder.join("tranche");
    assert!(Command::new("cp").arg(program()).arg(&copy).status().unwrap().success());
    fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(daemon.socket(), PermissionsExt::from_mode(0o000)).unwrap();
    let mut command = Command::new(&copy);
    command.arg("--socket").arg(daemon.socket()).arg("smi").env_remove("TRANCHE_SLICE_SOCKET");
    if Uid::effective().is_root() {
        command.uid(65534).gid(65534);
    }
    let parts = ["Permission denied", "tranched.sock", "your user may not use that daemon", "--runtime-dir"];
    Ending::of(&mut command).refused(1, &parts);
}
