//! Lists of jobs, slices, GPUs and projects: forms, order, filters, times.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::tranche::{Ending, ending, tranche};

fn printed(daemon: &Daemon, words: &[&str]) -> String {
    ending(&daemon.socket(), words).printed()
}

#[test]
fn required_gpu_is_waited_for() {
    let daemon = Daemon::answering(|answers| answers.node.gpus.clear());
    ending(&daemon.socket(), &["gpu", "list", "--require"]).refused(1, &["found no GPU", "tranche doctor"]);
    ending(&daemon.socket(), &["gpu", "list", "--require", "--wait", "2s"]).refused(1, &["found no GPU"]);
    ending(&daemon.socket(), &["gpu", "list", "--wait", "2s"]).refused(2, &["--require"]);
    assert!(printed(&Daemon::new(), &["gpu", "list", "--require"]).contains("GPU"));
}

#[test]
fn lists_have_names_csv_and_json() {
    let daemon = Daemon::new();
    assert_eq!(printed(&daemon, &["list", "-A", "-o", "name"]), "train\nevaluate\n");
    assert_eq!(printed(&daemon, &["slice", "list", "-o", "name"]), "frac05\n");
    assert_eq!(printed(&daemon, &["gpu", "list", "-o", "name"]), "0\n");
    assert_eq!(printed(&daemon, &["project", "list", "-o", "name"]), "vision\nspeech\n");
    let csv = printed(&daemon, &["project", "list", "-o", "csv"]);
    assert_eq!(
        csv,
        "project,allocated,idle,quota,weight,running,queued,members\nvision,0.5,0.5,4,-,1,0,root\nspeech,0,0,2,-,0,1,-\n"
    );
    for words in [&["list", "-A"][..], &["slice", "list"], &["gpu", "list"], &["project", "list"]] {
        let json = printed(&daemon, &[words, &["--json"]].concat());
        assert_eq!(json, printed(&daemon, &[words, &["-o", "json"]].concat()));
        assert!(serde_json::from_str::<Value>(&json).unwrap().is_array(), "{json}");
        ending(&daemon.socket(), &[words, &["--json", "-o", "csv"]].concat()).refused(2, &["--json"]);
    }
}

#[test]
fn lists_are_filtered_and_sorted() {
    let daemon = Daemon::new();
    let names = |words: &[&str]| printed(&daemon, &[&["list", "-A", "-o", "name"], words].concat());
    assert_eq!(names(&["--filter", "state=idle"]), "train\n");
    assert_eq!(names(&["--filter", "user=root", "--filter", "project=speech"]), "evaluate\n");
    assert_eq!(names(&["--filter", "gpu=0"]), "train\n");
    assert_eq!(names(&["--filter", "gpu=7"]), "");
    assert_eq!(names(&["--sort", "name"]), "evaluate\ntrain\n");
    assert_eq!(names(&["--sort", "Age"]), "evaluate\ntrain\n");
    let list = |words: &[&str]| ending(&daemon.socket(), &[&["slice", "list"], words].concat());
    list(&["--filter", "colour=red"]).refused(2, &["\"colour\"", "name, state, user, project, gpu"]);
    list(&["--filter", "red"]).refused(2, &["KEY=VALUE"]);
    list(&["--sort", "size"]).refused(2, &["\"size\"", "slice, user, project/job"]);
}

#[test]
fn users_jobs_and_idle_time_are_shown() {
    let daemon = Daemon::new();
    let smi = printed(&daemon, &["smi"]);
    assert!(smi.contains("| frac05 | root | vision/train |") && smi.contains("| idle 12m |"), "{smi}");
    assert!(printed(&daemon, &["slice", "list"]).contains("| frac05 | root | vision/train |"));
    let shown = printed(&daemon, &["slice", "show", "frac05"]);
    assert!(
        shown.contains("job       vision/train\n") && shown.contains("owner     root (uid 0)\n"),
        "{shown}"
    );
    assert!(shown.contains("idle      for 12m\n"), "{shown}");
    assert!(printed(&daemon, &["gpu", "list"]).contains("| root  |"));
    let list = printed(&daemon, &["list", "-A"]);
    assert!(list.contains("| Running, idle 12m |") && list.contains("| root |"), "{list}");
    let job = printed(&daemon, &["describe", "train", "-p", "vision"]);
    for part in ["Idle      for 12m\n", "Started   ", "Waited    1m 5s\n", "Ran       "] {
        assert!(job.contains(part), "{part} is missing from\n{job}");
    }
}

#[test]
fn project_of_the_environment_counts_unless_another_is_named_or_it_is_empty() {
    let daemon = Daemon::new();
    let list = |project: &str, words: &[&str]| {
        let mut command = tranche(&daemon.socket(), &[&["list", "-o", "name"], words].concat());
        Ending::of(
            command.env("TRANCHE_PROJECT", project).env("TRANCHE_PROJECT_FILE", "/nonexistent/project"),
        )
    };
    assert_eq!(list("speech", &[]).printed(), "evaluate\n");
    assert_eq!(list("speech", &["-A"]).printed(), "train\nevaluate\n");
    assert_eq!(list("speech", &["-p", "vision"]).printed(), "train\n");
    assert_eq!(list("", &[]).printed(), "train\nevaluate\n");
    list("a/b", &[]).refused(1, &["TRANCHE_PROJECT", "no name of a project"]);
}

#[test]
fn times_are_local_or_utc() {
    let daemon = Daemon::new();
    let history = |zone: &str, words: &[&str]| {
        Ending::of(tranche(&daemon.socket(), &[&["history"], words].concat()).env("TZ", zone)).printed()
    };
    assert_eq!(history("<+05>-5", &[]), "2026-01-02T08:04:05+05:00 vision: 0.5 GPUs\n");
    assert_eq!(history("<+05>-5", &["--utc"]), "2026-01-02T03:04:05Z vision: 0.5 GPUs\n");
    assert_eq!(history("UTC", &[]), "2026-01-02T03:04:05Z vision: 0.5 GPUs\n");
}

#[test]
fn report_has_local_times_and_fits_the_terminal() {
    let daemon = Daemon::new();
    let report = |columns: &str, words: &[&str]| {
        let mut command = tranche(&daemon.socket(), &[&["report"], words].concat());
        Ending::of(command.env("TZ", "<+05>-5").env("COLUMNS", columns)).printed()
    };
    let local = report("80", &["--step", "24"]);
    assert!(local.starts_with("2026-01-02T08:00+05:00 to 2026-01-02T10:00+05:00\n"), "{local}");
    assert!(local.contains("| 2026-01-02T08:00+05:00 | vision  |      2.00 |"), "{local}");
    assert!(local.lines().all(|line| line.len() <= 80) && !local.contains("Wait p95"), "{local}");
    let utc = report("200", &["--step", "24", "--utc"]);
    assert!(utc.starts_with("2026-01-02T03:00Z to 2026-01-02T05:00Z\n"), "{utc}");
    assert!(utc.contains("| 2026-01-02T03:00Z |") && utc.contains("Wait p95"), "{utc}");
    let csv = report("80", &["--csv"]);
    assert!(csv.contains("\n2026-01-02T03:00:00Z,vision,7200.000000,"), "{csv}");
    assert!(report("80", &["--svg"]).contains("<title>2026-01-02T08:00+05:00 vision: 2.00</title>"));
}

#[test]
fn watched_list_in_a_pipe_has_no_control_sequences() {
    let daemon = Daemon::new();
    let mut child =
        tranche(&daemon.socket(), &["list", "-A", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut printed = Vec::new();
    for line in lines {
        printed.push(line);
        if printed.iter().filter(|line| line.contains("evaluate")).count() == 2 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(printed.last().is_some_and(|line| line.contains("evaluate")), "{printed:#?}");
    assert!(!printed.concat().contains('\x1b'), "{printed:#?}");
}

#[test]
fn no_colours_reach_a_pipe() {
    let daemon = Daemon::new();
    assert!(!printed(&daemon, &["list", "-A"]).contains('\x1b'));
}
