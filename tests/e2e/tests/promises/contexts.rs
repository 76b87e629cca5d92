//! Promises 1 and 7 for libraries, variables and pointers of contexts.
//!
//! Libraries are charged in each context, variables by the meaning of their declaration, and missing pointers are
//! answered as by the driver.

use std::path::PathBuf;

use e2e::{Node, Process, compile};
use tranche_domain::units::Bytes;

/// An old driver and a new one.
const DRIVERS: [&str; 2] = ["550", "610"];

#[track_caller]
fn client() -> PathBuf {
    compile("tests/e2e/clients/contexts.c", &["-ldl"]).unwrap_or_else(|complaint| panic!("{complaint}"))
}

#[test]
fn missing_pointers_are_answered_as_by_the_driver() {
    for driver in DRIVERS {
        let node = Node::with_driver("v100x8", driver);
        let bare = node.run(node.command(client()).arg("nulls"));
        let inside =
            node.run(&mut node.run_in_slice(&["-g", "0.5"], &[client().as_os_str(), "nulls".as_ref()]));
        assert_eq!((bare.code, inside.code), (Some(0), Some(0)), "{driver}: {bare}\n{inside}");
        assert_eq!(inside.stdout, bare.stdout, "driver {driver}");
        assert!(inside.stdout.contains("the same 1\n"), "driver {driver}: {inside}");
    }
}

#[test]
fn variables_larger_than_the_slice_are_refused_however_written() {
    let gib = [
        ".global .b8 buf[0x40000000];",
        ".global .b8 buf[010000000000];",
        ".global .b8 buf[0b1000000000000000000000000000000];",
        ".global .b8 buf[1073741824U];",
        ".global .align 16 .b8 buf[1024 * 1024 * 1024];",
        ".global .v2 .b32 a, buf[0x8000][0x1000];",
        ".const .f16x2 buf[1 << 28];",
        ".global .attribute(.managed) .b64 buf[/* large */ 0x8000000];",
        ".visible.global.b64 buf<134217728>;",
        ".global .b8 buf[UNKNOWN];",
    ];
    for driver in DRIVERS {
        let node = Node::with_driver("v100x8", driver);
        let program = client();
        let words: Vec<_> = [program.as_os_str(), "variables".as_ref()]
            .into_iter()
            .chain(gib.iter().map(|text| std::ffi::OsStr::new(*text)))
            .collect();
        let outcome = node.run(&mut node.run_in_slice(&["--memory", "900Mi"], &words));
        assert_eq!(outcome.stdout, "load 2\n".repeat(gib.len()), "driver {driver}: {outcome}");
    }
}

#[test]
fn libraries_are_charged_in_every_context() {
    for driver in DRIVERS {
        let node = Node::with_driver("v100x8", driver);
        let program = client();
        let options = ["--memory", "3Gi", "--gpu", "0", "--name", "mine"];
        let words =
            ["env".as_ref(), "CUDA_MODULE_LOADING=EAGER".as_ref(), program.as_os_str(), "libraries".as_ref()];
        let mut process = Process::start(&mut node.run_in_slice(&options, &words));
        assert_eq!(process.line().as_deref(), Some("loaded 3"), "driver {driver}");
        let created = process.line().unwrap_or_default();
        let slice = node.slice("mine");
        let held = node.device().held_by(0, &slice.pids());
        assert!(held >= Bytes::mib(600), "driver {driver}: {held}");
        assert!(held <= slice.used() && slice.used() <= slice.cap(), "{driver}: {held} of {}", slice.used());
        // Two contexts, and those that were created after the libraries were loaded.
        let contexts: u64 = 2 + created.strip_prefix("created ").and_then(|n| n.parse().ok()).unwrap_or(0);
        assert!(contexts >= 3, "driver {driver}: {created}");
        assert!(slice.used() >= Bytes::mib(contexts * 300), "{driver}: {} in {contexts}", slice.used());
        process.say("go on");
        assert_eq!(process.end().code, Some(0));
    }
}
