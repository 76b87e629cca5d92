//! Services: `tranche submit --serve`.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use e2e::{Launched, eventually};
use serde_json::Value;

use super::{job, node, submit, until};

/// Server of HTTP in Python, at the port of its first argument. Its answers have status 503 while the
/// file of the second is there.
const SERVER: &str = "
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists(sys.argv[2]) else 200)
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// A port that nothing listens at.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port().to_string()
}

/// `tranche describe --json` of a job.
fn described(node: &e2e::Node, name: &str) -> Value {
    let text = node.tranche(&["describe", name, "--json"]).success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn service_is_before_training_on_its_gpu_and_comes_back_until_it_is_deleted() {
    let mut node = node("v100x8", "1");
    let (port, sick) = (free_port(), node.dir().join("sick"));
    let health = format!("{port}/ready");
    let begin = [
        "api",
        "-g",
        "0.3",
        "--serve",
        "--health",
        &health,
        "--health-interval",
        "1s",
        "--grace",
        "1s",
        "--",
    ];
    let sick_path = sick.display().to_string();
    let script = format!("rm -f {sick_path}; exec python3 -c \"$0\" {port} {sick_path}");
    submit(&node, &[&begin[..], &["sh", "-c", &script, SERVER]].concat()).success();
    submit(&node, &["train", "-g", "0.5", "--", "sleep", "1000"]).success();
    until(&node, "train", "running");
    let healthy = |node: &e2e::Node| described(node, "api")["members"][0]["healthy"].as_bool();
    eventually("it is healthy", || {
        healthy(&node).filter(|healthy| *healthy).ok_or_else(|| described(&node, "api").to_string())
    });
    let shown = |slice: &str| node.tranche(&["slice", "show", slice, "--json"]).success();
    let priority =
        |slice: &str| serde_json::from_str::<Value>(&shown(slice)).expect("JSON")["priority"].as_i64();
    assert_eq!([priority("a.api.0"), priority("a.train.0")], [Some(1), Some(0)]);
    let text = node.tranche(&["describe", "api"]).success();
    for line in ["Type      service\n", &format!("Health    healthy; port {health}, every 1 s\n")] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    // It is not healthy any more while no daemon is there.
    node.kill_daemon();
    fs::write(&sick, "").expect("the test's own file");
    std::thread::sleep(Duration::from_secs(1));
    node.start_daemon();
    eventually("it is started again", || match job(&node, "api").members[0].starts {
        2 => Ok(()),
        starts => Err(format!("{starts} starts")),
    });
    eventually("it is healthy again", || {
        healthy(&node).filter(|healthy| *healthy).ok_or_else(|| described(&node, "api").to_string())
    });
    let log = node.tranche(&["logs", "api"]).success();
    assert!(log.contains("503 Service Unavailable") && log.contains("start 2"), "{log}");
    assert_eq!(job(&node, "train").members[0].starts, 1);
    submit(&node, &["later", "-g", "0.1", "--after", "api", "--", "true"]).refused(1, &["api is a service"]);
    node.tranche(&["suspend", "api"]).success();
    until(&node, "api", "pending");
    node.tranche(&["resume", "api"]).success();
    until(&node, "api", "running");
    node.tranche(&["delete", "api"]).success();
    eventually("its slice is gone", || match node.smi().slices.len() {
        1 => Ok(()),
        count => Err(format!("{count} slices")),
    });
}

#[test]
fn options_of_services_that_make_no_sense_are_refused() {
    let node = node("h200x1", "1");
    let refused = |words: &[&str], told: &[&str]| {
        submit(&node, &[&["x", "-g", "0.1"], words, &["--", "true"]].concat()).refused(2, told);
    };
    refused(&["--serve", "--completions", "2"], &["--completions"]);
    refused(&["--serve", "--retries", "2"], &["--retries"]);
    refused(&["--serve", "--interactive"], &["--interactive"]);
    refused(&["--health", "80"], &["--serve"]);
    refused(&["--serve", "--health-interval", "5s"], &["--health"]);
    refused(&["--serve", "--health", "80/a b"], &["no check of health"]);
    let words = ["x", "-g", "0.1", "--serve", "--health", "80", "--health-interval", "10ms", "--", "true"];
    submit(&node, &words).refused(1, &["every 10 ms", "from 1 s to 1 h"]);
    // Like what is interactive, it stays within the quota.
    submit(&node, &["x", "-g", "2", "--serve", "--", "true"]).refused(1, &["could never start"]);
}

#[test]
fn users_service_has_no_success_that_its_ticket_would_end_with() {
    let Some(launched) = Launched::start("h200x1", "1", "") else { return };
    let counted = ["sh", "-c", "echo run >>$HOME/runs; exit 0"];
    launched.by_alice(&[&["submit", "api", "-g", "0.5", "--serve", "--"], &counted[..]].concat()).success();
    let runs = || fs::read_to_string(launched.path("alice/runs")).unwrap_or_default().lines().count();
    eventually("it is started three times", || {
        if runs() >= 3 { Ok(()) } else { Err(format!("{} times", runs())) }
    });
    assert_eq!(job(&launched.node, "api").succeeded, 0);
    // Others do not see how it ended.
    let stranger =
        launched.as_user(&["--reuid=54399", "--clear-groups"], &["list", "-A", "--json"]).success();
    assert!(!stranger.contains("exited with status"), "{stranger}");
    launched.node.tranche(&["delete", "api"]).success();
    eventually("no ticket is left", || {
        let left = fs::read_dir(launched.path("tickets")).expect("the test's own folder").count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are")) }
    });
}
