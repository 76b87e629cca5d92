//! The job controller with real runners and commands, on a node whose slices are simulated.

#![allow(clippy::unwrap_used)] // a failed unwrap names its line

mod gangs;
mod node;
mod parking;
mod services;

use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use node::{ADMIN, TestNode, Wish, wish};
use tranche_domain::jobs::{
    HostLimits, IdlePolicy, JobKind, JobState, MOST_JOBS_OF_A_USER, ProjectChange, ReportKey, ReportRow,
    Warning,
};
use tranche_jobs::{JobsError, LogFrom, Requester, Retention};

#[tokio::test]
async fn job_runs_and_its_output_is_kept() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "2");
    controller
        .submit(wish(
            "a",
            "hello",
            "1",
            "echo out; echo err >&2; echo $TRANCHE_JOB_NAME/$TRANCHE_JOB_INDEX; pwd",
        ))
        .unwrap();
    let view = controller.until("a", "hello", JobState::Succeeded).await;
    assert_eq!((view.succeeded, view.failed, view.members[0].starts), (1, 0, 1));
    assert_eq!(controller.log("a", "hello", 0), "out\nerr\nhello/0\n/\n");
}

#[tokio::test]
async fn failed_job_reports_its_reason() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let missing = Wish { command: vec!["no-such-program".into()], ..wish("a", "missing", "0.5", "") };
    controller.submit(missing).unwrap();
    let nowhere = Wish { workdir: "/no/such/folder".into(), ..wish("a", "nowhere", "0.5", "true") };
    controller.submit(nowhere).unwrap();
    controller.submit(wish("a", "fails", "0.5", "exit 3")).unwrap();
    let reason = controller.until("a", "missing", JobState::Failed).await.reason;
    assert!(reason.contains("no-such-program") && reason.contains("PATH"), "{reason}");
    let reason = controller.until("a", "nowhere", JobState::Failed).await.reason;
    assert!(reason.contains("/no/such/folder") && reason.contains("--workdir"), "{reason}");
    assert_eq!(controller.until("a", "fails", JobState::Failed).await.reason, "exited with status 3");
}

#[tokio::test]
async fn pending_job_has_a_position_and_a_range_of_its_start() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    for number in 0..5 {
        controller.submit(wish("a", &format!("done-{number}"), "1", "sleep 0.2")).unwrap();
    }
    controller.until("a", "done-4", JobState::Succeeded).await;
    // One that runs for longer than any before, within its limit, and one that runs as they did.
    let limit = Some(Duration::from_secs(60));
    controller.submit(Wish { max_runtime: limit, ..wish("a", "long", "1", "sleep 60") }).unwrap();
    controller.until("a", "long", JobState::Running).await;
    for name in ["next", "last"] {
        controller.submit(wish("a", name, "1", "sleep 0.2")).unwrap();
    }
    node::until("they are in the queue", || controller.view("a", "last").unwrap().queue_length == Some(2))
        .await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let view = |name: &str| controller.view("a", name).unwrap();
    let (next, last) = (view("next"), view("last"));
    assert_eq!((next.queue_position, last.queue_position), (Some(1), Some(2)));
    assert_eq!(next.starts_after_ms, Some(0), "what runs for longer than others did may end at any time");
    let (next, last) = (next.starts_within_ms.unwrap(), last.starts_within_ms.unwrap());
    assert!((55_000..60_000).contains(&next), "{next}");
    assert!(last >= next + 150 && view("last").starts_after_ms >= Some(200), "{last}");
    assert_eq!(view("long").queue_position, None);
    // Not in a list.
    assert!(
        controller
            .controller
            .jobs(None, None, ADMIN)
            .unwrap()
            .iter()
            .all(|job| job.starts_within_ms.is_none())
    );
    // Nor in the answer to a submission, which does not wait for a forecast.
    let answer = controller.controller.job(&"a".parse().unwrap(), &"last".parse().unwrap(), ADMIN).unwrap();
    assert_eq!((answer.state, answer.starts_within_ms), (JobState::Pending, None));
}

fn after(name: &str, of: &[&str]) -> Wish {
    Wish { after: of.iter().map(ToString::to_string).collect(), ..wish("a", name, "0.5", "true") }
}

#[test]
fn job_after_others_starts_once_they_have_succeeded() {
    let node = TestNode::with_gpus(2);
    let mark = node.path("mark");
    node::daemon(async {
        let controller = node.controller();
        controller.project("a", "2");
        let waits = format!("while ! [ -e {} ]; do sleep 0.02; done", mark.display());
        controller.submit(wish("a", "one", "0.5", &waits)).unwrap();
        controller.submit(wish("a", "two", "0.5", "true")).unwrap();
        controller.until("a", "two", JobState::Succeeded).await;
        controller.submit(after("three", &["one", "two"])).unwrap();
        controller.submit(after("four", &["three"])).unwrap();
        controller.until("a", "one", JobState::Running).await;
        let reason = || controller.view("a", "three").unwrap().reason;
        node::until("three waits", || reason() == "it starts after one, if that succeeds").await;
        controller.dies();
    });
    node::daemon(async {
        let controller = node.controller();
        let three = controller.view("a", "three").unwrap();
        assert_eq!((three.state, three.after), (JobState::Pending, vec!["one".parse().unwrap()]));
        std::fs::write(&mark, "").unwrap();
        let four = controller.until("a", "four", JobState::Succeeded).await;
        assert!(four.after.is_empty());
        let start = |name: &str| controller.view("a", name).unwrap().members[0].started_unix_ms.unwrap();
        let end = |name: &str| controller.view("a", name).unwrap().ended_unix_ms.unwrap();
        assert!(end("one") <= start("three") && end("three") <= start("four"), "{four:?}");
    });
}

#[test]
fn job_after_one_that_fails_or_is_deleted_fails_with_it() {
    let node = TestNode::with_gpus(2);
    node::daemon(async {
        let controller = node.controller();
        controller.project("a", "2");
        controller.submit(wish("a", "bad", "0.5", "sleep 0.3; exit 1")).unwrap();
        controller.submit(wish("a", "gone", "0.5", "sleep 60")).unwrap();
        controller.submit(after("next", &["bad"])).unwrap();
        controller.submit(after("last", &["next"])).unwrap();
        controller.submit(after("orphan", &["gone"])).unwrap();
        let next = controller.until("a", "next", JobState::Failed).await;
        assert_eq!(next.reason, "bad, which it was to start after, failed");
        assert_eq!((next.failed, next.members[0].starts, next.ended_unix_ms.is_some()), (1, 0, true));
        let last = controller.until("a", "last", JobState::Failed).await;
        assert_eq!(last.reason, "next, which it was to start after, failed");
        controller.delete("a", "gone").unwrap();
        let orphan = controller.until("a", "orphan", JobState::Failed).await;
        assert_eq!(orphan.reason, "a job that it was to start after was deleted");
        let refused = controller.submit(after("late", &["bad"])).unwrap_err().to_string();
        assert!(refused.contains("bad has failed") && refused.contains("--after"), "{refused}");
        let refused = controller.submit(after("late", &["nothing"])).unwrap_err().to_string();
        assert!(refused.contains("there is no job nothing in project a"), "{refused}");
        controller.dies();
    });
    node::daemon(async {
        assert_eq!(node.controller().view("a", "last").unwrap().state, JobState::Failed);
    });
}

#[tokio::test]
async fn refused_start_is_retried_until_it_succeeds() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    node.break_down(true);
    controller.submit(wish("a", "late", "1", "true")).unwrap();
    let reason = || controller.view("a", "late").unwrap().reason;
    node::until("it says why", || reason().contains("once so far, and is tried again: /run is full")).await;
    assert_eq!(controller.view("a", "late").unwrap().state, JobState::Creating);
    node::until("it is tried again", || reason().contains("2 times so far")).await;
    node.break_down(false);
    assert_eq!(controller.until("a", "late", JobState::Succeeded).await.reason, "");
}

#[tokio::test]
async fn refused_job_is_deleted_without_waiting() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    node.break_down(true);
    controller.submit(wish("a", "never", "1", "true")).unwrap();
    let tried = || node.happened().iter().filter(|told| told.contains("/run is full")).count();
    node::until("it was tried thrice, and will be in four seconds", || tried() == 3).await;
    controller.delete("a", "never").unwrap();
    tokio::time::timeout(Duration::from_secs(2), controller.gone("a", "never")).await.unwrap();
    assert!(node.slices().is_empty());
}

#[tokio::test]
async fn slice_beyond_its_project_s_quota_ends_for_a_job_within_its_own() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "1");
    node.make_for_user("mine", None, 0);
    node.make_for_user("borrowed", None, 1);
    controller.submit(wish("a", "due", "1", "sleep 60")).unwrap();
    controller.until("a", "due", JobState::Running).await;
    let told = node.happened();
    let ended = told.iter().find(|told| told.starts_with("borrowed ends: ")).unwrap();
    assert!(ended.contains("beyond its project's quota, and job a/due is within its own"), "{ended}");
    assert_eq!(node.kept(), 0, "nothing is kept once the job runs");
    let history = controller.history();
    let of =
        |name: &str| history.iter().filter(|(job, _)| job == name).map(|(_, gpus)| *gpus).collect::<Vec<_>>();
    assert_eq!((of("slice:mine"), of("slice:borrowed"), of("due")), (vec![1000], vec![1000, 0], vec![1000]));
}

#[tokio::test]
async fn waiting_request_within_its_quota_gets_what_a_job_borrowed() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "1");
    controller.project("b", "1");
    controller.submit(wish("b", "borrows", "2", "sleep 60")).unwrap();
    controller.until("b", "borrows", JobState::Running).await;
    node.request(3, "a");
    node::until("the request is granted", || node.user_slices() == ["granted-3"]).await;
    assert_eq!(controller.until("b", "borrows", JobState::Pending).await.members[0].starts, 1);
}

#[tokio::test]
async fn idle_jobs_and_slices_have_the_consequences_of_their_project() {
    let node = TestNode::with_gpus(4);
    let controller = node.controller();
    controller.project("quiet", "1");
    controller.project("loud", "1");
    controller.project("strict", "2");
    let policy = |idle_policy| ProjectChange { idle_policy: Some(idle_policy), ..ProjectChange::default() };
    controller.change("loud", policy(IdlePolicy::Alert));
    controller.change("strict", policy(IdlePolicy::End));
    for project in ["quiet", "loud", "strict"] {
        controller.submit(wish(project, "sleeps", "1", "sleep 1000")).unwrap();
        controller.until(project, "sleeps", JobState::Running).await;
    }
    node.make_for_user("held", Some("strict"), 3);
    node::until("it counts", || controller.allocated("strict") == "2").await;
    for slice in ["quiet.sleeps.0", "loud.sleeps.0"] {
        node.set_idle(slice, true);
    }
    node::until("a note names it", || node.noted().iter().any(|note| note.contains("loud.sleeps.0"))).await;
    assert_eq!((controller.idle("quiet"), controller.idle("strict")), ("1".into(), "0".into()));
    assert!(controller.view("quiet", "sleeps").unwrap().idle_ms().is_some());
    node.set_idle("loud.sleeps.0", false);
    node::until("the note goes", || node.noted().is_empty()).await;
    node.set_idle("held", true);
    node::until("the slice ends", || node.user_slices().is_empty()).await;
    assert!(node.happened().iter().any(|what| what.contains("held ends: it did not use its GPU")));
    // What was idle before a job began is not held against it; here no time has passed since.
    node.set_idle("strict.sleeps.0", true);
    node.pass(1);
    let reason = controller.until("strict", "sleeps", JobState::Failed).await.reason;
    assert!(reason.contains("its project ends what is idle"), "{reason}");
    assert_eq!(controller.view("quiet", "sleeps").unwrap().state, JobState::Running);
}

#[tokio::test]
async fn name_of_an_ended_job_is_free_and_its_log_stays() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    for run in 1..=3 {
        controller.submit(wish("a", "train", "1", &format!("echo run {run}"))).unwrap();
        controller.until("a", "train", JobState::Succeeded).await;
    }
    controller.submit(wish("a", "train", "1", "sleep 1000")).unwrap();
    let refused = controller.submit(wish("a", "train", "1", "true")).unwrap_err().to_string();
    assert!(refused.contains("a job named train exists"), "{refused}");
    controller.until("a", "train", JobState::Running).await;
    let logs = ["train-1", "train-2", "train-3"].map(|name| controller.log("a", name, 0));
    assert_eq!(logs, ["run 1\n", "run 2\n", "run 3\n"]);
}

#[test]
fn name_of_a_renamed_job_is_the_stores() {
    let node = TestNode::with_gpus(1);
    node::daemon(async {
        let controller = node.controller();
        controller.project("a", "1");
        for run in 1..=2 {
            controller.submit(wish("a", "train", "1", &format!("echo run {run}"))).unwrap();
            controller.until("a", "train", JobState::Succeeded).await;
        }
        controller.dies();
    });
    node::daemon(async {
        let controller = node.controller();
        assert_eq!(
            (controller.log("a", "train-1", 0), controller.log("a", "train", 0)),
            ("run 1\n".into(), "run 2\n".into())
        );
    });
}

#[tokio::test]
async fn report_sums_up_jobs_and_slices() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "1");
    controller.submit(wish("a", "long", "1", "sleep 1000")).unwrap();
    controller.until("a", "long", JobState::Running).await;
    node.make_for_user("s", Some("a"), 1);
    node::until("it counts", || controller.allocated("a") == "2").await;
    node.pass(2);
    let rows = controller.report(ReportKey::Job);
    let of = |name: &str| rows.iter().find(|row| row.name.as_deref() == Some(name)).unwrap();
    let (job, slice) = (of("long"), of("slice:s"));
    let hours = |row: &ReportRow| row.allocated_milligpu_ms as f64 / 3.6e9;
    assert!(hours(job) > 1.999 && hours(job) < 2.05 && hours(slice) > 1.999, "{rows:?}");
    // The two have twice the quota, so half of what each has is borrowed.
    assert!((job.borrowed_milligpu_ms * 2).abs_diff(job.allocated_milligpu_ms) < 60_000_000, "{job:?}");
    assert_eq!((job.starts, job.waits, slice.starts, slice.uid), (1, 1, 0, Some(7)));
    let projects = controller.report(ReportKey::Project);
    let total: u64 = rows.iter().map(|row| row.allocated_milligpu_ms).sum();
    assert!(
        projects[0].allocated_milligpu_ms >= total && projects[0].allocated_milligpu_ms < total + 60_000_000
    );
    assert_eq!(controller.report(ReportKey::Gpu).len(), 2);
}

#[tokio::test]
async fn foreign_slice_of_same_name_blocks_and_survives() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    node.make("a.eval.0");
    controller.submit(wish("a", "eval", "1", "true")).unwrap();
    let reason = || controller.view("a", "eval").unwrap().reason;
    node::until("it was tried twice", || reason().contains("2 times so far")).await;
    assert!(reason().contains("slice a.eval.0 was there already"), "{}", reason());
    controller.delete("a", "eval").unwrap();
    controller.gone("a", "eval").await;
    assert!(node.slices().contains(&"a.eval.0".parse().unwrap()));
    controller.submit(wish("a", "eval", "1", "true")).unwrap();
    node::until("it is tried again", || reason().contains("once so far")).await;
    node.delete("a.eval.0");
    controller.until("a", "eval", JobState::Succeeded).await;
}

#[tokio::test]
async fn start_failure_condition_clears_after_start() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    node.break_down(true);
    controller.submit(wish("a", "late", "1", "sleep 1000")).unwrap();
    node::until("it is noted", || node.noted().iter().any(|note| note.contains("/run is full"))).await;
    node.break_down(false);
    controller.until("a", "late", JobState::Running).await;
    assert_eq!(node.noted(), [""; 0]);
}

#[tokio::test]
async fn new_job_reports_no_reason_before_first_round() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller.submit(wish("a", "new", "1", "true")).unwrap();
    // Nothing is decided before this test waits for something.
    let reason = controller.view("a", "new").unwrap().reason;
    assert_eq!(reason, "it has just come, and is looked at next");
    controller.until("a", "new", JobState::Succeeded).await;
}

#[tokio::test]
async fn failed_member_is_retried() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let flag = node.path("flag");
    let twice = format!("test -e {0} && exit 0; touch {0}; exit 1", flag.display());
    controller.submit(Wish { retries: 1, ..wish("a", "twice", "1", &twice) }).unwrap();
    assert_eq!(controller.until("a", "twice", JobState::Succeeded).await.members[0].starts, 2);
}

#[tokio::test]
async fn no_process_survives_its_job() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let pid = node.path("pid");
    // The process has left its process group and its parent, and ignores SIGTERM.
    let daemonises = format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ > {0}; sleep 1000; sleep 1000' & while ! test -s {0}; do sleep 0.01; done",
        pid.display()
    );
    controller.submit(wish("a", "leaves", "1", &daemonises)).unwrap();
    controller.until("a", "leaves", JobState::Succeeded).await;
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "process {pid} is still there");
}

#[tokio::test]
async fn preempted_job_is_warned_and_resumes() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "1");
    controller.project("b", "1");
    let (saved, ready) = (node.path("saved"), node.path("ready"));
    let trains = format!(
        "test -e {0} && exit 0; trap 'touch {0}; exit 0' USR1; touch {1}; while :; do sleep 0.01; done",
        saved.display(),
        ready.display()
    );
    let warned = Wish { warning: Some(Warning::Usr1), ..wish("b", "trains", "2", &trains) };
    controller.submit(warned).unwrap();
    controller.until("b", "trains", JobState::Running).await;
    node::appears(&ready).await;
    controller.submit(wish("a", "first", "1", "sleep 0.2")).unwrap();
    controller.until("a", "first", JobState::Succeeded).await;
    let view = controller.until("b", "trains", JobState::Succeeded).await;
    assert!(saved.exists() && view.members[0].starts == 2, "{view:?}");
    let log = controller.log("b", "trains", 0);
    let lines = "[tranche: stopped, preempted for first of project a; it starts again in its turn]\n\n[tranche: start 2]";
    assert!(log.contains(lines), "{log}");
    assert!(
        node.happened().iter().any(|told| told.contains("Preempted") && told.contains("first of project a"))
    );
}

#[test]
fn running_job_survives_missing_gpus_over_restart() {
    let node = TestNode::with_gpus(1);
    let before = node::daemon(async {
        let controller = node.controller();
        controller.project("a", "1");
        controller.submit(wish("a", "runs", "1", "sleep 1000")).unwrap();
        let running = controller.until("a", "runs", JobState::Running).await;
        controller.dies();
        running.members[0].clone()
    });
    for silent in [true, true, false] {
        node.fall_silent(silent);
        node::daemon(async {
            let controller = node.controller();
            let view = controller.view("a", "runs").unwrap();
            assert!(!matches!(view.state, JobState::Stopping), "{view:?}");
            let member = controller.until("a", "runs", JobState::Running).await.members.remove(0);
            assert_eq!((member.pid, member.starts), (before.pid, 1));
            assert_eq!(member.gpus, if silent { vec![] } else { vec![0] });
            assert_eq!(member.reason.contains("the driver does not tell"), silent, "{}", member.reason);
            controller.dies();
        });
    }
    node.fall_silent(true);
    node::daemon(async {
        let controller = node.controller();
        controller.suspend("a", "runs", true).unwrap();
        controller.until("a", "runs", JobState::Pending).await;
        controller.suspend("a", "runs", false).unwrap();
        let view = controller.view("a", "runs").unwrap();
        assert_eq!(view.state, JobState::Pending, "it waits for a place as any: {view:?}");
    });
}

#[test]
fn unsupervised_member_on_missing_gpu_is_requeued() {
    let node = TestNode::with_gpus(1);
    let pid = node.path("pid");
    let says = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", pid.display());
    node::daemon(async {
        let controller = node.controller();
        controller.project("a", "1");
        controller.submit(wish("a", "lost", "1", &says)).unwrap();
        let view = controller.until("a", "lost", JobState::Running).await;
        node::appears(&pid).await;
        controller.dies();
        node::killed(view.members[0].pid.unwrap().get()).await;
    });
    let command = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    node::daemon(node::killed(command));
    node.fall_silent(true);
    node::daemon(async {
        let controller = node.controller();
        let view = controller.until("a", "lost", JobState::Pending).await;
        assert!(view.reason.contains("its GPU is not here any more"), "{}", view.reason);
        controller.dies();
    });
    node.fall_silent(false);
    node::daemon(async {
        let controller = node.controller();
        assert_eq!(controller.until("a", "lost", JobState::Running).await.members[0].starts, 2);
    });
}

#[tokio::test]
async fn deleted_job_leaves_nothing_behind() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    for _ in 0..2 {
        controller.submit(wish("a", "again", "1", "trap '' TERM; sleep 1000")).unwrap();
        controller.until("a", "again", JobState::Running).await;
        controller.delete("a", "again").unwrap();
        controller.gone("a", "again").await;
    }
    assert_eq!(std::fs::read_dir(node.path("state/jobs")).unwrap().count(), 0);
    assert!(node.slices().is_empty());
}

#[tokio::test]
async fn stop_signal_reaches_job_despite_inherited_mask() {
    let blocked: SigSet = [Signal::SIGTERM, Signal::SIGUSR1].into_iter().collect();
    blocked.thread_block().unwrap();
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller.submit(wish("a", "ends", "1", "sleep 1000")).unwrap();
    controller.until("a", "ends", JobState::Running).await;
    controller.delete("a", "ends").unwrap();
    controller.gone("a", "ends").await;
    let forced: Vec<_> = node.happened().into_iter().filter(|told| told.contains("did not end")).collect();
    assert!(forced.is_empty(), "{forced:?}");
}

#[tokio::test]
async fn suspended_job_releases_gpus_until_resumed() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller.submit(wish("a", "long", "1", "sleep 1000")).unwrap();
    controller.submit(wish("a", "next", "1", "true")).unwrap();
    controller.until("a", "long", JobState::Running).await;
    controller.suspend("a", "long", true).unwrap();
    controller.until("a", "next", JobState::Succeeded).await;
    let view = controller.until("a", "long", JobState::Pending).await;
    assert_eq!(view.reason, "suspended; `tranche resume` lets it go on");
    controller.submit(wish("a", "blocks", "1", "sleep 1000")).unwrap();
    controller.until("a", "blocks", JobState::Running).await;
    controller.suspend("a", "long", false).unwrap();
    let reason = || controller.view("a", "long").unwrap().reason;
    assert!(reason().contains("within the quota") || reason().contains("borrow"), "{}", reason());
    assert!(!reason().contains("suspended"), "it is not any more: {}", reason());
    controller.delete("a", "blocks").unwrap();
    controller.until("a", "long", JobState::Running).await;
}

#[tokio::test]
async fn only_a_suspended_job_is_resumed_and_only_an_unended_one_suspended() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller.submit(wish("a", "ends", "0.5", "true")).unwrap();
    controller.submit(wish("a", "runs", "0.5", "trap '' TERM; while :; do sleep 0.05; done")).unwrap();
    controller.until("a", "ends", JobState::Succeeded).await;
    controller.until("a", "runs", JobState::Running).await;
    let refused = |name: &str, suspended| controller.suspend("a", name, suspended).unwrap_err().to_string();
    assert!(refused("runs", false).contains("is not suspended, so there is nothing to resume"));
    for suspended in [true, false] {
        assert!(refused("ends", suspended).contains("has ended, and is neither suspended nor resumed"));
    }
    assert_eq!(controller.view("a", "runs").unwrap().state, JobState::Running);
    controller.delete("a", "runs").unwrap();
    assert!(refused("runs", true).contains("is being deleted"));
    controller.gone("a", "runs").await;
}

#[test]
fn project_names_only_gpus_that_the_node_has() {
    let node = TestNode::with_gpus(2);
    let on = |gpus: &[u32]| ProjectChange {
        training_gpus: Some(gpus.iter().copied().collect()),
        ..ProjectChange::default()
    };
    node::daemon(async {
        let controller = node.controller();
        controller.project("a", "1");
        let name = "a".parse().unwrap();
        let refused = controller.controller.update_project(&name, on(&[1, 7, 9]), false).unwrap_err();
        assert_eq!(refused.to_string(), "--training-gpus names GPU 7, 9, and this node has GPU 0, 1");
        controller.change("a", on(&[1]));
        assert_eq!(node.noted(), [""; 0]);
    });
    // The next daemon sees a GPU less.
    let smaller = node.without_gpu(1);
    node::daemon(async {
        let controller = smaller.controller();
        let noted = smaller.noted();
        assert_eq!(noted, ["project a: --training-gpus names GPU 1, and this node has GPU 0"]);
        let weight = ProjectChange { weight: Some("3".parse().unwrap()), ..ProjectChange::default() };
        controller.change("a", weight);
        assert_eq!(smaller.noted(), noted, "other changes are possible");
        controller.change("a", on(&[0]));
        assert_eq!(smaller.noted(), [""; 0]);
    });
}

#[tokio::test]
async fn default_project_is_named_as_what_it_is() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    node.make_for_user("own", None, 0);
    controller.controller.look_again();
    let implicit = || controller.controller.projects().iter().any(|project| project.implicit);
    node::until("the slice counts", implicit).await;
    let refused = controller.submit(wish("default", "job", "1", "true")).unwrap_err().to_string();
    assert!(refused.contains("project default is there by itself"), "{refused}");
}

#[tokio::test]
async fn partly_running_job_says_how_many_run_and_what_the_others_wait_for() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller
        .submit(Wish { parallelism: 3, completions: 3, ..wish("a", "three", "0.5", "sleep 1000") })
        .unwrap();
    let both = || controller.view("a", "three").unwrap().reason.starts_with("2 of 3 members run");
    node::until("two run", both).await;
    let reason = controller.view("a", "three").unwrap().reason;
    assert!(reason.contains("and 0 have ended; others wait: "), "{reason}");
}

#[tokio::test]
async fn parallel_members_are_limited_and_have_indices() {
    let node = TestNode::with_gpus(4);
    let controller = node.controller();
    controller.project("a", "4");
    let folder = node.path("sweep");
    std::fs::create_dir(&folder).unwrap();
    let member = format!(
        "cd {}; touch in.$TRANCHE_JOB_INDEX; ls in.* | wc -l; sleep 0.3; rm in.$TRANCHE_JOB_INDEX; touch done.$TRANCHE_JOB_INDEX",
        folder.display()
    );
    controller.submit(Wish { parallelism: 2, completions: 4, ..wish("a", "sweep", "2", &member) }).unwrap();
    let view = controller.until("a", "sweep", JobState::Succeeded).await;
    assert_eq!((view.succeeded, view.members.len()), (4, 4));
    assert!((0..4).all(|index| folder.join(format!("done.{index}")).exists()));
    let at_once: Vec<u32> =
        (0..4).map(|index| controller.log("a", "sweep", index).trim().parse().unwrap()).collect();
    assert!(at_once.iter().all(|count| *count <= 2) && at_once.contains(&2), "{at_once:?}");
}

#[tokio::test]
async fn overdue_job_is_stopped_with_a_reason() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller.change(
        "a",
        ProjectChange { interactive_limit: Some(Duration::from_secs(1)), ..ProjectChange::default() },
    );
    controller.submit(Wish { kind: JobKind::Interactive, ..wish("a", "sits", "0.3", "sleep 1000") }).unwrap();
    let most = Some(Duration::from_secs(1));
    controller.submit(Wish { max_runtime: most, ..wish("a", "bounded", "0.3", "sleep 1000") }).unwrap();
    controller.submit(wish("a", "unbounded", "0.3", "sleep 1000")).unwrap();
    let reason = controller.until("a", "sits", JobState::Failed).await.reason;
    assert!(reason.contains("interactive"), "{reason}");
    let reason = controller.until("a", "bounded", JobState::Failed).await.reason;
    assert!(reason.contains("--max-runtime"), "{reason}");
    assert_eq!(controller.view("a", "unbounded").unwrap().state, JobState::Running);
}

/// A project with a running job limited to one hour, and an ended job.
async fn limited_and_ended_job(controller: &node::RunningController) {
    controller.project("a", "1");
    controller.submit(wish("a", "ended", "0.5", "true")).unwrap();
    controller.until("a", "ended", JobState::Succeeded).await;
    let most = Some(Duration::from_hours(1));
    controller.submit(Wish { max_runtime: most, ..wish("a", "runs", "0.5", "sleep 1000") }).unwrap();
    controller.until("a", "runs", JobState::Running).await;
}

/// Waits until limits have been checked.
async fn wait_for_limit_check(controller: &node::RunningController) {
    let most = Some(Duration::ZERO);
    controller.submit(Wish { max_runtime: most, ..wish("a", "overdue", "0.5", "sleep 1000") }).unwrap();
    controller.until("a", "overdue", JobState::Failed).await;
    controller.delete("a", "overdue").unwrap();
}

#[tokio::test]
async fn clock_change_affects_no_job() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    limited_and_ended_job(&controller).await;
    for hours in [31 * 24, -31 * 24] {
        node.set_clock(hours);
        wait_for_limit_check(&controller).await;
        assert_eq!(controller.view("a", "runs").unwrap().state, JobState::Running);
        assert!(controller.view("a", "ended").is_some());
    }
}

#[test]
fn elapsed_time_counts_over_daemons_and_clocks() {
    let node = TestNode::with_gpus(1);
    node::daemon(async {
        let controller = node.controller();
        limited_and_ended_job(&controller).await;
        controller.dies();
    });
    node.set_clock(-31 * 24);
    node.pass(2);
    node::daemon(async {
        let controller = node.controller();
        let reason = controller.until("a", "runs", JobState::Failed).await.reason;
        assert!(reason.contains("--max-runtime"), "{reason}");
        assert!(controller.view("a", "ended").is_some());
        node.pass(30 * 24);
        controller.gone("a", "ended").await;
    });
}

#[tokio::test]
async fn retention_limits_ended_jobs_and_logs() {
    let node = TestNode::with_gpus(1);
    let controller = node.desk_keeping(Retention { most: 1, ..Retention::DEFAULT });
    controller.project("a", "1");
    controller.submit(wish("a", "runs", "0.5", "sleep 1000")).unwrap();
    for name in ["first", "second"] {
        controller.submit(wish("a", name, "0.5", "echo printed")).unwrap();
        controller.until("a", name, JobState::Succeeded).await;
    }
    controller.gone("a", "first").await;
    assert_eq!(controller.log("a", "second", 0), "printed\n");
    assert!(controller.view("a", "runs").is_some(), "what has not ended is not counted");
    // The folders are removed a moment after the store has forgotten them.
    node::until("one folder for each job that is kept", || {
        std::fs::read_dir(node.path("state/jobs")).unwrap().count() == 2
    })
    .await;
    controller.submit(wish("a", "first", "0.5", "true")).unwrap();
}

#[tokio::test]
async fn rejected_submission_leaves_nothing() {
    let node = TestNode::with_gpus(2);
    let controller = node.controller();
    controller.project("a", "2");
    let refused = |wish: Wish| controller.submit(wish).unwrap_err().to_string();
    assert!(refused(wish("nobody", "j", "1", "true")).contains("no project nobody"));
    assert!(refused(wish("a", "huge", "3", "true")).contains("at most 2"));
    // A test's daemon has no cgroup that it may divide, whatever the machine has.
    let host = HostLimits { cpus: "2.5".parse().ok(), memory: None };
    assert!(
        refused(Wish { host, ..wish("a", "limited", "1", "true") })
            .contains("cannot limit processors or memory")
    );
    controller.submit(wish("a", "j", "1", "sleep 1000")).unwrap();
    assert!(refused(wish("a", "j", "1", "true")).contains("named j exists"));
    let more = controller.create("b", "1").unwrap_err().to_string();
    assert!(more.contains("3 GPUs together") && more.contains("has 2"), "{more}");
    assert!(controller.create("a", "0").unwrap_err().to_string().contains("project update a"));
    let in_use = controller.controller.delete_project(&"a".parse().unwrap()).unwrap_err().to_string();
    assert!(in_use.contains("1 job(s)"), "{in_use}");
    assert_eq!(controller.controller.jobs(None, None, ADMIN).unwrap().len(), 1);
}

#[tokio::test]
async fn jobs_of_one_user_are_limited() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "0");
    let user = Requester { uid: 4242, admin: false };
    controller.change("a", ProjectChange { add: [4242].into(), ..ProjectChange::default() });
    for number in 0..MOST_JOBS_OF_A_USER {
        controller.submit_as(wish("a", &format!("j-{number}"), "1", "true"), user).unwrap();
    }
    let refused = controller.submit_as(wish("a", "more", "1", "true"), user).unwrap_err().to_string();
    assert!(refused.contains("have not ended") && refused.contains("at most 2000"), "{refused}");
    controller.submit(wish("a", "more", "1", "true")).unwrap();
    for name in ["j-0", "more"] {
        controller.delete("a", name).unwrap();
    }
    controller.submit_as(wish("a", "more", "1", "true"), user).unwrap();
}

#[tokio::test]
async fn project_jobs_are_restricted_to_members() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    controller.submit(wish("a", "secret", "1", "echo password; sleep 1000")).unwrap();
    controller.until("a", "secret", JobState::Running).await;
    let stranger = Requester { uid: 4242, admin: false };
    let (project, name) = ("a".parse().unwrap(), "secret".parse().unwrap());
    let view = controller.controller.jobs(Some(&project), Some(&name), stranger).unwrap().remove(0);
    assert!(view.command.is_empty() && view.workdir.is_empty() && view.state == JobState::Running);
    let denied =
        |result: Result<(), JobsError>| matches!(result, Err(JobsError::NotAMember { uid: 4242, .. }));
    assert!(denied(controller.controller.delete(&project, &name, stranger)));
    assert!(denied(controller.controller.suspend(&project, &name, true, stranger)));
    assert!(denied(controller.controller.log(&project, &name, 0, LogFrom::Byte(0), stranger).map(drop)));
    assert!(denied(controller.submit_as(wish("a", "mine", "1", "true"), stranger)));
    let missing = Wish { command: vec!["/home/alice/plan".into()], ..wish("a", "missing", "1", "") };
    controller.delete("a", "secret").unwrap();
    controller.submit(missing).unwrap();
    controller.until("a", "missing", JobState::Failed).await;
    let failed = "missing".parse().unwrap();
    let reason = |requester| {
        controller.controller.jobs(Some(&project), Some(&failed), requester).unwrap().remove(0).reason
    };
    assert!(reason(ADMIN).contains("/home/alice/plan"));
    assert_eq!(reason(stranger), "its command could not be started");
    assert!(!node.happened().iter().any(|told| told.contains("alice")));
    let secret = wish("a", "secret", "1", "echo password; sleep 1000");
    controller.gone("a", "secret").await;
    controller.submit(secret).unwrap();
    controller.change("a", ProjectChange { add: [4242].into(), ..ProjectChange::default() });
    assert!(
        !controller.controller.jobs(Some(&project), Some(&name), stranger).unwrap()[0].command.is_empty()
    );
}

#[tokio::test]
async fn notebook_address_is_visible_to_owner_only() {
    let node = TestNode::with_gpus(1);
    let controller = node.controller();
    controller.project("a", "1");
    let serves = wish("a", "notebook", "1", "echo http://localhost:8888/?token=ab; sleep 1000");
    controller.submit(Wish { kind: JobKind::Interactive, ..serves }).unwrap();
    let member = Requester { uid: 4242, admin: false };
    controller.change("a", ProjectChange { add: [4242].into(), ..ProjectChange::default() });
    let (project, name) = ("a".parse().unwrap(), "notebook".parse().unwrap());
    let url =
        |requester| controller.controller.jobs(Some(&project), Some(&name), requester).unwrap().remove(0).url;
    node::until("its owner sees the address", || url(ADMIN).is_some()).await;
    assert_eq!(url(member), None);
    let log =
        controller.controller.log(&project, &name, 0, LogFrom::Byte(0), member).unwrap_err().to_string();
    assert!(log.contains("is interactive"), "{log}");
    controller.controller.suspend(&project, &name, true, member).unwrap();
}
