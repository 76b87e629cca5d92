//! `tranche-page` from the outside: what it serves, what it refuses, and what it withstands.
#![allow(clippy::unwrap_used)] // a failed unwrap names its line

mod browser;
mod fake;
mod node;
mod server;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tranche_rpc::v1;

use fake::Daemon;
use server::Page;

/// Waits until a condition holds, at most 20 s.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}: still not so");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn thirteen_idle_jobs_on_sixteen_gpus_are_named() {
    let daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &[]);
    let overview = page.overview();
    let figures = [
        ("gpus", 16),
        ("allocated_milligpus", 16_000),
        ("idle_milligpus", 16_000),
        ("running", 13),
        ("pending", 2),
    ];
    for (name, value) in figures {
        assert_eq!(overview["figures"][name], value, "{name}");
    }
    let jobs = overview["jobs"].as_array().unwrap();
    assert!(jobs.len() == 13 && jobs.iter().all(|job| job["idle_ms"].as_u64() >= Some(720_000)));
    assert!(jobs.iter().all(|job| job["user"] == "root" && job["run_ms"].as_u64() >= Some(7_200_000)));
    let html = page.get("/").body;
    assert!(html.contains("<dt>Idle allocated</dt><dd>16</dd>") && html.contains("13 jobs, longest 12 min"));
    for number in 0..13 {
        assert!(html.contains(&format!("<td>sleep-{number}</td>")), "sleep-{number} is missing");
    }
}

#[test]
fn text_of_the_daemon_stays_text_and_its_secrets_stay_there() {
    let daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &[]);
    let (html, json) = (page.get("/"), page.get("/api/v1/overview"));
    assert!(html.body.contains("&lt;script&gt;document.title=1&lt;/script&gt;&lt;img"));
    assert_eq!(html.body.matches("<script").count(), 1, "the page's own");
    assert!(!html.body.contains("<img"));
    for answer in [html, json] {
        assert!(!answer.body.contains("SECRET"), "{}", answer.body);
        assert!(answer.head.contains("\r\nx-content-type-options: nosniff"), "{}", answer.head);
        let policy = answer.head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
    }
}

#[test]
fn page_of_a_large_node_is_below_200_kb() {
    let daemon = Daemon::with(node::large());
    let page = Page::start(&daemon.socket(), &[]);
    let html = page.get("/").body;
    let rest: usize =
        ["/page.css", "/page.js", "/icon.svg"].map(|path| page.get(path).body.len()).iter().sum();
    eprintln!("page of 16 GPUs, 64 slices, 200 jobs: {} bytes, style, script and icon {rest}", html.len());
    assert!(html.len() + rest < 200_000, "{} and {rest} bytes", html.len());
    assert!(html.contains("train-resnet50-0199") && html.contains("slice-063"));
}

#[test]
fn change_arrives_in_the_stream_within_three_seconds() {
    let daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &[]);
    let mut events = page.events();
    events.find(|line| line.contains("sleep-12")).expect("the state of the beginning");
    for number in 0..3 {
        sleep(Duration::from_millis(700));
        let name = format!("new-{number}");
        daemon.change(|script| script.jobs.push(node::pending("team-1", &name)));
        let changed = Instant::now();
        events.find(|line| line.starts_with("data:") && line.contains(&name)).expect("the change comes");
        assert!(changed.elapsed() < Duration::from_secs(3), "{:?}", changed.elapsed());
    }
}

#[test]
fn requests_for_other_names_and_other_methods_are_refused() {
    let daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &["--host", "gpu1.example"]);
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example", 403),
        ("GET /api/v1/overview HTTP/1.1\r\nHost: evil.example:80", 403),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost", 403),
        ("GET /events HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site", 403),
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1\r\nHost: GPU1.example", 200),
        ("GET / HTTP/1.1\r\nHost: [::1]:9", 200),
        ("HEAD / HTTP/1.1\r\nHost: localhost", 200),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0", 405),
        ("DELETE /api/v1/overview HTTP/1.1\r\nHost: localhost", 405),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost", 404),
    ] {
        let answer = page.ask(head);
        assert_eq!(answer.status, status, "{head}: {answer:?}");
        assert!(status == 200 || !answer.body.contains("sleep-"), "{head}");
    }
}

#[test]
fn thousand_slow_connections_do_not_stop_it() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4096).min(hard), hard).unwrap();
    let daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &[]);
    let mut events = page.events();
    events.find(|line| line.contains("sleep-12")).expect("the state of the beginning");
    let slow: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = page.connect();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHo"); // or it has made room already
            stream
        })
        .collect();
    let begin = Instant::now();
    assert_eq!(page.get("/").status, 200);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    // A stream that was there before has not made room.
    daemon.change(|script| script.jobs.push(node::pending("team-1", "later")));
    events.find(|line| line.contains("later")).expect("the change comes");
    drop(slow);
}

#[test]
fn streams_are_bounded_and_pages_are_not() {
    let daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &[]);
    let streams: Vec<_> = (0..40).map(|_| page.events().next().unwrap()).collect();
    assert!(streams.iter().all(|line| line.contains("200")), "those that end make room");
    let mut open: Vec<_> = (0..40).map(|_| page.events()).collect();
    let answers: Vec<_> = open.iter_mut().map(|lines| lines.next().unwrap()).collect();
    assert_eq!(answers.iter().filter(|line| line.contains("503")).count(), 8, "{answers:?}");
    assert_eq!(page.get("/").status, 200);
}

#[test]
fn daemon_that_goes_away_leaves_its_last_state_with_a_note() {
    let mut daemon = Daemon::with(node::sleeping());
    let page = Page::start(&daemon.socket(), &[]);
    assert_eq!(page.overview()["figures"]["running"], 13);
    daemon.stop();
    eventually("the page has a note", || page.get("/").body.contains("gpu1 does not answer"));
    assert!(page.get("/").body.contains("sleep-12"));
    assert_eq!(page.get("/api/v1/overview").status, 503);
    daemon.start();
    eventually("the note is gone", || !page.get("/").body.contains("gpu1 does not answer"));
}

/// A server that sends this to each connection and then keeps it open.
fn strange(answer: &'static [u8], times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    spawn(move || {
        for stream in listener.incoming() {
            spawn(move || {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = (0..times).try_for_each(|_| stream.write_all(answer));
                sleep(Duration::from_secs(30));
            });
        }
    });
    address
}

#[test]
fn other_nodes_are_shown_and_silent_ones_take_nothing_down() {
    let (here, there) = (Daemon::with(node::sleeping()), Daemon::with(node::large()));
    let other = Page::start(&there.socket(), &[]);
    let silent = strange(b"", 0);
    let endless =
        strange(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n[[[[[[[[[[[[[[[[[[[[[[[[[", 100_000);
    let liar = strange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<p>\r\n", 1);
    let sent =
        strange(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/SECRET\r\nContent-Length: 0\r\n\r\n", 1);
    let nodes = [
        format!("gpu2=http://127.0.0.1:{}", other.port),
        format!("silent={silent}"),
        format!("endless={endless}"),
        format!("liar={liar}"),
        format!("sent={sent}"),
    ];
    let arguments: Vec<&str> = nodes.iter().flat_map(|node| ["--node", node]).collect();
    let page = Page::start(&here.socket(), &arguments);
    let begin = Instant::now();
    assert!(page.get("/").body.contains("sleep-12"));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    eventually("the other node is shown", || page.get("/").body.contains("Running jobs on gpu2"));
    eventually("the others are not", || {
        let html = page.get("/").body;
        ["silent", "endless", "liar", "sent"]
            .iter()
            .all(|name| html.contains(&format!("{name} has not answered yet")))
    });
    let html = page.get("/").body;
    // 16 GPUs here and there; of the six nodes two answer.
    assert!(html.contains("<dt>GPUs</dt><dd>32</dd>") && html.contains("2 of them answer"), "{html}");
    assert!(!html.contains("SECRET") && html.len() < 200_000, "{} bytes", html.len());
    // The JSON is of the own node alone, so that nodes may read each other.
    assert_eq!(page.overview()["figures"]["gpus"], 16);
    drop(other);
    eventually("the other node is marked", || page.get("/").body.contains("gpu2 does not answer"));
    assert!(page.get("/").body.contains("train-resnet50-0000"));
}

#[test]
fn overview_keeps_the_fields_of_its_description() {
    let daemon = Daemon::with(node::sleeping());
    let overview = Page::start(&daemon.socket(), &[]).overview();
    let documented = include_str!("../../../../docs/page.md");
    let mut missing = Vec::new();
    let mut check = |value: &Value| {
        let names = value.as_object().into_iter().flat_map(|fields| fields.keys());
        missing.extend(names.filter(|name| !documented.contains(&format!("`{name}`"))).cloned());
    };
    check(&overview);
    check(&overview["figures"]);
    check(&overview["allocation"]);
    check(&overview["allocation"]["bands"][0]);
    ["projects", "jobs", "pending", "gpus"].iter().for_each(|list| check(&overview[list][0]));
    check(&overview["gpus"][0]["parts"][0]);
    assert!(missing.is_empty(), "docs/page.md does not describe {missing:?}");
}

#[test]
fn bad_arguments_are_refused() {
    for (arguments, part) in [
        (vec!["--listen", "9465"], "9465"),
        (vec!["--node", "gpu2"], "write NAME=URL"),
        (vec!["--node", "gpu2=http://me:x@gpu2"], "credentials"),
        (vec!["--node", "a=http://b", "--node", "a=http://c"], "given twice"),
        (vec!["--host", "http://gpu1/"], "a name without port"),
        (vec!["--name", ""], "visible characters"),
        (vec!["surplus"], "surplus"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tranche-page")).args(&arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output =
        Command::new(env!("CARGO_BIN_EXE_tranche-page")).args(["--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--listen ADDRESS:PORT"));
}

/// Processor time of a process so far, in its threads together.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn one_viewer_costs_little() {
    let daemon = Daemon::with(node::large());
    let page = Page::start(&daemon.socket(), &[]);
    let mut events = page.events();
    events.find(|line| line.contains("slice-063")).expect("the state of the beginning");
    let (begin, before) = (Instant::now(), processor_time(page.pid()));
    for number in 0..5 {
        let name = format!("new-{number}");
        daemon.change(|script| script.jobs.push(node::pending("team-1", &name)));
        events.find(|line| line.contains(&name)).expect("the change comes");
    }
    let share = (processor_time(page.pid()) - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    eprintln!("{:.2} % of a processor with one viewer of 200 jobs and 64 slices", share * 100.0);
    // Unoptimised; a release build takes a fraction.
    assert!(share < 0.03, "{share}");
}

#[test]
fn busy_slices_show_their_use() {
    let mut script = node::sleeping();
    script.jobs.truncate(1);
    script.node.slices.truncate(1);
    let busy = |gpu: u32, used: u32| v1::SliceDeviceView {
        compute_used_60s_permille: used,
        ..script.node.slices[0].devices[usize::try_from(gpu).unwrap()].clone()
    };
    let devices = vec![busy(0, 900), busy(1, 600)];
    script.node.slices[0] = v1::SliceView { devices, idle_ms: None, ..script.node.slices[0].clone() };
    script.jobs[0].members[0].idle_ms = None;
    let daemon = Daemon::with(script);
    let overview = Page::start(&daemon.socket(), &[]).overview();
    assert_eq!(overview["jobs"][0]["use_percent"], 75);
    assert_eq!(
        (&overview["jobs"][0]["milligpus"], &overview["figures"]["idle_milligpus"]),
        (&2000.into(), &0.into())
    );
}
