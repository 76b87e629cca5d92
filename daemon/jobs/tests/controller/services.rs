//! Services are started again whenever they end, and when they are not healthy.

use std::time::Duration;

use tranche_domain::jobs::{HealthCheck, JobKind, JobState, ProjectChange, ServiceSpec};
use tranche_jobs::JobsError;

use crate::node::{self, TestNode, Wish, wish};

/// Server of HTTP at the port of its first argument. Its answers have status 500 while the file of
/// the second is there.
const SERVER: &str = "exec python3 -c '
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path == \"/health?full=1\" and not os.path.exists(sys.argv[2])
        self.send_response(200 if ok else 500); self.end_headers()
http.server.HTTPServer((\"127.0.0.1\", int(sys.argv[1])), Handler).serve_forever()' ";

fn service(name: &str, script: &str, health: Option<HealthCheck>) -> Wish {
    let service = Some(ServiceSpec { health });
    Wish { service, kind: JobKind::Interactive, ..wish("a", name, "0.5", script) }
}

fn check(target: &str, start: u64) -> Option<HealthCheck> {
    let (every, start) = (Duration::from_secs(1), Duration::from_secs(start));
    HealthCheck::new(target.parse().unwrap(), Some(every), Some(start)).ok()
}

/// A port that nothing listens at.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn service_starts_again_after_each_end_with_longer_pauses() {
    let node = TestNode::with_gpus(1);
    let starts =
        |node: &TestNode| std::fs::read_to_string(node.path("starts")).unwrap_or_default().lines().count();
    node::daemon(async {
        let controller = node.controller();
        controller.project("a", "1");
        let script = format!("date +%s%N >>{}; sleep 0.1; exit 0", node.path("starts").display());
        controller.submit(service("serves", &script, None)).unwrap();
        node::until("it is started three times", || starts(&node) == 3).await;
        let lines = std::fs::read_to_string(node.path("starts")).unwrap();
        let times: Vec<u64> = lines.lines().map(|line| line.parse().unwrap()).collect();
        let pauses = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect::<Vec<_>>();
        assert!(pauses[0] >= 1000 && pauses[1] >= 2000, "{pauses:?}");
        let paused = |controller: &node::RunningController| {
            let view = controller.view("a", "serves").unwrap();
            (view.state == JobState::Creating).then_some(view.reason)
        };
        node::until("it is paused", || {
            paused(&controller).is_some_and(|why| why.contains("3 times in a row"))
        })
        .await;
        let view = controller.view("a", "serves").unwrap();
        assert!(view.reason.ends_with("exited with status 0") && view.members[0].pid.is_none(), "{view:?}");
        controller.dies();
    });
    node::daemon(async {
        let controller = node.controller();
        node::until("the next daemon starts it, too", || starts(&node) >= 4).await;
        controller.delete("a", "serves").unwrap();
        node::until("it is gone", || controller.view("a", "serves").is_none()).await;
        assert!(controller.view("a", "serves").is_none());
    });
}

#[tokio::test]
async fn service_that_stops_answering_is_started_again() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let (port, sick) = (free_port(), node.path("sick"));
    let script = format!("rm -f {0}; {SERVER} {port} {0}", sick.display());
    controller.submit(service("serves", &script, check(&format!("{port}/health?full=1"), 60))).unwrap();
    let healthy = || {
        controller
            .view("a", "serves")
            .unwrap()
            .members
            .first()
            .is_some_and(|member| member.healthy == Some(true))
    };
    node::until("it is healthy", healthy).await;
    let first = controller.view("a", "serves").unwrap();
    assert_eq!((first.state, first.reason.as_str(), first.members[0].starts), (JobState::Running, "", 1));
    std::fs::write(&sick, "").unwrap();
    node::until("it is started again", || controller.view("a", "serves").unwrap().members[0].starts == 2)
        .await;
    node::until("it is healthy again", healthy).await;
    let log = controller.log("a", "serves", 0);
    assert!(log.contains("failed 3 times in a row") && log.contains("500 Internal Server Error"), "{log}");
}

#[tokio::test]
async fn service_that_does_not_become_healthy_is_started_again() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let port = free_port();
    controller.submit(service("serves", "exec sleep 1000", check(&port.to_string(), 1))).unwrap();
    let view = || controller.view("a", "serves").unwrap();
    node::until("it runs, not healthy yet", || {
        view().members.first().is_some_and(|member| member.healthy == Some(false))
    })
    .await;
    assert!(
        view().reason.contains(&format!("its check of health at port {port} has not passed yet")),
        "{:?}",
        view()
    );
    node::until("it is started again", || view().members[0].starts == 2).await;
    let log = controller.log("a", "serves", 0);
    assert!(log.contains("did not pass within 1 s") && log.contains("no connection"), "{log}");
    // An accepted connection suffices.
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    node::until("it is healthy", || view().members[0].healthy == Some(true)).await;
    drop(listener);
}

#[tokio::test]
async fn service_has_the_limits_of_its_own_alone_and_no_successors() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let limit = Some(Duration::from_secs(1));
    controller.change(
        "a",
        ProjectChange { interactive_limit: limit, idle_limit: limit, ..ProjectChange::default() },
    );
    controller.submit(service("serves", "exec sleep 1000", None)).unwrap();
    controller
        .submit(Wish { kind: JobKind::Interactive, ..wish("a", "sits", "0.3", "exec sleep 1000") })
        .unwrap();
    let sits = controller.until("a", "sits", JobState::Failed).await;
    assert!(sits.overdue && sits.members[0].overdue, "{sits:?}");
    assert_eq!(controller.view("a", "serves").unwrap().state, JobState::Running);
    let after = Wish { after: vec!["serves".into()], ..wish("a", "later", "0.1", "true") };
    let refused = controller.submit(after).unwrap_err();
    assert!(
        matches!(&refused, JobsError::Job(_)) && refused.to_string().contains("is a service"),
        "{refused}"
    );
    let bounded = Wish { max_runtime: limit, ..service("bounded", "exec sleep 1000", None) };
    controller.submit(bounded).unwrap();
    assert!(controller.until("a", "bounded", JobState::Failed).await.overdue, "by its own --max-runtime");
}

#[tokio::test]
async fn deleted_job_is_not_started_again() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    // The deletion comes at other times after the decision to start the resumed job.
    let mut again = Vec::new();
    for round in 0_u64..30 {
        let (name, runs) = (format!("j{round}"), node.path(&format!("runs{round}")));
        let script = format!("echo run >>{}; exec sleep 1000", runs.display());
        controller.submit(wish("a", &name, "1", &script)).unwrap();
        controller.until("a", &name, JobState::Running).await;
        node::appears(&runs).await;
        controller.suspend("a", &name, true).unwrap();
        controller.until("a", &name, JobState::Pending).await;
        controller.suspend("a", &name, false).unwrap();
        tokio::time::sleep(Duration::from_micros(200 * round)).await;
        let started = controller.view("a", &name).unwrap().members[0].pid.is_some();
        controller.delete("a", &name).unwrap();
        controller.gone("a", &name).await;
        let runs = std::fs::read_to_string(runs).unwrap().lines().count();
        if runs > 1 && !started {
            again.push(200 * round);
        }
    }
    // A command that was ordered in the same instant runs.
    assert!(again.len() <= 3, "started after the deletion, which came after so many us: {again:?}");
    let happened = node.happened();
    assert!(!happened.iter().any(|what| what.contains("Failed")), "a deletion is no failure: {happened:?}");
}
