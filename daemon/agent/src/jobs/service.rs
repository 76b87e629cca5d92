//! The service `tranche.v1.Jobs`. Converts between messages, domain values and statuses; decides nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tranche_domain::access::Verb;
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::jobs::{JobName, ProjectName, ProjectView, ReportQuery, Submission};
use tranche_jobs::{JobOwner, JobsError, LogFrom, Requester};
use tranche_rpc::v1::{self, jobs_server::Jobs};
use tranche_rpc::{BadMessage, JobListing, ProjectWish};

use super::NodeDesk;
use crate::access::{AccessGate, Caller};
use crate::agent::Agent;
use crate::failure::{RequestFailure, Requested};
use crate::service::caller;

/// Pause between two checks for more output of a job.
const LOOK: Duration = Duration::from_millis(200);

/// Implementation of the service.
#[derive(Clone)]
pub(crate) struct JobsService {
    pub(crate) gate: Arc<AccessGate>,
    pub(crate) agent: Arc<Agent>,
    /// The reason, where the stored jobs cannot be read.
    pub(crate) desk: Result<Arc<NodeDesk>, String>,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Jobs for JobsService {
    async fn list_projects(&self, _: Request<v1::ListProjectsRequest>) -> Answer<v1::ListProjectsResponse> {
        let projects = self.with(|desk| Ok(desk.projects())).await?;
        Ok(Response::new(v1::ListProjectsResponse {
            projects: projects.into_iter().map(Into::into).collect(),
        }))
    }

    async fn create_project(&self, request: Request<v1::CreateProjectRequest>) -> Answer<v1::ProjectView> {
        let caller = caller(&request)?;
        self.administers(&caller)?;
        let wish = ProjectWish::try_from(request.into_inner())?;
        let (name, beyond) = (wish.name.clone(), wish.beyond_capacity);
        let project = wish.project()?;
        self.with(move |desk| desk.create_project(project, beyond)).await?;
        self.changed(EventKind::ProjectChanged, &caller, format!("project {name} was made"));
        self.show_project(name).await
    }

    async fn update_project(&self, request: Request<v1::UpdateProjectRequest>) -> Answer<v1::ProjectView> {
        let caller = caller(&request)?;
        self.administers(&caller)?;
        let ProjectWish { name, change, beyond_capacity } = request.into_inner().try_into()?;
        let changed = name.clone();
        self.with(move |desk| desk.update_project(&changed, change, beyond_capacity)).await?;
        self.changed(EventKind::ProjectChanged, &caller, format!("project {name} has other terms"));
        self.show_project(name).await
    }

    async fn delete_project(
        &self,
        request: Request<v1::DeleteProjectRequest>,
    ) -> Answer<v1::DeleteProjectResponse> {
        let caller = caller(&request)?;
        self.administers(&caller)?;
        let name: ProjectName = request.into_inner().name.parse().map_err(BadMessage::from)?;
        let deleted = name.clone();
        self.with(move |desk| desk.delete_project(&deleted)).await?;
        self.changed(EventKind::ProjectDeleted, &caller, format!("project {name} was deleted"));
        Ok(Response::new(v1::DeleteProjectResponse {}))
    }

    async fn submit_job(&self, request: Request<v1::SubmitJobRequest>) -> Answer<v1::JobView> {
        let caller = caller(&request)?;
        let (asker, owner) = (caller.requester(), JobOwner { uid: caller.uid, gid: caller.gid });
        let submission = Submission::try_from(request.into_inner())?;
        let (project, name) = (submission.spec.project.clone(), submission.spec.name.clone());
        let what = format!("job {name} of project {project}");
        let submit = move |desk: &NodeDesk| {
            desk.submit(submission, owner, asker)?;
            Ok(desk.job(&project, &name, asker))
        };
        let view = self.with(submit).await?;
        self.changed(EventKind::JobSubmitted, &caller, what);
        Ok(Response::new(view.map_err(RequestFailure::from)?.into()))
    }

    async fn list_jobs(&self, request: Request<v1::ListJobsRequest>) -> Answer<v1::ListJobsResponse> {
        let asker = caller(&request)?.requester();
        let JobListing { project, name } = request.into_inner().try_into()?;
        let jobs = self.with(move |desk| desk.jobs(project.as_ref(), name.as_ref(), asker)).await?;
        Ok(Response::new(v1::ListJobsResponse { jobs: jobs.into_iter().map(Into::into).collect() }))
    }

    async fn suspend_job(&self, request: Request<v1::SuspendJobRequest>) -> Answer<v1::JobView> {
        let caller = caller(&request)?;
        let v1::SuspendJobRequest { project, name } = request.into_inner();
        let answer = self.suspend(&project, &name, true, caller.requester()).await?;
        self.changed(EventKind::JobSuspended, &caller, format!("job {name} of project {project}"));
        Ok(answer)
    }

    async fn resume_job(&self, request: Request<v1::ResumeJobRequest>) -> Answer<v1::JobView> {
        let caller = caller(&request)?;
        let v1::ResumeJobRequest { project, name } = request.into_inner();
        let answer = self.suspend(&project, &name, false, caller.requester()).await?;
        self.changed(EventKind::JobResumed, &caller, format!("job {name} of project {project}"));
        Ok(answer)
    }

    async fn delete_job(&self, request: Request<v1::DeleteJobRequest>) -> Answer<v1::DeleteJobResponse> {
        let caller = caller(&request)?;
        let asker = caller.requester();
        let v1::DeleteJobRequest { project, name } = request.into_inner();
        let (project, name) = names(&project, &name)?;
        let told = format!("job {name} of project {project}");
        self.with(move |desk| desk.delete(&project, &name, asker)).await?;
        self.changed(EventKind::JobDeleted, &caller, told);
        Ok(Response::new(v1::DeleteJobResponse {}))
    }

    type FollowLogStream = ReceiverStream<Result<v1::LogPart, Status>>;

    async fn follow_log(&self, request: Request<v1::FollowLogRequest>) -> Answer<Self::FollowLogStream> {
        let caller = caller(&request)?;
        let (asker, follower) = (caller.requester(), self.gate.follow(&caller)?);
        let v1::FollowLogRequest { project, name, member, last_lines, follow, from_byte } =
            request.into_inner();
        let (project, name) = names(&project, &name)?;
        let lines = last_lines.map(|lines| LogFrom::LastLines(usize::try_from(lines).unwrap_or(usize::MAX)));
        let from = from_byte.map(LogFrom::Byte).or(lines).unwrap_or(LogFrom::Byte(0));
        let wanted = LogSelection { project, name, member, follow, asker };
        // An invalid request fails at once.
        let first = self.part(&wanted, from).await?;
        let (tell, told) = mpsc::channel(4);
        let service = self.clone();
        tokio::spawn(async move {
            service.send_parts(&wanted, first, &tell).await;
            drop(follower);
        });
        Ok(Response::new(ReceiverStream::new(told)))
    }

    async fn show_history(
        &self,
        request: Request<v1::ShowHistoryRequest>,
    ) -> Answer<v1::ShowHistoryResponse> {
        let since = request.into_inner().since_unix_ms;
        let points = self.with(move |desk| desk.history(since)).await?;
        let point = |point: tranche_jobs::Point| v1::HistoryPoint {
            time_unix_ms: point.time_unix_ms,
            project: point.project.into(),
            job: point.job,
            milligpus: point.gpus.get(),
        };
        Ok(Response::new(v1::ShowHistoryResponse { points: points.into_iter().map(point).collect() }))
    }

    async fn show_report(&self, request: Request<v1::ShowReportRequest>) -> Answer<v1::ShowReportResponse> {
        let query = ReportQuery::try_from(request.into_inner())?;
        let report = self.with(move |desk| desk.report(query)).await?;
        Ok(Response::new(report.into()))
    }
}

/// Parameters of a log request.
#[derive(Clone, Debug)]
struct LogSelection {
    project: ProjectName,
    name: JobName,
    member: u32,
    follow: bool,
    asker: Requester,
}

impl JobsService {
    /// Runs an operation of the job controller on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&NodeDesk) -> Result<T, JobsError> + Send + 'static,
    ) -> Requested<T> {
        let desk = self.desk.clone().map_err(RequestFailure::NoJobs)?;
        Ok(tokio::task::spawn_blocking(move || ask(&desk)).await??)
    }

    /// Records a client's change in the history.
    fn changed(&self, kind: EventKind, caller: &Caller, what: impl std::fmt::Display) {
        self.agent.telemetry.record(Happening::new(kind, what).asked_by(caller.actor()));
    }

    fn administers(&self, caller: &Caller) -> Requested<()> {
        self.gate.permit(caller, Verb::Administer)
    }

    async fn show_project(&self, name: ProjectName) -> Answer<v1::ProjectView> {
        let projects = self.with(|desk| Ok(desk.projects())).await?;
        let shown = projects.into_iter().find(|view: &ProjectView| view.project.name == name);
        let gone = || Status::not_found(format!("project {name} has been deleted since"));
        Ok(Response::new(shown.ok_or_else(gone)?.into()))
    }

    async fn suspend(
        &self,
        project: &str,
        name: &str,
        suspended: bool,
        asker: Requester,
    ) -> Answer<v1::JobView> {
        let (project, name) = names(project, name)?;
        let suspend = move |desk: &NodeDesk| {
            desk.suspend(&project, &name, suspended, asker)?;
            desk.job(&project, &name, asker)
        };
        Ok(Response::new(self.with(suspend).await?.into()))
    }

    async fn part(&self, wanted: &LogSelection, from: LogFrom) -> Requested<tranche_jobs::LogPart> {
        let LogSelection { project, name, member, asker, .. } = wanted.clone();
        self.with(move |desk| desk.log(&project, &name, member, from, asker)).await
    }

    /// Sends a log until its end, or until the receiver is dropped.
    async fn send_parts(
        &self,
        wanted: &LogSelection,
        first: tranche_jobs::LogPart,
        tell: &mpsc::Sender<Result<v1::LogPart, Status>>,
    ) {
        let mut part = first;
        loop {
            let (next, empty, open) = (part.next, part.bytes.is_empty(), part.open);
            if !empty && tell.send(Ok(v1::LogPart { data: part.bytes, next })).await.is_err() {
                return;
            }
            if empty && !(wanted.follow && open) {
                return;
            }
            if empty {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = tell.closed() => return,
                }
            }
            part = match self.part(wanted, LogFrom::Byte(next)).await {
                Ok(part) => part,
                // The job was deleted, so its output has ended.
                Err(RequestFailure::Jobs(JobsError::Job(_))) => return,
                Err(failure) => return drop(tell.send(Err(failure.into())).await),
            };
        }
    }
}

fn names(project: &str, name: &str) -> Result<(ProjectName, JobName), BadMessage> {
    Ok((project.parse()?, name.parse()?))
}
