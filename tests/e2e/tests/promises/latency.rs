//! Latency targets: admitted, counted, kept over a restart, or refused.

use std::thread::sleep;

use e2e::{Node, eventually};

use crate::load::{Load, MEASURE, SATURATING, SETTLE, alone};

/// Exit code of a refusal.
const REFUSED: i32 = 1;

#[test]
fn waits_of_a_slice_with_a_target_are_counted_and_shown() {
    let _alone = alone();
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "service", "-g", "0.4", "--latency", "50ms"]).success();
    node.tranche(&["slice", "create", "plain", "-g", "0.2"]).success();
    let _service = Load::endless(&node, &["--slice", "service"], "bursts", &[]);
    let _plain = Load::endless(&node, &["--slice", "plain"], "bursts", &[]);
    let _training = Load::start(&node, &["-g", "0.4"], SATURATING);
    sleep(MEASURE);
    let (service, plain) = (node.slice("service"), node.slice("plain"));
    assert_eq!((service.latency, plain.latency), (Some(50_000), None));
    assert!(service.waits.count > 50, "{:?}", service.waits);
    // On a machine that others use a wake-up may take long.
    assert!(service.waits.late <= service.waits.count / 10, "{:?}", service.waits);
    assert_eq!(plain.waits.count, 0);
    let shown = node.tranche(&["slice", "show", "service"]).success();
    assert!(shown.contains("latency   50 ms; "), "{shown}");
    let query = ["smi", "--query-slice=name,latency.target,latency.waits", "--format=csv,noheader,nounits"];
    let rows = node.tranche(&query).success();
    assert!(rows.lines().any(|row| row.starts_with("service, 50, ")), "{rows}");
}

#[test]
fn target_that_cannot_be_held_is_refused() {
    let mut node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "a", "-g", "0.2", "--latency", "3ms"]).success();
    let create = ["slice", "create", "b", "-g", "0.2", "--latency"];
    node.tranche(&[&create[..], &["50ms"]].concat())
        .refused(REFUSED, &["50 ms", "gpu 0", "least 4 ms", "3 ms"]);
    node.tranche(&[&create[..], &["1ms"]].concat()).refused(2, &["2 ms to 10 s"]);
    node.tranche(&[&create[..], &["soon"]].concat()).refused(2, &["5ms"]);
    let best_effort = [&create[..], &["9ms", "--compute-mode", "best-effort"]].concat();
    node.tranche(&best_effort).refused(REFUSED, &["best-effort"]);
    assert_eq!(node.smi().slices.len(), 1);
    node.stop_daemon().success();
    node.start_daemon();
    assert_eq!(node.slice("a").latency, Some(3_000));
    node.tranche(&["slice", "delete", "a"]).success();
    node.tranche(&[&create[..], &["50ms"]].concat()).success();
}

#[test]
fn resized_target_takes_effect_at_once_and_is_kept() {
    let _alone = alone();
    let mut node = Node::simulated("h200x1");
    let resize = |node: &Node, name: &str, latency: &str| {
        node.tranche(&["slice", "resize", name, "--latency", latency])
    };
    for (name, share) in [("service", "0.4"), ("other", "0.2")] {
        node.tranche(&["slice", "create", name, "-g", share]).success();
    }
    // Waits count while a slice is within its share, and it uses more where others leave theirs.
    let _services = ["service", "other"].map(|name| Load::endless(&node, &["--slice", name], "bursts", &[]));
    let _training = Load::start(&node, &["-g", "0.4"], SATURATING);
    sleep(SETTLE);
    assert_eq!(node.slice("service").waits.count, 0, "no wait is counted without a target");
    let told = resize(&node, "service", "3ms").success();
    assert!(told.contains("latency 3 ms"), "{told}");
    eventually("waits are counted", || match node.slice("service").waits.count {
        0 => Err("none is".to_string()),
        _ => Ok(()),
    });
    resize(&node, "other", "50ms").refused(REFUSED, &["50 ms", "gpu 0", "least 4 ms", "3 ms"]);
    assert_eq!(node.slice("other").latency, None);
    resize(&node, "service", "1ms").refused(2, &["2 ms to 10 s"]);
    resize(&node, "service", "4ms").success();
    resize(&node, "other", "50ms").success();
    resize(&node, "service", "none").success();
    node.stop_daemon().success();
    node.start_daemon();
    assert_eq!(["service", "other"].map(|name| node.slice(name).latency), [None, Some(50_000)]);
}
