//! `tranche smi` and `tranche doctor`.

use std::fs;
use std::io::{BufRead, BufReader, pipe};
use std::process::Stdio;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::tranche::{Ending, ending, tranche};

#[test]
fn the_node_is_drawn_and_marked_as_simulated() {
    let drawn = ending(&Daemon::new().socket(), &["smi"]).printed();
    for part in [
        "SIMULATED",
        "CUDA 12.4",
        "Tesla V100-SXM2-32GB",
        "frac05",
        "4242",
        "trainer",
        "compute: not enforced",
    ] {
        assert!(drawn.contains(part), "{part} is missing:\n{drawn}");
    }
}

#[test]
fn tables_are_as_wide_as_columns_and_whole_in_pipes() {
    let daemon = Daemon::answering(|answers| {
        let reason = "MIG is enabled, which takes many words to explain: ".repeat(4);
        answers.node.gpus[0].not_sliceable = Some(reason);
        answers.node.slices[0].processes[0].command = "学習".repeat(25);
    });
    for command in [&["smi"][..], &["slice", "list"], &["gpu", "list"]] {
        let whole = ending(&daemon.socket(), command).printed();
        assert!(whole.lines().any(|line| line.len() > 100), "{whole}");
        let fitted = Ending::of(tranche(&daemon.socket(), command).env("COLUMNS", "80")).printed();
        for line in fitted.lines() {
            let columns: usize = line.chars().map(|letter| if letter.is_ascii() { 1 } else { 2 }).sum();
            assert!(columns <= 80, "{columns} columns: {line}\n{fitted}");
        }
    }
}

#[test]
fn json_is_the_whole_view() {
    let text = ending(&Daemon::new().socket(), &["smi", "--json"]).printed();
    let node: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(node["slices"][0]["devices"][0]["cap"], 16255_u64 << 20);
    assert_eq!(node["gpus"][0]["capacity"], 32510_u64 << 20);
    assert_eq!(node["simulated"], true);
}

#[test]
fn csv_reads_as_from_nvidia_smi() {
    let daemon = Daemon::new();
    let query = "--query-slice=name,gpu,memory.used,memory.total";
    let ask = |format: &str| ending(&daemon.socket(), &["smi", query, format]).printed();
    assert_eq!(
        ask("--format=csv"),
        "name, gpu, memory.used [MiB], memory.total [MiB]\nfrac05, 0, 1000 MiB, 16255 MiB\n"
    );
    assert_eq!(ask("--format=csv,noheader"), "frac05, 0, 1000 MiB, 16255 MiB\n");
    assert_eq!(ask("--format=csv,noheader,nounits"), "frac05, 0, 1000, 16255\n");
    let gpus = ["smi", "--query-gpu=index,temperature.gpu,memory.free", "--format=csv,noheader"];
    assert_eq!(ending(&daemon.socket(), &gpus).printed(), "0, [N/A], 32510 MiB\n");
}

#[test]
fn unknown_fields_and_formats_name_the_known_ones() {
    let daemon = Daemon::new();
    ending(&daemon.socket(), &["smi", "--query-slice=name,colour"])
        .refused(2, &["\"colour\"", "memory.used", "--help-query-slice"]);
    ending(&daemon.socket(), &["smi", "--query-gpu=name", "--format=xml"]).refused(2, &["xml", "noheader"]);
    ending(&daemon.socket(), &["smi", "--format=csv"]).refused(2, &["--query-slice"]);
}

#[test]
fn the_fields_are_listed_without_a_daemon() {
    let nobody = "/nonexistent/tranched.sock".as_ref();
    assert!(ending(nobody, &["smi", "--help-query-slice"]).printed().contains("memory.used [MiB]"));
    assert!(ending(nobody, &["smi", "--help-query-gpu"]).printed().contains("power.draw [W]"));
}

#[test]
fn inside_a_slice_the_slice_is_the_gpu() {
    let daemon = Daemon::answering(|answers| answers.who_am_i = Some("frac05".into()));
    let drawn = ending(&daemon.socket(), &["smi"]).printed();
    assert!(drawn.contains("inside slice frac05"), "{drawn}");
    assert!(drawn.contains("1000 / 16255 MiB") && !drawn.contains("32768"), "{drawn}");
    assert!(drawn.contains("|   7 | trainer") && !drawn.contains("4242"), "{drawn}");
}

#[test]
fn a_slices_socket_leads_to_the_daemon_beside_it() {
    let daemon = Daemon::new();
    let mut command = tranche(&daemon.socket(), &["smi", "--query-gpu=memory.total"]);
    command.env_remove("TRANCHE_SOCKET").arg("--format=csv,noheader");
    command.env("TRANCHE_SLICE_SOCKET", daemon.folder().join("slices/frac05/attach.sock"));
    assert_eq!(Ending::of(&mut command).printed(), "16255 MiB\n");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let daemon = Daemon::new();
    for arguments in [&["smi"][..], &["smi", "--json"], &["slice", "list"], &["--help"]] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output =
            tranche(&daemon.socket(), arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let ending = Ending::from(output);
        assert_eq!((ending.status, ending.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn loop_repeats_without_clearing_a_pipe() {
    let daemon = Daemon::new();
    let mut command =
        tranche(&daemon.socket(), &["smi", "-l", "0.2", "--query-slice=name", "--format=csv,noheader"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let twice: Vec<_> = lines.take(2).map(Result::unwrap).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(twice, ["frac05", "frac05"]);
}

#[test]
fn the_doctor_names_what_it_finds() {
    let daemon = Daemon::answering(|answers| {
        let mut mig = answers.node.gpus[0].clone();
        mig.index = 1;
        mig.not_sliceable = Some("MIG is enabled".into());
        answers.node.gpus.push(mig);
    });
    let report = ending(&daemon.socket(), &["doctor", "--json"]);
    let checks: Vec<Value> = serde_json::from_str(&report.stdout).unwrap();
    let verdict = |name: &str| {
        let check = checks.iter().find(|check| check["check"] == name).unwrap();
        check["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!((verdict("daemon"), verdict("versions")), ("ok".into(), "ok".into()));
    assert_eq!((verdict("GPU 0"), verdict("GPU 1")), ("ok".into(), "warning".into()));
    let problems = checks.iter().filter(|check| check["verdict"] == "problem").count();
    assert_eq!(report.status, Some(i32::from(problems > 0)), "{report:?}");
}

#[test]
fn the_doctor_works_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let report = ending(&folder.path().join("tranched.sock"), &["doctor"]);
    assert_eq!((report.status, report.stderr.as_str()), (Some(1), ""), "all is in the report");
    // Compared without line breaks: the report is wrapped at an unknown width.
    let words = report.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["PROBLEM daemon cannot connect", "systemctl start tranched", "kernel", " problem"] {
        assert!(words.contains(part), "{part:?} is missing: {words}");
    }
}

#[test]
fn completions_and_man_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for what in ["completions", "man"] {
        let out = folder.path().join(what);
        let mut command = tranche("/nonexistent".as_ref(), &["generate", what, "--out"]);
        assert_eq!(Ending::of(command.arg(&out)).printed(), "");
    }
    let text = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
    assert!(text("completions/tranche.bash").contains("TRANCHE_COMPLETE=\"bash\""));
    assert!(text("completions/_tranche").contains("TRANCHE_COMPLETE"));
    assert!(text("completions/tranche.fish").contains("TRANCHE_COMPLETE"));
    assert!(text("man/tranche-run.1").contains("16Gi"));
    assert!(text("man/tranche.1").contains("tranche"));
    assert!(!text("man/tranche.1").contains("generate"), "it is for `make`, not for people");
}
