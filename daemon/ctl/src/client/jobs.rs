//! Calls that concern projects and jobs.

use std::time::Duration;

use tonic::Streaming;
use tranche_domain::jobs::{JobName, JobView, ProjectName, ProjectView, Submission};
use tranche_rpc::v1;
use tranche_rpc::v1::jobs_client::JobsClient;
use tranche_rpc::{JobListing, ProjectWish};

use super::{Daemon, PATIENCE};
use crate::errors::Failure;

impl Daemon {
    fn jobs_client(&self) -> Result<JobsClient<tonic::transport::Channel>, Failure> {
        let socket = self.socket.clone();
        Ok(self.runtime.block_on(tranche_rpc::connect_to_jobs(&socket))?)
    }

    /// Projects with their quota, use and queue.
    pub fn projects(&mut self) -> Result<Vec<ProjectView>, Failure> {
        let mut jobs = self.jobs_client()?;
        let answer =
            self.ask(PATIENCE, async move { jobs.list_projects(v1::ListProjectsRequest {}).await })?;
        Ok(answer.projects.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
    }

    /// Creates a project with these settings.
    pub fn create_project(&mut self, wish: ProjectWish) -> Result<ProjectView, Failure> {
        let (mut jobs, message) = (self.jobs_client()?, v1::CreateProjectRequest::from(wish));
        Ok(self.ask(PATIENCE, async move { jobs.create_project(message).await })?.try_into()?)
    }

    /// Changes the settings of a project that `wish` states.
    pub fn update_project(&mut self, wish: ProjectWish) -> Result<ProjectView, Failure> {
        let (mut jobs, message) = (self.jobs_client()?, v1::UpdateProjectRequest::from(wish));
        Ok(self.ask(PATIENCE, async move { jobs.update_project(message).await })?.try_into()?)
    }

    /// Deletes a project that has no jobs.
    pub fn delete_project(&mut self, name: &ProjectName) -> Result<(), Failure> {
        let (mut jobs, name) = (self.jobs_client()?, name.to_string());
        let message = v1::DeleteProjectRequest { name };
        self.ask(PATIENCE, async move { jobs.delete_project(message).await }).map(drop)
    }

    /// Submits a job, and returns its state in the queue.
    pub fn submit(&mut self, submission: Submission) -> Result<JobView, Failure> {
        let (mut jobs, message) = (self.jobs_client()?, v1::SubmitJobRequest::from(submission));
        Ok(self.ask(PATIENCE, async move { jobs.submit_job(message).await })?.try_into()?)
    }

    /// Jobs of one project or of all, or a single job.
    pub fn jobs(
        &mut self,
        project: Option<&ProjectName>,
        name: Option<&JobName>,
    ) -> Result<Vec<JobView>, Failure> {
        let mut jobs = self.jobs_client()?;
        let message =
            v1::ListJobsRequest::from(JobListing { project: project.cloned(), name: name.cloned() });
        let answer = self.ask(PATIENCE, async move { jobs.list_jobs(message).await })?;
        Ok(answer.jobs.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
    }

    /// Suspends or resumes a job.
    pub fn suspend(
        &mut self,
        project: &ProjectName,
        name: &JobName,
        suspended: bool,
    ) -> Result<JobView, Failure> {
        let (mut jobs, project, name) = (self.jobs_client()?, project.to_string(), name.to_string());
        let answer = self.ask(PATIENCE, async move {
            match suspended {
                true => jobs.suspend_job(v1::SuspendJobRequest { project, name }).await,
                false => jobs.resume_job(v1::ResumeJobRequest { project, name }).await,
            }
        });
        Ok(answer?.try_into()?)
    }

    /// Stops and deletes a job.
    pub fn delete_job(&mut self, project: &ProjectName, name: &JobName) -> Result<(), Failure> {
        let mut jobs = self.jobs_client()?;
        let message = v1::DeleteJobRequest { project: project.to_string(), name: name.to_string() };
        self.ask(PATIENCE, async move { jobs.delete_job(message).await }).map(drop)
    }

    /// Passes on a member's log in parts; with `follow` until it ends.
    pub fn log(
        &mut self,
        request: v1::FollowLogRequest,
        mut hear: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let patience = if request.follow { Duration::MAX } else { PATIENCE };
        let mut jobs = self.jobs_client()?;
        let mut parts = self.ask(PATIENCE, async move { jobs.follow_log(request).await })?;
        let next = |parts: &mut Streaming<v1::LogPart>| {
            self.runtime.block_on(async { tokio::time::timeout(patience, parts.message()).await })
        };
        loop {
            match next(&mut parts) {
                Ok(Ok(Some(part))) => hear(&part.data)?,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(status)) => return Err(self.refusal(status)),
                Err(_) => return Err(Failure::Silent { socket: self.socket.clone(), waited: patience }),
            }
        }
    }

    /// Use of GPUs since a time in milliseconds since the Unix epoch.
    pub fn history(&mut self, since_unix_ms: u64) -> Result<Vec<v1::HistoryPoint>, Failure> {
        let mut jobs = self.jobs_client()?;
        let message = v1::ShowHistoryRequest { since_unix_ms };
        Ok(self.ask(PATIENCE, async move { jobs.show_history(message).await })?.points)
    }
}
