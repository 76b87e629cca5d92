//! Slices of jobs: a member's own, and others with its name. No job runner is started here.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;
use tranche_inventory::scripted::{ScriptedDriver, v100};
use tranche_rpc::v1::{self, jobs_client::JobsClient};

use crate::common::{DaemonDirectories, PATIENCE, expect_code, fraction};
use crate::one_gpu;

/// Name of the first job's slice.
const SLICE: &str = "a.eval.0";

/// Project `a`, and the user that submits its jobs.
struct Jobs {
    runtime: tokio::runtime::Runtime,
    client: JobsClient<Channel>,
}

impl Jobs {
    fn of(place: &DaemonDirectories) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = place.runtime().join("tranched.sock");
        let mut client = runtime.block_on(tranche_rpc::connect_to_jobs(&socket)).unwrap();
        let change = v1::ProjectChange { quota_milligpus: Some(1000), ..Default::default() };
        let project =
            v1::CreateProjectRequest { name: "a".into(), change: Some(change), beyond_capacity: false };
        runtime.block_on(client.create_project(project)).unwrap();
        Self { runtime, client }
    }

    fn submit(&mut self, name: &str) {
        let job = v1::SubmitJobRequest {
            project: "a".into(),
            name: name.into(),
            share: Some(v1::Share { kind: Some(v1::share::Kind::FractionPermille(100)) }),
            command: vec!["true".into()],
            workdir: "/".into(),
            ..Default::default()
        };
        self.runtime.block_on(self.client.submit_job(job)).unwrap();
    }

    /// Waits until the only job states why it does not start.
    fn wait_for_reason(&mut self, what: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let list = self.client.list_jobs(v1::ListJobsRequest::default());
            let reason = self.runtime.block_on(list).unwrap().into_inner().jobs.remove(0).reason;
            if reason.contains(what) {
                return reason;
            }
            assert!(Instant::now() < deadline, "the reason is {reason:?}, without {what:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Edits the stored state of the only slice.
fn change_kept(place: &DaemonDirectories, change: impl FnOnce(&mut Value)) {
    let path = place.state().join("state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut state["slices"][0]);
    fs::write(path, serde_json::to_vec(&state).unwrap()).unwrap();
}

fn make_a_jobs(kept: &mut Value) {
    kept["slice"]["job"] = json!({"job": 0, "index": 0});
}

#[test]
fn user_slice_with_a_job_name_is_kept() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction(SLICE, 500)).unwrap();
    let mut jobs = Jobs::of(&place);
    jobs.submit("eval");
    let reason = jobs.wait_for_reason("2 times so far");
    assert!(reason.contains("not made for this job"), "{reason}");
    assert!(reason.contains("`tranche slice delete a.eval.0`"), "{reason}");
    assert_eq!(daemon.calls.snapshot().slices[0].name, SLICE);
    daemon.calls.delete(SLICE, false).unwrap();
    jobs.wait_for_reason("tranche-shepherd");
    drop(jobs);
}

#[test]
fn stranded_job_slice_does_not_block_its_job() {
    let place = DaemonDirectories::new();
    let both = ScriptedDriver::new(vec![v100(0), v100(1)]);
    let on_second = v1::CreateSliceRequest { gpus: vec!["1".into()], ..fraction(SLICE, 100) };
    place.start(&both).calls.create(on_second).unwrap();
    change_kept(&place, make_a_jobs);
    let mut daemon = place.start(&one_gpu());
    let is_told =
        |view: &v1::NodeView| view.notes.iter().any(|note| note.contains("a.eval.0 cannot be served"));
    assert!(is_told(&daemon.calls.snapshot()));
    let mut jobs = Jobs::of(&place);
    jobs.submit("eval");
    jobs.wait_for_reason("tranche-shepherd");
    daemon.calls.wait_until("it is told no more", |view| !is_told(view));
    drop(jobs);
}

#[test]
fn job_slice_cannot_be_resized_by_users() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    place.start(&driver).calls.create(fraction(SLICE, 100)).unwrap();
    change_kept(&place, make_a_jobs);
    let calls = &mut place.start(&driver).calls;
    let change = v1::ResizeSliceRequest { name: SLICE.into(), ..Default::default() };
    for larger in [
        v1::ResizeSliceRequest { fraction_permille: Some(900), ..change.clone() },
        v1::ResizeSliceRequest { priority: Some(9), ..change.clone() },
        v1::ResizeSliceRequest { latency_us: Some(5_000), ..change.clone() },
    ] {
        let refused = expect_code(calls.resize(larger), Code::FailedPrecondition);
        assert!(refused.contains("submit it with another -g"), "{refused}");
    }
    assert!(calls.resize(v1::ResizeSliceRequest { frozen: Some(true), ..change }).unwrap().frozen);
}

#[test]
fn forced_deletion_of_a_stranded_slice_kills_its_processes() {
    let place = DaemonDirectories::new();
    let both = ScriptedDriver::new(vec![v100(0), v100(1)]);
    let on_second = v1::CreateSliceRequest { gpus: vec!["1".into()], ..fraction("a", 100) };
    place.start(&both).calls.create(on_second).unwrap();
    let mut root = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", root.id())).unwrap();
    let start_time: u64 = stat.rsplit(')').next().unwrap().split(' ').nth(20).unwrap().parse().unwrap();
    change_kept(&place, |kept| kept["roots"] = json!([{"pid": root.id(), "start_time": start_time}]));
    let calls = &mut place.start(&one_gpu()).calls;
    expect_code(calls.delete("a", false), Code::FailedPrecondition);
    assert_eq!(calls.delete("a", true).unwrap(), [root.id()]);
    assert!(!root.wait().unwrap().success());
    assert!(!place.runtime().join("slices/a").exists());
}
