//! `tranche events`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tranche_rpc::v1;

use crate::daemon::Daemon;
use crate::tranche::ending;

/// An event of that age, in a slice or outside any.
fn event(seq: u64, age: Duration, slice: Option<&str>) -> v1::Event {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - age;
    v1::Event {
        seq,
        time_unix_ms: u64::try_from(time.as_millis()).unwrap(),
        severity: "warning".into(),
        kind: "foreign-process".into(),
        slice: slice.map(Into::into),
        gpu: None,
        pid: Some(4242),
        evidence: format!("number {seq}"),
        actor: None,
        cause: None,
    }
}

fn daemon() -> Daemon {
    const HOUR: Duration = Duration::from_secs(3600);
    Daemon::answering(|answers| {
        answers.events =
            vec![event(1, 2 * HOUR, None), event(2, HOUR / 60, Some("a")), event(3, Duration::ZERO, None)];
    })
}

#[test]
fn each_event_is_a_line_with_what_shows_it() {
    let daemon = daemon();
    let printed = |more: &[&str]| ending(&daemon.socket(), &[&["events"], more].concat()).printed();
    let all = printed(&[]);
    assert_eq!(all.lines().count(), 3, "{all}");
    assert!(
        all.lines().nth(1).unwrap().ends_with("warning foreign-process   slice a pid 4242: number 2"),
        "{all}"
    );
    assert_eq!(printed(&["--since", "10m"]).lines().count(), 2);
    assert_eq!(printed(&["--slice", "a"]).lines().count(), 1);
    assert_eq!(printed(&["-f"]), all, "a stream that ends, ends");
}

#[test]
fn in_json_each_event_is_an_object_on_a_line_of_its_own() {
    let text = ending(&daemon().socket(), &["events", "--json"]).printed();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[1]["kind"], &events[1]["slice"]), (&"foreign-process".into(), &"a".into()));
    assert_eq!((&events[2]["seq"], events[2].get("slice")), (&3.into(), None));
}

#[test]
fn event_of_unknown_severity_is_refused() {
    let daemon = Daemon::answering(|answers| {
        let odd = v1::Event { severity: "deafening".into(), ..event(1, Duration::ZERO, None) };
        answers.events = vec![odd];
    });
    ending(&daemon.socket(), &["events"]).refused(1, &["\"deafening\" is not a severity", "tranche doctor"]);
}
