//! A daemon with scripted state behind the real wire: `tranche.v1` on a unix socket.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tranche_rpc::v1;
use tranche_rpc::v1::jobs_server::{Jobs, JobsServer};
use tranche_rpc::v1::node_server::{Node, NodeServer};

/// State of the scripted node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) node: v1::NodeView,
    pub(crate) projects: Vec<v1::ProjectView>,
    pub(crate) jobs: Vec<v1::JobView>,
    pub(crate) points: Vec<v1::HistoryPoint>,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Script>>);

/// The scripted daemon, which ends with this value.
pub(crate) struct Daemon {
    folder: TempDir,
    script: Shared,
    runtime: Option<Runtime>,
}

impl Daemon {
    /// A daemon that answers with this state.
    pub(crate) fn with(script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Shared(Arc::new(Mutex::new(script)));
        let mut daemon = Self { folder, script, runtime: None };
        daemon.start();
        daemon
    }

    /// Starts it again after [`Self::stop`].
    pub(crate) fn start(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(self.socket()).unwrap()
        };
        let server = Server::builder()
            .add_service(NodeServer::new(self.script.clone()))
            .add_service(JobsServer::new(self.script.clone()));
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        self.runtime = Some(runtime);
    }

    /// Ends it with its connections and its socket.
    pub(crate) fn stop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
        std::fs::remove_file(self.socket()).unwrap();
    }

    /// Path of its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("tranched.sock")
    }

    /// Changes the state that its next answers have.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.0.lock().unwrap());
    }
}

type Empty<T> = tokio_stream::Empty<Result<T, Status>>;

type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

/// Methods that a page must not call, in the form that `async_trait` gives them.
macro_rules! never {
    ($($method:ident($request:ty) -> $answer:ty;)*) => {
        $(fn $method<'own, 'reply>(&'own self, _: Request<$request>) -> Reply<'reply, $answer>
        where
            'own: 'reply,
            Self: 'reply,
        {
            panic!("a page calls {}", stringify!($method))
        })*
    };
}

#[tonic::async_trait]
impl Node for Shared {
    async fn snapshot(&self, _: Request<v1::SnapshotRequest>) -> Result<Response<v1::NodeView>, Status> {
        Ok(Response::new(self.0.lock().unwrap().node.clone()))
    }

    type FollowGpusStream = Empty<v1::GpusChanged>;
    type FollowEventsStream = Empty<v1::Event>;
    type DrainGpusStream = Empty<v1::DrainProgress>;

    never! {
        follow_gpus(v1::FollowGpusRequest) -> Self::FollowGpusStream;
        follow_events(v1::FollowEventsRequest) -> Self::FollowEventsStream;
        drain_gpus(v1::DrainGpusRequest) -> Self::DrainGpusStream;
        create_slice(v1::CreateSliceRequest) -> v1::SliceView;
        resize_slice(v1::ResizeSliceRequest) -> v1::SliceView;
        park_slice(v1::ParkSliceRequest) -> v1::SliceView;
        unpark_slice(v1::UnparkSliceRequest) -> v1::SliceView;
        label_slice(v1::LabelSliceRequest) -> v1::SliceView;
        delete_slice(v1::DeleteSliceRequest) -> v1::DeleteSliceResponse;
        enter_slice(v1::EnterSliceRequest) -> v1::EnterSliceResponse;
        who_am_i(v1::WhoAmIRequest) -> v1::WhoAmIResponse;
        show_daemon(v1::ShowDaemonRequest) -> v1::DaemonView;
        reload_configuration(v1::ReloadConfigurationRequest) -> v1::ReloadConfigurationResponse;
        forget_reserves(v1::ForgetReservesRequest) -> v1::ForgetReservesResponse;
        cordon_gpus(v1::CordonGpusRequest) -> v1::CordonsView;
        uncordon_gpus(v1::UncordonGpusRequest) -> v1::CordonsView;
    }
}

#[tonic::async_trait]
impl Jobs for Shared {
    async fn list_projects(
        &self,
        _: Request<v1::ListProjectsRequest>,
    ) -> Result<Response<v1::ListProjectsResponse>, Status> {
        let projects = self.0.lock().unwrap().projects.clone();
        Ok(Response::new(v1::ListProjectsResponse { projects }))
    }

    async fn list_jobs(
        &self,
        _: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        let jobs = self.0.lock().unwrap().jobs.clone();
        Ok(Response::new(v1::ListJobsResponse { jobs }))
    }

    async fn show_history(
        &self,
        _: Request<v1::ShowHistoryRequest>,
    ) -> Result<Response<v1::ShowHistoryResponse>, Status> {
        let points = self.0.lock().unwrap().points.clone();
        Ok(Response::new(v1::ShowHistoryResponse { points }))
    }

    type FollowLogStream = Empty<v1::LogPart>;

    never! {
        show_report(v1::ShowReportRequest) -> v1::ShowReportResponse;
        create_project(v1::CreateProjectRequest) -> v1::ProjectView;
        update_project(v1::UpdateProjectRequest) -> v1::ProjectView;
        delete_project(v1::DeleteProjectRequest) -> v1::DeleteProjectResponse;
        submit_job(v1::SubmitJobRequest) -> v1::JobView;
        suspend_job(v1::SuspendJobRequest) -> v1::JobView;
        resume_job(v1::ResumeJobRequest) -> v1::JobView;
        delete_job(v1::DeleteJobRequest) -> v1::DeleteJobResponse;
        follow_log(v1::FollowLogRequest) -> Self::FollowLogStream;
    }
}
