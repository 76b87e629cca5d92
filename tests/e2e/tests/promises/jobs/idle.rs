//! GPUs that are held without use are named with their holders and durations in each view.

use std::time::Instant;

use e2e::{Node, eventually};
use serde::Deserialize;
use serde_json::Value;
use tranche_exposition::{Address, ask};

use super::{submit, until};

/// Short time without use after which a slice is idle.
const IDLE_SOON: &str = "idle_after_s = 2";

#[derive(Debug, Deserialize)]
struct Report {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    user: Option<String>,
    allocated_milligpu_ms: u64,
    idle_milligpu_ms: u64,
    used_us: u64,
}

fn report(node: &Node, by: &str) -> Vec<Row> {
    let text = node.tranche(&["report", "--by", by, "--since", "1h", "--json"]).success();
    serde_json::from_str::<Report>(&text).unwrap_or_else(|error| panic!("{error}: {text}")).rows
}

fn json(node: &Node, words: &[&str]) -> Vec<Value> {
    let text = node.tranche(words).success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn sixteen_gpus_held_by_thirteen_sleeping_jobs_are_idle() {
    let node = Node::configured("v100x16", IDLE_SOON);
    node.tranche(&["project", "create", "a", "--quota", "16"]).success();
    for number in 0..13 {
        let gpus = if number == 0 { "4" } else { "1" };
        submit(&node, &[&format!("j{number}"), "-g", gpus, "--", "sleep", "1000"]).success();
    }
    (0..13).for_each(|number| drop(until(&node, &format!("j{number}"), "running")));
    eventually("the project's GPUs are idle", || {
        let idle = json(&node, &["project", "list", "--json"])[0]["idle"].clone();
        if idle == 16_000 { Ok(()) } else { Err(idle.to_string()) }
    });
    let jobs = json(&node, &["list", "-A", "--json"]);
    let is_idle = |job: &Value| job["members"][0]["idle_ms"].as_u64().is_some_and(|idle| idle >= 2_000);
    assert_eq!(jobs.iter().filter(|job| is_idle(job)).count(), 13, "{jobs:?}");
    let found = || node.events().iter().filter(|event| event.kind == "slice-idle").count();
    eventually("an event names each", || if found() >= 13 { Ok(()) } else { Err(found().to_string()) });
    let metrics =
        ask(&Address::Unix(node.dir().join("run/metrics.sock")), "/metrics").expect("metrics are served");
    assert!(metrics.contains("tranche_project_idle_gpus{project=\"a\"} 16.0"), "{metrics}");
    assert_eq!(metrics.matches("user=\"root\"").count(), 13, "{metrics}");
    eventually("the account has idle time", || {
        let users = report(&node, "user");
        let [row] = &users[..] else { return Err(format!("{users:?}")) };
        let is_root = row.user.as_deref() == Some("root") && row.used_us == 0;
        let idles = row.idle_milligpu_ms > 16_000 * 500 && row.idle_milligpu_ms < row.allocated_milligpu_ms;
        if is_root && idles { Ok(()) } else { Err(format!("{row:?}")) }
    });
    assert_eq!((report(&node, "gpu").len(), found()), (16, 13), "each is named once");
    let table = node.tranche(&["report", "--by", "job"]).success();
    assert!(table.contains("a/j0") && table.contains("total"), "{table}");
}

#[test]
fn used_time_of_slices_is_that_of_the_gpu() {
    let node = Node::simulated("v100x8");
    let program = node.stage().workload().display().to_string();
    let work = |name: &str, kernel_ns: &str, launches: &str| {
        let program = [&program, "--kernel-ns", kernel_ns, "--launches", launches];
        node.run(&mut node.run_in_slice(&["-g", "0.5", "--name", name], &program)).success();
    };
    let start = Instant::now();
    work("long", "20000000", "150");
    work("longer", "100000000", "20");
    // Those that come and go between two regular rounds are entered as well.
    (0..8).for_each(|number| work(&format!("short{number}"), "5000000", "20"));
    let (device, elapsed) = (node.timeline(0).busy().as_secs_f64(), start.elapsed().as_secs_f64());
    assert!(device > 5.5, "{device} s");
    eventually("the account has all of it", || {
        let rows = report(&node, "job");
        let used = rows.iter().map(|row| row.used_us).sum::<u64>() as f64 / 1e6;
        // Nothing is lost, and nothing is counted twice: one program ran at a time. On a busy host the end of work is noticed
        // late, and charged until then.
        let is_right = (0.99 * device..=elapsed).contains(&used) && rows.len() == 10;
        if is_right { Ok(()) } else { Err(format!("{used} s of {device} s in {elapsed} s: {rows:?}")) }
    });
}
