//! An error of the daemon itself ends it at once and is logged; its successor takes over.
#![allow(clippy::unwrap_used, reason = "in a test, a failure is the answer")]

use std::path::Path;

use chaos::points::{AIM, Aim, PANICS};
use e2e::{Counted, Kind, Node, eventually};
use tranche_domain::units::Bytes;
use tranche_exposition::{Address, ask};

fn fetched(node: &Node, path: &str) -> Result<String, String> {
    ask(&Address::Unix(node.dir().join("run/metrics.sock")), path).map_err(|error| error.to_string())
}

/// Waits until the GPUs have been sampled twice more.
fn samples_continue(node: &Node) {
    let age = || -> Result<f64, String> {
        let page = fetched(node, "/metrics")?;
        let line = page.lines().find_map(|line| line.strip_prefix("tranche_last_sample_age_seconds "));
        line.and_then(|text| text.parse().ok()).ok_or(page)
    };
    let mut before = age().unwrap();
    for _ in 0..2 {
        // The age grows until the next sample.
        eventually("the GPUs are sampled again", || {
            let (last, now) = (before, age()?);
            before = now;
            if now < last { Ok(()) } else { Err(format!("{now} s ago")) }
        });
    }
}

#[test]
fn panic_in_sampling_ends_the_daemon_and_its_successor_samples() {
    let mut node = Node::without_daemon("v100x8");
    node.configure(&format!("shim = '{}'\n", node.stage().shim().display()));
    let usual = node.stage().daemon();
    let aim = Aim { point: "sampler: looks".into(), passing: 6 };
    let doomed = Path::new(env!("CARGO_BIN_EXE_tranched-with-points")).to_owned();
    node.set_daemon(doomed, vec![(AIM, aim.text().into()), (PANICS, "yes".into())]);
    node.start_daemon();
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "half"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(2048)).unwrap();
    eventually("the daemon ends", || if node.daemon_runs() { Err("it runs".to_string()) } else { Ok(()) });
    let log = node.daemon_log();
    assert!(log.contains("an error of the daemon itself at") && log.contains("told to panic"), "{log}");
    // Without a daemon no probe answers, so that none blames the driver.
    assert!(fetched(&node, "/readyz").is_err() && fetched(&node, "/healthz").is_err());
    node.set_daemon(usual, Vec::new());
    node.start_daemon();
    eventually("it is ready", || fetched(&node, "/readyz").map(drop));
    samples_continue(&node);
    assert_eq!(node.slice("half").pids(), [tenant.pid()]);
    tenant.alloc(Kind::Plain, Bytes::mib(2048)).expect("it gets more from the next daemon");
}

/// Tenants write each number in a record, and sums and products of them overflow. Built with overflow checks.
#[test]
fn numbers_that_would_overflow_neither_end_the_daemon_nor_its_sampling() {
    let mut node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "pair", "-g", "0.5"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "pair"]).ready());
    for number in [u64::MAX, 1 << 63, u64::MAX / 2, u64::MAX - 1, 1 << 32] {
        for seat in 0..2 {
            Counted::of(&node, "pair", seat).overwrite(number);
        }
        samples_continue(&node);
    }
    assert!(node.daemon_runs());
    fetched(&node, "/readyz").unwrap();
    node.smi();
    tenants[0].alloc(Kind::Plain, Bytes::mib(256)).expect("the others' memory is not touched by that");
}
