//! Hostile names of programs and objects are shown as one visible line in every output.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use e2e::{Node, Outcome, Process, Tenant, eventually};
use tranche_domain::text::is_visible;
use tranche_domain::units::Bytes;
use tranche_exposition::{Address, ask};

/// A name that clears screens, forges lines, sets titles and turns the direction of writing.
///
/// It also contains invisible characters and is no text. Of a process's name, the kernel keeps the first fifteen bytes.
const HOSTILE: &[u8] =
    b"x\x1b[2J\nFORGED\x07\r\x1b]0;t\xc2\x9b31m\xe2\x80\xae\xe2\x80\x8b\xe2\x80\xa8\xef\xbb\xbf\xf3\xa0\x81\x81\xff";

/// Copies a program to that name; returns the path of the copy.
fn hostile(node: &Node, program: &OsStr) -> PathBuf {
    let path = node.dir().join(OsStr::from_bytes(HOSTILE));
    let _ = std::fs::remove_file(&path);
    node.run(node.command("cp").arg(program).arg(&path)).success();
    path
}

/// Fails if a text contains invisible characters or a forged line.
#[track_caller]
fn is_harmless(what: &str, text: &str) {
    let bad = text.chars().find(|letter| *letter != '\n' && !is_visible(*letter));
    assert!(bad.is_none(), "{what} has {bad:?} in it:\n{text:?}");
    let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
    assert!(forged.is_none(), "{what} has a line that another program wrote:\n{text}");
}

#[track_caller]
fn all_of_it_is_harmless(outcome: &Outcome) {
    is_harmless(&outcome.command, &outcome.stdout);
    is_harmless(&outcome.command, &outcome.stderr);
}

#[test]
fn hostile_process_names_are_harmless_in_every_output() {
    let node = Node::simulated("h200x1");
    let member = hostile(&node, Tenant::program().as_os_str());
    let _tenant = node.tenant_of(&mut node.run_in_slice(&["-g", "0.5", "--name", "a"], &[member])).ready();
    // Not a copy of a program whose behaviour depends on its name.
    let foreign = hostile(&node, OsStr::new("/bin/bash"));
    let foreign = Process::start(node.command(foreign).args(["-c", "sleep 1000; true"]));
    node.own_driver_takes(0, foreign.pid(), Bytes::mib(1024));
    eventually("it is seen", || {
        let events = node.events();
        let seen = events.iter().any(|event| event.kind == "foreign-process");
        if seen { Ok(()) } else { Err(format!("{events:?}")) }
    });
    for arguments in [
        &["smi"][..],
        &["smi", "--json"],
        &["events"],
        &["events", "--json"],
        &["slice", "list"],
        &["slice", "list", "--json"],
        &["slice", "show", "a"],
        &["slice", "show", "a", "--json"],
        &["gpu", "list"],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        let outcome = node.tranche(arguments);
        assert!(outcome.stdout.len() > 20, "{outcome}");
        all_of_it_is_harmless(&outcome);
    }
    let smi = node.tranche(&["smi", "--json"]).success();
    assert_eq!(smi.matches("x\\\\u{1b}[2J\\\\nFORGED").count(), smi.matches("FORGED").count(), "{smi}");
    assert!(smi.matches("FORGED").count() >= 2, "both are named:\n{smi}");
    let metrics = Address::Unix(node.dir().join("run/metrics.sock"));
    is_harmless("the metrics", &ask(&metrics, "/metrics").expect("it answers"));
    is_harmless("the log", &node.daemon_log());
}

#[test]
fn hostile_arguments_are_harmless_in_messages() {
    let node = Node::simulated("h200x1");
    node.tranche(&["project", "create", "a", "--quota", "1"]).success();
    let word = String::from_utf8_lossy(HOSTILE).into_owned();
    let word = word.as_str();
    for arguments in [
        &["slice", "show", word][..],
        &["slice", "create", word],
        &["slice", "create", "b", "-g", word],
        &["slice", "label", "b", "--pod", word],
        &["gpu", "cordon", "0", "--reason", word],
        &["gpu", "cordon", word],
        &["events", "--since", word],
        &["describe", word, "-p", word],
        &["submit", word, "-p", "a", "-g", "1", "--", "true"],
        &["--socket", word, "smi"],
        &[word],
    ] {
        let outcome = node.tranche(arguments);
        assert_ne!(outcome.code, Some(0), "{outcome}");
        is_harmless(&format!("{arguments:?}"), &outcome.stderr);
        is_harmless(&format!("{arguments:?}"), &outcome.stdout);
    }
    node.tranche(&["submit", "b", "-p", "a", "-g", "1", "--", "/bin/sleep", word]).success();
    for arguments in [&["describe", "b", "-p", "a"][..], &["list"], &["describe", "b", "-p", "a", "--json"]] {
        all_of_it_is_harmless(&node.tranche(arguments));
    }
    all_of_it_is_harmless(&node.tranche(&["events"]));
    is_harmless("the log", &node.daemon_log());
}
