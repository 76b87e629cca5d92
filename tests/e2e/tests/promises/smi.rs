//! `tranche smi` as a table, and for scripts.

use std::time::Duration;

use e2e::{Kind, Node, Process, eventually};
use tranche_domain::units::Bytes;

#[test]
fn the_table_shows_gpus_slices_and_processes() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "train"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(1000)).unwrap();
    let pid = tenant.pid();
    let table = node.tranche(&["smi"]).success();
    let uses = node.slice("train").used().whole_mib().to_string();
    for word in ["V100", "train", &pid.to_string(), "16255", &uses, "SIMULATED", "compute: GPU time"] {
        assert!(table.contains(word), "{word:?} is not in\n{table}");
    }
    let widest = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= 120, "the table is {widest} columns wide\n{table}");
}

#[test]
fn an_empty_node_is_shown_without_ado() {
    let node = Node::simulated("h200x1");
    let table = node.tranche(&["smi"]).success();
    assert!(table.contains("H200"), "{table}");
}

#[test]
fn slices_can_be_queried_as_csv() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "one", "-g", "0.5", "--gpu", "0"]).success();
    node.tranche(&["slice", "create", "two", "-g", "2"]).success();
    let fields = node.tranche(&["smi", "--help-query-slice"]).success();
    for field in ["name", "gpu.uuid", "memory.total", "memory.used"] {
        assert!(fields.contains(field), "{field:?} is not in\n{fields}");
    }
    let query = "--query-slice=name,gpu,memory.total,memory.used";
    let with_header = node.tranche(&["smi", query, "--format=csv"]).success();
    let lines: Vec<&str> = with_header.lines().collect();
    assert_eq!(lines.len(), 4, "a header, one line for `one` and two for `two`\n{with_header}");
    assert!(lines[0].starts_with("name, gpu, memory.total"), "{with_header}");
    assert!(lines[1].starts_with("one, 0, 16255 MiB, 0 MiB"), "{with_header}");
    let bare = node.tranche(&["smi", query, "--format=csv,noheader,nounits"]).success();
    assert_eq!(bare.lines().next(), Some("one, 0, 16255, 0"), "{bare}");
    assert_eq!(bare.lines().count(), 3);
}

#[test]
fn gpus_can_be_queried_as_csv() {
    let node = Node::simulated("v100x8");
    let query = "--query-gpu=index,uuid,memory.total";
    let output = node.tranche(&["smi", query, "--format=csv,noheader,nounits"]).success();
    assert_eq!(output.lines().count(), 8, "{output}");
    let first = format!("0, {}, 32768", node.smi().gpus[0].uuid);
    assert_eq!(output.lines().next(), Some(first.as_str()));
}

#[test]
fn an_unknown_field_is_named() {
    let node = Node::simulated("h200x1");
    let outcome = node.tranche(&["smi", "--query-slice=name,colour", "--format=csv"]);
    assert_ne!(outcome.code, Some(0));
    outcome.refused(outcome.code.unwrap(), &["colour", "--help-query-slice"]);
}

#[test]
fn loop_option_repeats_the_output() {
    let node = Node::simulated("h200x1");
    let mut process = Process::start(node.command(node.stage().command()).args([
        "smi",
        "-l",
        "1",
        "--query-slice=name",
        "--format=csv,noheader",
    ]));
    std::thread::sleep(Duration::from_millis(100));
    node.tranche(&["slice", "create", "late", "-g", "0.5"]).success();
    for _ in 0..2 {
        assert_eq!(process.line().as_deref(), Some("late"));
    }
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let node = Node::simulated("v100x8");
    let command = node.stage().command();
    let script = format!("{} smi -l 1 | head -n 1", command.display());
    let outcome = node.run(node.command("sh").args(["-c", &script]));
    assert_eq!(outcome.stderr, "", "{outcome}");
}

#[test]
fn use_is_shown_as_it_changes() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "train"]).ready();
    let idle = node.slice("train").used();
    let piece = tenant.alloc(Kind::Plain, Bytes::mib(1024)).unwrap();
    assert_eq!(node.slice("train").used(), idle.saturating_add(Bytes::mib(1024)));
    tenant.free(piece).unwrap();
    assert_eq!(node.slice("train").used(), idle);
    let pid = tenant.pid();
    eventually("the GPU's own figure follows", || {
        let (shown, held) = (node.smi().gpus[0].used, node.device().held_by(0, &[pid]));
        if shown >= held { Ok(()) } else { Err(format!("{shown} shown, {held} held")) }
    });
}
