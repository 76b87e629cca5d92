//! The jobs of the scripted daemon: a fixed list, of which the request selects a project.

use tonic::{Request, Response, Status};
use tranche_rpc::v1;
use tranche_rpc::v1::jobs_server::Jobs;

/// Jobs and projects that do not change.
pub(crate) struct Fixed {
    pub(crate) jobs: Vec<v1::JobView>,
    pub(crate) projects: Vec<v1::ProjectView>,
}

type Answer<T> = Result<Response<T>, Status>;

fn none<T>() -> Answer<T> {
    Err(Status::unimplemented("the script's jobs do not change"))
}

#[tonic::async_trait]
impl Jobs for Fixed {
    async fn list_projects(&self, _: Request<v1::ListProjectsRequest>) -> Answer<v1::ListProjectsResponse> {
        Ok(Response::new(v1::ListProjectsResponse { projects: self.projects.clone() }))
    }

    async fn list_jobs(&self, request: Request<v1::ListJobsRequest>) -> Answer<v1::ListJobsResponse> {
        let v1::ListJobsRequest { project, name } = request.into_inner();
        let mut jobs = self.jobs.clone();
        jobs.retain(|job| project.as_ref().is_none_or(|project| job.project == *project));
        jobs.retain(|job| name.as_ref().is_none_or(|name| job.name == *name));
        Ok(Response::new(v1::ListJobsResponse { jobs }))
    }

    async fn create_project(&self, _: Request<v1::CreateProjectRequest>) -> Answer<v1::ProjectView> {
        none()
    }

    async fn update_project(&self, _: Request<v1::UpdateProjectRequest>) -> Answer<v1::ProjectView> {
        none()
    }

    async fn delete_project(
        &self,
        _: Request<v1::DeleteProjectRequest>,
    ) -> Answer<v1::DeleteProjectResponse> {
        none()
    }

    /// As a daemon that ignores all limits of members.
    async fn submit_job(&self, request: Request<v1::SubmitJobRequest>) -> Answer<v1::JobView> {
        let v1::SubmitJobRequest { project, name, .. } = request.into_inner();
        Ok(Response::new(v1::JobView { project, name, ..v1::JobView::default() }))
    }

    async fn suspend_job(&self, _: Request<v1::SuspendJobRequest>) -> Answer<v1::JobView> {
        none()
    }

    async fn resume_job(&self, _: Request<v1::ResumeJobRequest>) -> Answer<v1::JobView> {
        none()
    }

    async fn delete_job(&self, _: Request<v1::DeleteJobRequest>) -> Answer<v1::DeleteJobResponse> {
        Ok(Response::new(v1::DeleteJobResponse {}))
    }

    type FollowLogStream = tokio_stream::Empty<Result<v1::LogPart, Status>>;

    async fn follow_log(&self, _: Request<v1::FollowLogRequest>) -> Answer<Self::FollowLogStream> {
        none()
    }

    async fn show_report(&self, _: Request<v1::ShowReportRequest>) -> Answer<v1::ShowReportResponse> {
        let from_unix_ms = 1_767_322_800_000;
        let row = v1::ReportRow {
            from_unix_ms,
            project: Some("vision".into()),
            allocated_milligpu_ms: 7_200_000_000,
            ..v1::ReportRow::default()
        };
        let until_unix_ms = 1_767_330_000_000;
        Ok(Response::new(v1::ShowReportResponse { from_unix_ms, until_unix_ms, rows: vec![row] }))
    }

    async fn show_history(&self, _: Request<v1::ShowHistoryRequest>) -> Answer<v1::ShowHistoryResponse> {
        let point = |time_unix_ms, milligpus| v1::HistoryPoint {
            time_unix_ms,
            project: "vision".into(),
            job: "train".into(),
            milligpus,
        };
        Ok(Response::new(v1::ShowHistoryResponse { points: vec![point(1_767_323_045_000, 500)] }))
    }
}
