//! A job that uses its GPU one percent of the time is idle in no view at any time.

use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use e2e::{Node, Snapshot, eventually};
use serde_json::Value;
use tranche_exposition::{Address, ask};

use super::{submit, until};
use crate::page::Page;

/// A time without use that is long for a program of one percent, even on a busy host.
const IDLE_AFTER: Duration = Duration::from_secs(8);
/// Number of looks for each view.
const LOOKS: u32 = 1_000;
/// Least time over which they are spread, so that they last longer than [`IDLE_AFTER`].
const PERIOD: Duration = Duration::from_secs(9);

/// Repeats a look over the period; fails at the first complaint.
#[track_caller]
fn looks(view: &str, mut look: impl FnMut() -> Result<(), String>) {
    let begin = Instant::now();
    for number in 1..=LOOKS {
        sleep((PERIOD * number / LOOKS).saturating_sub(begin.elapsed()));
        if let Err(complaint) = look() {
            panic!("{view}, look {number}: {complaint}");
        }
    }
}

/// Standard output of `tranche`, without the pauses of a wait with a limit.
fn output(node: &Node, arguments: &[&str]) -> Result<String, String> {
    let mut command: Command = node.command(node.stage().command());
    command.args(arguments).env("COLUMNS", "120").env("LINES", "40");
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{output:?}")) }
}

/// Error unless, of these parts of a view, that of `held` has the word idle and that of `busy` has not.
fn judged<'a>(parts: impl Iterator<Item = &'a str> + Clone, whole: &str) -> Result<(), String> {
    let idle = |name: &str| {
        let mut of = parts.clone().filter(|part| part.contains(name));
        of.next().map(|first| first.contains("idle") || of.any(|part| part.contains("idle")))
    };
    match (idle("held"), idle("busy")) {
        (Some(true), Some(false)) => Ok(()),
        other => Err(format!("held and busy are idle: {other:?} in\n{whole}")),
    }
}

fn look_at_smi(node: &Node) -> Result<(), String> {
    let text = output(node, &["smi", "--json"])?;
    let smi: Snapshot = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let idle = smi.slices.iter().filter(|slice| slice.idle_ms.is_some());
    let idle: Vec<&str> = idle.map(|slice| slice.name.as_str()).collect();
    if smi.slices.len() == 2 && idle == ["a.held.0"] { Ok(()) } else { Err(text) }
}

fn look_at_top(node: &Node) -> Result<(), String> {
    let frame = output(node, &["top", "--once"])?;
    judged(frame.lines(), &frame)?;
    let sums = "0.6 allocated (0.3 idle) | 2 running, 0 pending";
    if frame.contains(sums) { Ok(()) } else { Err(frame) }
}

fn look_at_page(page: &Page) -> Result<(), String> {
    let html = page.get("/")?;
    judged(html.split("<tr").skip(1).filter_map(|row| row.split("</tr>").next()), &html)?;
    if !html.contains("1 job, longest") {
        return Err(html);
    }
    let overview = page.overview()?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let jobs = list(&overview["jobs"]);
    let parts: Vec<Value> = list(&overview["gpus"]).iter().flat_map(|gpu| list(&gpu["parts"])).collect();
    let idle = |of: &[Value], name: &str| {
        let idle = of.iter().filter(|row| !row["idle_ms"].is_null());
        idle.map(|row| row[name].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let is_right = idle(&jobs, "name") == ["held"] && idle(&parts, "job") == ["a/held"];
    let has_all = jobs.len() == 2 && parts.len() == 2 && overview["figures"]["idle_milligpus"] == 300;
    if is_right && has_all { Ok(()) } else { Err(overview.to_string()) }
}

fn look_at_metrics(address: &Address) -> Result<(), String> {
    let metrics = ask(address, "/metrics").map_err(|error| error.to_string())?;
    let idle = metrics.lines().filter(|line| line.starts_with("tranche_slice_idle_seconds{"));
    let busy: Vec<&str> = idle.clone().filter(|line| line.ends_with(" 0.0")).collect();
    let is_right = idle.count() == 2 && busy.len() == 1 && busy[0].contains("slice=\"a.busy.0\"");
    let sum = "tranche_project_idle_gpus{project=\"a\"} 0.3";
    if is_right && metrics.contains(sum) { Ok(()) } else { Err(metrics) }
}

#[test]
fn job_of_one_percent_is_idle_in_none_of_a_thousand_looks_at_each_view() {
    let node = Node::configured("v100x8", &format!("idle_after_s = {}", IDLE_AFTER.as_secs()));
    node.tranche(&["project", "create", "a", "--quota", "8"]).success();
    let workload = node.stage().workload();
    let now_and_then = format!(
        "while :; do {} --kernel-ns 10000000 --launches 1 >/dev/null; sleep 0.9; done",
        workload.display()
    );
    submit(&node, &["busy", "-g", "0.3", "--", "sh", "-c", &now_and_then]).success();
    submit(&node, &["held", "-g", "0.3", "--", "sleep", "1000"]).success();
    ["busy", "held"].iter().for_each(|name| drop(until(&node, name, "running")));
    let (page, metrics) = (Page::of(&node), Address::Unix(node.dir().join("run/metrics.sock")));
    eventually("the other is idle in each view", || {
        look_at_smi(&node).and_then(|()| look_at_page(&page)).and_then(|()| look_at_metrics(&metrics))
    });
    scope(|views| {
        views.spawn(|| looks("tranche smi", || look_at_smi(&node)));
        views.spawn(|| looks("tranche top", || look_at_top(&node)));
        views.spawn(|| {
            looks("page and metrics", || look_at_page(&page).and_then(|()| look_at_metrics(&metrics)));
        });
    });
    assert_eq!(node.tranche(&["list", "--filter", "state=idle", "-o", "name"]).success(), "held\n");
    let idle = node.events().into_iter().filter(|event| event.kind == "slice-idle");
    assert_eq!(idle.filter_map(|event| event.slice).collect::<Vec<_>>(), ["a.held.0"]);
    eventually("the account has the idle time of the other alone", || {
        let report = node.tranche(&["report", "--by", "job", "--since", "1h", "--json"]).success();
        let report: Value = serde_json::from_str(&report).map_err(|error| error.to_string())?;
        let idle_ms = |name: &str| {
            let mut rows = report["rows"].as_array().into_iter().flatten();
            rows.find(|row| row["name"] == name).and_then(|row| row["idle_milligpu_ms"].as_u64())
        };
        match (idle_ms("busy"), idle_ms("held")) {
            (Some(0), Some(1..)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
