//! Calls that concern projects and jobs.

use std::ops::ControlFlow;
use std::time::Duration;

use tranche_domain::jobs::{JobName, JobView, ProjectName, ProjectView, Report, ReportQuery, Submission};
use tranche_rpc::v1;
use tranche_rpc::v1::jobs_client::JobsClient;
use tranche_rpc::{JobListing, ProjectWish};

use super::{Daemon, PATIENCE, call};
use crate::errors::Failure;

impl Daemon {
    fn jobs_client(&self) -> Result<JobsClient<tonic::transport::Channel>, Failure> {
        let socket = self.socket.clone();
        Ok(self.runtime.block_on(tranche_rpc::connect_to_jobs(&socket))?)
    }

    /// Projects with their quota, use and queue.
    pub fn projects(&mut self) -> Result<Vec<ProjectView>, Failure> {
        let answer = call!(self, self.jobs_client()?, list_projects, v1::ListProjectsRequest {})?;
        Ok(answer.projects.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
    }

    /// Creates a project with these settings.
    pub fn create_project(&mut self, wish: ProjectWish) -> Result<ProjectView, Failure> {
        Ok(call!(self, self.jobs_client()?, create_project, v1::CreateProjectRequest::from(wish))?
            .try_into()?)
    }

    /// Changes the settings of a project that `wish` states.
    pub fn update_project(&mut self, wish: ProjectWish) -> Result<ProjectView, Failure> {
        Ok(call!(self, self.jobs_client()?, update_project, v1::UpdateProjectRequest::from(wish))?
            .try_into()?)
    }

    /// Deletes a project that has no jobs.
    pub fn delete_project(&mut self, name: &ProjectName) -> Result<(), Failure> {
        let message = v1::DeleteProjectRequest { name: name.to_string() };
        call!(self, self.jobs_client()?, delete_project, message).map(drop)
    }

    /// Submits a job, and returns its state in the queue.
    pub fn submit(&mut self, submission: Submission) -> Result<JobView, Failure> {
        Ok(call!(self, self.jobs_client()?, submit_job, v1::SubmitJobRequest::from(submission))?
            .try_into()?)
    }

    /// Jobs of one project or of all, or a single job.
    pub fn jobs(
        &mut self,
        project: Option<&ProjectName>,
        name: Option<&JobName>,
    ) -> Result<Vec<JobView>, Failure> {
        let message =
            v1::ListJobsRequest::from(JobListing { project: project.cloned(), name: name.cloned() });
        let answer = call!(self, self.jobs_client()?, list_jobs, message)?;
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
        let message = v1::DeleteJobRequest { project: project.to_string(), name: name.to_string() };
        call!(self, self.jobs_client()?, delete_job, message).map(drop)
    }

    /// Passes on a member's log in parts, with the offset after each; with `follow` until it ends.
    pub fn log(
        &mut self,
        request: v1::FollowLogRequest,
        mut hear: impl FnMut(&[u8], u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let patience = if request.follow { Duration::MAX } else { PATIENCE };
        let mut parts = call!(self, self.jobs_client()?, follow_log, request)?;
        self.each(&mut parts, patience, |part| hear(&part.data, part.next).map(ControlFlow::Continue))
    }

    /// Use of GPUs since a time in milliseconds since the Unix epoch.
    pub fn history(&mut self, since_unix_ms: u64) -> Result<Vec<v1::HistoryPoint>, Failure> {
        let message = v1::ShowHistoryRequest { since_unix_ms };
        Ok(call!(self, self.jobs_client()?, show_history, message)?.points)
    }

    /// Sums of GPU use.
    pub fn report(&mut self, query: ReportQuery) -> Result<Report, Failure> {
        let message = v1::ShowReportRequest::from(query);
        Ok(call!(self, self.jobs_client()?, show_report, message)?.try_into()?)
    }
}
