//! The slices of jobs: a member's own, and others that have its name. Nobody is started here: there is no shepherd.

use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tranche_rpc::v1::{self, jobs_client::JobsClient};

use crate::common::{PATIENCE, Place, fraction};
use crate::one_gpu;

/// The slice of the first job there is.
const SLICE: &str = "a.eval.0";

/// Project `a`, and who hands its jobs in.
struct Jobs {
    runtime: tokio::runtime::Runtime,
    client: JobsClient<Channel>,
}

impl Jobs {
    fn of(place: &Place) -> Self {
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

    /// Waits until the only job says why it does not start.
    fn says(&mut self, what: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let list = self.client.list_jobs(v1::ListJobsRequest::default());
            let reason = self.runtime.block_on(list).unwrap().into_inner().jobs.remove(0).reason;
            if reason.contains(what) {
                return reason;
            }
            assert!(Instant::now() < deadline, "it does not say {what:?}, but {reason:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn somebodys_slice_that_has_a_jobs_name_stays_and_the_job_says_what_to_do() {
    let (place, driver) = (Place::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction(SLICE, 500)).unwrap();
    let mut jobs = Jobs::of(&place);
    jobs.submit("eval");
    let reason = jobs.says("2 times so far");
    assert!(reason.contains("not made for this job"), "{reason}");
    assert!(reason.contains("`tranche slice delete a.eval.0`"), "{reason}");
    assert_eq!(daemon.calls.snapshot().slices[0].name, SLICE);
    daemon.calls.delete(SLICE, false).unwrap();
    jobs.says("tranche-shepherd");
    drop(jobs);
}
