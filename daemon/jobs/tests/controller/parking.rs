//! Members that are parked instead of stopped.

use std::time::Duration;

use tranche_domain::jobs::{JobState, ServiceSpec};
use tranche_jobs::UnparkFailure;

use crate::node::{self, RunningController, TestNode, Wish, wish};

const COUNTS: &str = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.02; done";

/// A node of one GPU of project a, which project b has borrowed for a job that counts.
async fn borrowed(node: &TestNode) -> RunningController {
    node.park_preempted();
    let controller = node.controller();
    controller.project("a", "1");
    controller.project("b", "0");
    controller.change(
        "b",
        tranche_domain::jobs::ProjectChange { weight: Some("1".parse().unwrap()), ..Default::default() },
    );
    controller.submit(wish("b", "counts", "1", COUNTS)).unwrap();
    controller.until("b", "counts", JobState::Running).await;
    controller
}

/// Tests if the counter in a log has begun once, and never falls.
fn never_falls(log: &str) -> bool {
    let numbers: Vec<u64> = log.lines().filter_map(|line| line.parse().ok()).collect();
    numbers.iter().enumerate().all(|(at, number)| *number == at as u64 + 1)
}

#[tokio::test]
async fn preempted_job_is_parked_and_continues() {
    let node = TestNode::with_gpus(1);
    let controller = borrowed(&node).await;
    controller.submit(wish("a", "first", "1", "sleep 0.3")).unwrap();
    let view = controller.until("b", "counts", JobState::Parked).await;
    assert!(view.reason.contains("first of project a"), "{}", view.reason);
    assert_eq!((node.parked(), controller.allocated("b")), (vec!["b.counts.0".into()], "0".into()));
    controller.until("a", "first", JobState::Succeeded).await;
    let view = controller.until("b", "counts", JobState::Running).await;
    assert_eq!((view.members[0].starts, view.reason.as_str()), (1, ""));
    let log = || controller.log("b", "counts", 0);
    node::until("it continues", || log().contains("and continues")).await;
    assert!(never_falls(&log()) && node.parked().is_empty(), "{}", log());
    assert!(node.happened().iter().any(|told| told.contains("Preempted")));
}

#[tokio::test]
async fn job_that_cannot_be_parked_is_stopped_with_the_reason() {
    let node = TestNode::with_gpus(1);
    let controller = borrowed(&node).await;
    node.refuse_parking(Some("it has managed memory"), None);
    controller.submit(wish("a", "first", "1", "sleep 0.2")).unwrap();
    controller.until("a", "first", JobState::Succeeded).await;
    let view = controller.until("b", "counts", JobState::Running).await;
    assert_eq!(view.members[0].starts, 2);
    let log = controller.log("b", "counts", 0);
    assert!(log.contains("first of project a, and stopped: it has managed memory"), "{log}");
}

#[tokio::test]
async fn service_is_stopped() {
    let node = TestNode::with_gpus(1);
    node.park_preempted();
    let controller = node.controller();
    controller.project("a", "1");
    let service = Some(ServiceSpec { health: None });
    controller.submit(Wish { service, ..wish("a", "serves", "1", "sleep 1000") }).unwrap();
    controller.until("a", "serves", JobState::Running).await;
    controller.suspend("a", "serves", true).unwrap();
    controller.until("a", "serves", JobState::Pending).await;
    assert_eq!((node.parked().len(), node.slices().len()), (0, 0));
}

#[tokio::test]
async fn suspended_job_stays_parked_until_it_is_resumed_or_deleted() {
    let node = TestNode::with_gpus(1);
    let controller = borrowed(&node).await;
    for _ in 0..3 {
        controller.suspend("b", "counts", true).unwrap();
        let view = controller.until("b", "counts", JobState::Parked).await;
        assert!(view.reason.contains("tranche resume"), "{}", view.reason);
        controller.suspend("b", "counts", false).unwrap();
        let view = controller.until("b", "counts", JobState::Running).await;
        assert_eq!(view.members[0].starts, 1);
    }
    controller.suspend("b", "counts", true).unwrap();
    controller.until("b", "counts", JobState::Parked).await;
    controller.delete("b", "counts").unwrap();
    controller.gone("b", "counts").await;
    node::until("its slice is gone", || node.slices().is_empty()).await;
}

#[tokio::test]
async fn return_that_fails_is_tried_again() {
    let node = TestNode::with_gpus(1);
    let controller = borrowed(&node).await;
    node.refuse_parking(None, Some(UnparkFailure::Parked("a stranger has its memory".into())));
    controller.submit(wish("a", "first", "1", "sleep 0.2")).unwrap();
    controller.until("a", "first", JobState::Succeeded).await;
    let why = || controller.view("b", "counts").unwrap().reason.contains("a stranger has its memory");
    node::until("the reason is shown", why).await;
    node.refuse_parking(None, None);
    node::until("it is back", || node.parked().is_empty()).await;
    let view = controller.until("b", "counts", JobState::Running).await;
    assert_eq!(view.members[0].starts, 1);
    assert!(never_falls(&controller.log("b", "counts", 0)));
}

#[tokio::test]
async fn slice_that_is_on_its_way_keeps_its_gpus() {
    let node = TestNode::with_gpus(1);
    let controller = borrowed(&node).await;
    node.refuse_parking(None, Some(UnparkFailure::OnItsWay("the park worker has ended".into())));
    controller.submit(wish("a", "first", "1", "sleep 0.2")).unwrap();
    controller.until("a", "first", JobState::Succeeded).await;
    let tried = || node.noted().iter().filter(|why| why.contains("park worker has ended")).count();
    node::until("a return was tried", || tried() == 1).await;
    assert_eq!(controller.allocated("b"), "1");
    // It is restored with the next attempt, though others would have the GPU again.
    controller.submit(wish("a", "second", "1", "sleep 0.2")).unwrap();
    node.refuse_parking(None, None);
    controller.until("a", "second", JobState::Succeeded).await;
    let view = controller.until("b", "counts", JobState::Running).await;
    node::until("it is back", || node.parked().is_empty() && node.noted().is_empty()).await;
    assert_eq!(view.members[0].starts, 1);
    assert!(never_falls(&controller.log("b", "counts", 0)));
}

#[tokio::test]
async fn parked_job_starts_over_elsewhere_after_an_hour() {
    let node = TestNode::with_gpus(2);
    node.park_preempted();
    let controller = node.controller();
    controller.project("a", "1");
    controller.project("b", "1");
    controller.submit(wish("b", "own", "1", "sleep 1000")).unwrap();
    controller.until("b", "own", JobState::Running).await;
    controller.submit(wish("b", "counts", "1", COUNTS)).unwrap();
    controller.until("b", "counts", JobState::Running).await;
    controller.submit(wish("a", "first", "1", "sleep 1000")).unwrap();
    controller.until("b", "counts", JobState::Parked).await;
    controller.delete("b", "own").unwrap();
    controller.gone("b", "own").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let view = controller.view("b", "counts").unwrap();
    assert!(view.state == JobState::Parked && view.reason.contains("GPU 1"), "{view:?}");
    node.pass(1);
    let view = controller.until("b", "counts", JobState::Running).await;
    assert_eq!(view.members[0].starts, 2);
    assert!(controller.log("b", "counts", 0).contains("others have"));
}

#[test]
fn parked_job_outlives_the_daemon() {
    let node = TestNode::with_gpus(1);
    let pid = node::daemon(async {
        let controller = borrowed(&node).await;
        let pid = controller.view("b", "counts").unwrap().members[0].pid;
        controller.suspend("b", "counts", true).unwrap();
        controller.until("b", "counts", JobState::Parked).await;
        // Saved by the round that follows.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        controller.dies();
        pid
    });
    node::daemon(async {
        let controller = node.controller();
        let finds = || controller.view("b", "counts").unwrap().members[0].pid == pid;
        node::until("its runner is found", finds).await;
        let view = controller.until("b", "counts", JobState::Parked).await;
        assert_eq!((view.members[0].pid, node.parked().len()), (pid, 1));
        controller.suspend("b", "counts", false).unwrap();
        let view = controller.until("b", "counts", JobState::Running).await;
        assert_eq!((view.members[0].pid, view.members[0].starts), (pid, 1));
        assert!(never_falls(&controller.log("b", "counts", 0)));
    });
}
