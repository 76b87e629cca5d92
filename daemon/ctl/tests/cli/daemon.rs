//! A daemon with scripted answers, which records the requests that it receives.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tranche_rpc::v1;
use tranche_rpc::v1::jobs_server::JobsServer;
use tranche_rpc::v1::node_server::{Node, NodeServer};

use crate::answers;

/// A request that the daemon received. Requests that change nothing are not recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Create(v1::CreateSliceRequest),
    Resize(v1::ResizeSliceRequest),
    Park(v1::ParkSliceRequest),
    Unpark(v1::UnparkSliceRequest),
    Label(v1::LabelSliceRequest),
    Delete(v1::DeleteSliceRequest),
    Enter(v1::EnterSliceRequest),
}

/// Answers of the scripted daemon.
pub(crate) struct Answers {
    pub(crate) node: v1::NodeView,
    /// Answers to `CreateSlice` that come before `slice`.
    pub(crate) first_refusals: Vec<Status>,
    pub(crate) slice: Result<v1::SliceView, Status>,
    pub(crate) enter: Result<v1::EnterSliceResponse, Status>,
    pub(crate) delete: Result<v1::DeleteSliceResponse, Status>,
    pub(crate) who_am_i: Option<String>,
    pub(crate) events: Vec<v1::Event>,
}

/// The scripted daemon, which ends with this value.
pub(crate) struct Daemon {
    folder: TempDir,
    asked: Arc<Mutex<Vec<Asked>>>,
    _runtime: Runtime,
}

impl Daemon {
    /// A daemon that carries out each request.
    pub(crate) fn new() -> Self {
        Self::answering(|_| {})
    }

    /// A daemon whose answers are changed first.
    pub(crate) fn answering(change: impl FnOnce(&mut Answers)) -> Self {
        let mut answers = answers::willing();
        change(&mut answers);
        let folder = tempfile::tempdir().unwrap();
        let asked = Arc::default();
        let script = Script { answers: Mutex::new(answers), asked: Arc::clone(&asked) };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(folder.path().join("tranched.sock")).unwrap()
        };
        let jobs = JobsServer::new(answers::jobs());
        let server = Server::builder().add_service(NodeServer::new(script)).add_service(jobs);
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Self { folder, asked, _runtime: runtime }
    }

    /// Path of its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("tranched.sock")
    }

    /// A folder for the test's files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Recorded requests, in the order of arrival.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

struct Script {
    answers: Mutex<Answers>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Script {
    fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
    }

    fn answer<T>(
        &self,
        choose: impl FnOnce(&mut Answers) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        choose(&mut self.answers.lock().unwrap()).map(Response::new)
    }
}

#[tonic::async_trait]
impl Node for Script {
    async fn snapshot(&self, _: Request<v1::SnapshotRequest>) -> Result<Response<v1::NodeView>, Status> {
        self.answer(|answers| Ok(answers.node.clone()))
    }

    type FollowGpusStream = tokio_stream::Empty<Result<v1::GpusChanged, Status>>;

    async fn follow_gpus(
        &self,
        _: Request<v1::FollowGpusRequest>,
    ) -> Result<Response<Self::FollowGpusStream>, Status> {
        Err(Status::unimplemented("the script has no changes of GPUs"))
    }

    type FollowEventsStream = tokio_stream::Iter<std::vec::IntoIter<Result<v1::Event, Status>>>;

    async fn follow_events(
        &self,
        request: Request<v1::FollowEventsRequest>,
    ) -> Result<Response<Self::FollowEventsStream>, Status> {
        let v1::FollowEventsRequest { slice, .. } = request.into_inner();
        self.answer(|answers| {
            let mut events = answers.events.clone();
            events.retain(|event| slice.is_none() || event.slice == slice);
            Ok(tokio_stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>()))
        })
    }

    async fn create_slice(
        &self,
        request: Request<v1::CreateSliceRequest>,
    ) -> Result<Response<v1::SliceView>, Status> {
        self.note(Asked::Create(request.into_inner()));
        self.answer(|answers| match answers.first_refusals.pop() {
            Some(refusal) => Err(refusal),
            None => answers.slice.clone(),
        })
    }

    async fn resize_slice(
        &self,
        request: Request<v1::ResizeSliceRequest>,
    ) -> Result<Response<v1::SliceView>, Status> {
        self.note(Asked::Resize(request.into_inner()));
        self.answer(|answers| answers.slice.clone())
    }

    async fn park_slice(
        &self,
        request: Request<v1::ParkSliceRequest>,
    ) -> Result<Response<v1::SliceView>, Status> {
        self.note(Asked::Park(request.into_inner()));
        self.answer(|answers| answers.slice.clone())
    }

    async fn unpark_slice(
        &self,
        request: Request<v1::UnparkSliceRequest>,
    ) -> Result<Response<v1::SliceView>, Status> {
        self.note(Asked::Unpark(request.into_inner()));
        self.answer(|answers| answers.slice.clone())
    }

    async fn label_slice(
        &self,
        request: Request<v1::LabelSliceRequest>,
    ) -> Result<Response<v1::SliceView>, Status> {
        let request = request.into_inner();
        self.note(Asked::Label(request.clone()));
        self.answer(|answers| Ok(v1::SliceView { pod: request.pod, ..answers.slice.clone()? }))
    }

    async fn delete_slice(
        &self,
        request: Request<v1::DeleteSliceRequest>,
    ) -> Result<Response<v1::DeleteSliceResponse>, Status> {
        self.note(Asked::Delete(request.into_inner()));
        self.answer(|answers| answers.delete.clone())
    }

    async fn enter_slice(
        &self,
        request: Request<v1::EnterSliceRequest>,
    ) -> Result<Response<v1::EnterSliceResponse>, Status> {
        self.note(Asked::Enter(request.into_inner()));
        self.answer(|answers| answers.enter.clone())
    }

    async fn who_am_i(&self, _: Request<v1::WhoAmIRequest>) -> Result<Response<v1::WhoAmIResponse>, Status> {
        self.answer(|answers| Ok(v1::WhoAmIResponse { slice: answers.who_am_i.clone() }))
    }

    async fn show_daemon(
        &self,
        _: Request<v1::ShowDaemonRequest>,
    ) -> Result<Response<v1::DaemonView>, Status> {
        Ok(Response::new(v1::DaemonView::default()))
    }

    async fn reload_configuration(
        &self,
        _: Request<v1::ReloadConfigurationRequest>,
    ) -> Result<Response<v1::ReloadConfigurationResponse>, Status> {
        Err(Status::unimplemented("it has no configuration"))
    }

    async fn forget_reserves(
        &self,
        _: Request<v1::ForgetReservesRequest>,
    ) -> Result<Response<v1::ForgetReservesResponse>, Status> {
        Err(Status::unimplemented("nobody learns here"))
    }

    async fn cordon_gpus(
        &self,
        _: Request<v1::CordonGpusRequest>,
    ) -> Result<Response<v1::CordonsView>, Status> {
        Err(Status::unimplemented("nobody cordons here"))
    }

    async fn uncordon_gpus(
        &self,
        _: Request<v1::UncordonGpusRequest>,
    ) -> Result<Response<v1::CordonsView>, Status> {
        Err(Status::unimplemented("nobody cordons here"))
    }

    type DrainGpusStream = tokio_stream::Empty<Result<v1::DrainProgress, Status>>;

    async fn drain_gpus(
        &self,
        _: Request<v1::DrainGpusRequest>,
    ) -> Result<Response<Self::DrainGpusStream>, Status> {
        Err(Status::unimplemented("nobody drains here"))
    }
}
