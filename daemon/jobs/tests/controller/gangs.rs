//! Gangs: their members start, are parked and start over together.

use std::collections::BTreeSet;
use std::time::Duration;

use tranche_domain::jobs::{JobState, JobView};
use tranche_jobs::UnparkFailure;

use crate::node::{self, RunningController, TestNode, Wish, wish};

const RUNS: &str = "sleep 1000";

/// A gang of two members of a whole GPU each.
fn gang(project: &str, script: &str) -> Wish {
    Wish { parallelism: 2, completions: 2, gang: true, ..wish(project, "ranks", "1", script) }
}

fn view(controller: &RunningController, project: &str) -> JobView {
    controller.view(project, "ranks").unwrap()
}

/// States of the members that were started at least once.
fn states(view: &JobView) -> BTreeSet<JobState> {
    view.members.iter().map(|member| member.state).collect()
}

fn starts(view: &JobView) -> Vec<u32> {
    view.members.iter().map(|member| member.starts).collect()
}

async fn until_both_are(controller: &RunningController, project: &str, state: JobState) -> JobView {
    let are = || {
        let view = view(controller, project);
        view.members.len() == 2 && states(&view) == [state].into()
    };
    node::until(&format!("both are {state}"), are).await;
    view(controller, project)
}

/// A node of two GPUs of project a, which a gang of project b has borrowed.
async fn borrowed(node: &TestNode) -> RunningController {
    node.park_preempted();
    let controller = node.controller();
    controller.project("a", "2");
    controller.project("b", "0");
    let weight = Some("1".parse().unwrap());
    controller.change("b", tranche_domain::jobs::ProjectChange { weight, ..Default::default() });
    controller.submit(gang("b", RUNS)).unwrap();
    until_both_are(&controller, "b", JobState::Running).await;
    controller
}

#[tokio::test]
async fn gang_starts_once_no_gpu_of_it_is_cordoned() {
    let node = TestNode::with_gpus(2);
    node.cordon(1, true);
    let controller = node.controller();
    controller.project("a", "2");
    controller.submit(gang("a", RUNS)).unwrap();
    let named = || view(&controller, "a").reason.contains("GPU 1 is cordoned by root: fan 1 is loud");
    node::until("the cordon is named", named).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(view(&controller, "a").members.is_empty() && node.slices().is_empty());
    node.cordon(1, false);
    let running = until_both_are(&controller, "a", JobState::Running).await;
    assert_eq!(starts(&running), [1, 1]);
}

#[tokio::test]
async fn gang_with_a_member_that_cannot_start_leaves_nothing_and_starts_later() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "2");
    node.break_down(true);
    node.only("a.ranks.1");
    controller.submit(gang("a", RUNS)).unwrap();
    let told = || node.noted().iter().any(|noted| noted.contains("/run is full"));
    node::until("the reason is known", told).await;
    node::until("the other member has ended", || node.slices().is_empty()).await;
    node.break_down(false);
    let running = until_both_are(&controller, "a", JobState::Running).await;
    assert_eq!(BTreeSet::from_iter(starts(&running)).len(), 1, "as often as each other: {running:?}");
    let log = controller.log("a", "ranks", 0);
    assert!(log.contains("member 1 of its gang starts over"), "{log}");
}

#[tokio::test]
async fn gang_of_which_a_member_fails_starts_over_as_a_whole() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "2");
    let fails = "[ $TRANCHE_JOB_INDEX$TRANCHE_JOB_START = 11 ] && { sleep 0.3; exit 3; }; sleep 1000";
    controller.submit(Wish { retries: 1, ..gang("a", fails) }).unwrap();
    let again = || starts(&view(&controller, "a")) == [2, 2];
    node::until("both have begun again", again).await;
    let running = until_both_are(&controller, "a", JobState::Running).await;
    assert_eq!(starts(&running), [2, 2]);
    assert!(controller.log("a", "ranks", 0).contains("member 1 of its gang starts over"));
}

#[tokio::test]
async fn preempted_gang_is_parked_and_returns_as_a_whole() {
    let node = TestNode::with_gpus(2);
    let controller = borrowed(&node).await;
    controller.submit(wish("a", "first", "1", "sleep 0.3")).unwrap();
    let parked = until_both_are(&controller, "b", JobState::Parked).await;
    assert!(parked.reason.contains("first of project a"), "{}", parked.reason);
    assert_eq!(controller.allocated("b"), "0");
    let running = until_both_are(&controller, "b", JobState::Running).await;
    assert_eq!(starts(&running), [1, 1]);
}

#[tokio::test]
async fn gang_of_which_a_member_cannot_be_parked_starts_over_as_a_whole() {
    let node = TestNode::with_gpus(2);
    let controller = borrowed(&node).await;
    node.refuse_parking(Some("it has managed memory"), None);
    node.only("b.ranks.0");
    controller.submit(wish("a", "first", "1", "sleep 0.3")).unwrap();
    let again = || starts(&view(&controller, "b")) == [2, 2];
    node::until("both have begun again", again).await;
    until_both_are(&controller, "b", JobState::Running).await;
    assert!(node.parked().is_empty());
}

#[tokio::test]
async fn mates_of_a_member_that_does_not_return_are_parked_until_it_does() {
    let node = TestNode::with_gpus(2);
    let controller = borrowed(&node).await;
    let why = UnparkFailure::Parked("a stranger has its memory".into());
    node.refuse_parking(None, Some(why));
    node.only("b.ranks.1");
    controller.submit(wish("a", "first", "1", "sleep 0.3")).unwrap();
    controller.until("a", "first", JobState::Succeeded).await;
    let told = || controller.log("b", "ranks", 0).contains("member 1 of its gang did not return");
    node::until("the mate left again", told).await;
    node.refuse_parking(None, None);
    node::until("both are back", || node.parked().is_empty()).await;
    let running = until_both_are(&controller, "b", JobState::Running).await;
    assert_eq!(starts(&running), [1, 1]);
}
