//! A daemon that decides as the real one does, and fails on command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tranche_domain::cordon::Cordon;
use tranche_domain::id::{GpuSelector, GpuUuid};
use tranche_domain::node::{Gpu, Node, Origin, Refusal};
use tranche_domain::request::SliceRequest;
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_rpc::v1;
use tranche_rpc::v1::node_server::NodeServer;

/// A daemon whose slices survive its end, as those of the real one do.
#[derive(Debug)]
pub struct Daemon {
    socket: PathBuf,
    shared: Arc<Mutex<State>>,
    turn: watch::Sender<u64>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    node: Node,
    temper: Temper,
}

/// Faults of the daemon, as a test sets them.
#[derive(Clone, Debug, Default)]
pub struct Temper {
    /// Length of each creation.
    pub slowness: Duration,
    /// Number of further creations that succeed; all after them fail.
    pub creations_left: Option<u32>,
    /// Index of a GPU that takes no slice, and the reason.
    pub obstacle: Option<(u32, String)>,
    /// Index of a cordoned GPU.
    pub cordon: Option<u32>,
    /// Index of a GPU, and the Xid of its fault.
    pub fault: Option<(u32, u64)>,
}

impl Daemon {
    /// Starts a daemon with that number of V100s.
    pub fn start(socket: &Path, gpus: u8) -> Self {
        let gpu = |index: u8| Gpu {
            index: index.into(),
            uuid: GpuUuid::from_bytes([index; 16]),
            island: 0,
            capacity: Bytes::mib(32510),
            obstacle: None,
        };
        let state = State { node: Node::new((0..gpus).map(gpu).collect()), temper: Temper::default() };
        let mut daemon = Self {
            socket: socket.to_owned(),
            shared: Arc::new(Mutex::new(state)),
            turn: watch::Sender::new(0),
            server: None,
        };
        daemon.resume();
        daemon
    }

    /// Ends as by SIGKILL.
    pub async fn kill(&mut self) {
        let server = self.server.take().expect("the daemon runs");
        server.abort();
        let _ = server.await;
    }

    /// Starts again with the slices that it had.
    pub fn resume(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let calls = UnixListenerStream::new(UnixListener::bind(&self.socket).unwrap());
        let door = Door(Arc::clone(&self.shared), self.turn.subscribe());
        let server = Server::builder().add_service(NodeServer::new(door)).serve_with_incoming(calls);
        self.server = Some(tokio::spawn(async move { server.await.unwrap() }));
    }

    /// Replaces the faults, and notifies the followers of GPUs.
    pub fn set(&self, temper: Temper) {
        let mut state = self.shared.lock().unwrap();
        let uuids: Vec<_> = state.node.gpus().iter().map(|gpu| (gpu.index, gpu.uuid)).collect();
        for (index, uuid) in uuids {
            let obstacle =
                temper.obstacle.as_ref().filter(|(at, _)| *at == index).map(|(_, why)| why.clone());
            state.node.set_obstacle(uuid, obstacle);
        }
        let cordoned = temper.cordon.map(GpuSelector::Index);
        state.node.restore_cordons(BTreeMap::new());
        state.node.cordon(cordoned.as_slice(), &cordon()).map_or_else(|_| (), drop);
        state.temper = temper;
        self.turn.send_modify(|turn| *turn += 1);
    }

    /// Names of its slices, sorted.
    pub fn slices(&self) -> Vec<String> {
        let state = self.shared.lock().unwrap();
        state.node.slices().keys().map(ToString::to_string).collect()
    }

    /// Pod of each slice in the order of names; none without a label.
    pub fn pods(&self) -> Vec<Option<String>> {
        let state = self.shared.lock().unwrap();
        state.node.slices().values().map(|slice| slice.pod.as_ref().map(ToString::to_string)).collect()
    }

    /// Deletes a slice, as if its state were lost.
    pub fn lose(&self, name: &str) {
        self.shared.lock().unwrap().node.delete(&name.parse().unwrap()).unwrap();
    }
}

struct Door(Arc<Mutex<State>>, watch::Receiver<u64>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl v1::node_server::Node for Door {
    async fn snapshot(&self, _: Request<v1::SnapshotRequest>) -> Answer<v1::NodeView> {
        Ok(Response::new(picture(&self.0.lock().unwrap())))
    }

    type FollowGpusStream = Pin<Box<dyn Stream<Item = Result<v1::GpusChanged, Status>> + Send>>;

    async fn follow_gpus(&self, _: Request<v1::FollowGpusRequest>) -> Answer<Self::FollowGpusStream> {
        let turns = WatchStream::new(self.1.clone());
        Ok(Response::new(Box::pin(turns.map(|turn| Ok(v1::GpusChanged { turn })))))
    }

    type FollowEventsStream = tokio_stream::Empty<Result<v1::Event, Status>>;

    async fn follow_events(&self, _: Request<v1::FollowEventsRequest>) -> Answer<Self::FollowEventsStream> {
        Err(Status::unimplemented("nothing is kept here"))
    }

    async fn create_slice(&self, request: Request<v1::CreateSliceRequest>) -> Answer<v1::SliceView> {
        let slowness = self.0.lock().unwrap().temper.slowness;
        tokio::time::sleep(slowness).await;
        let mut state = self.0.lock().unwrap();
        if let Some(left) = &mut state.temper.creations_left {
            *left = left.checked_sub(1).ok_or_else(|| Status::internal("told to fail"))?;
        }
        let request = SliceRequest::try_from(request.into_inner())?;
        let slice =
            state.node.create(&request, Origin { uid: 0, now_unix_ms: 0, job: None }).map_err(refused)?;
        let name = slice.name.to_string();
        Ok(Response::new(v1::SliceView { name, ..Default::default() }))
    }

    async fn delete_slice(
        &self,
        request: Request<v1::DeleteSliceRequest>,
    ) -> Answer<v1::DeleteSliceResponse> {
        let name = request.into_inner().name.parse().map_err(|_| Status::invalid_argument("a name"))?;
        self.0.lock().unwrap().node.delete(&name).map_err(refused)?;
        Ok(Response::new(v1::DeleteSliceResponse::default()))
    }

    async fn resize_slice(&self, _: Request<v1::ResizeSliceRequest>) -> Answer<v1::SliceView> {
        Err(Status::unimplemented("resizing is not simulated"))
    }

    async fn park_slice(&self, _: Request<v1::ParkSliceRequest>) -> Answer<v1::SliceView> {
        Err(Status::unimplemented("parking is not simulated"))
    }

    async fn unpark_slice(&self, _: Request<v1::UnparkSliceRequest>) -> Answer<v1::SliceView> {
        Err(Status::unimplemented("parking is not simulated"))
    }

    async fn label_slice(&self, request: Request<v1::LabelSliceRequest>) -> Answer<v1::SliceView> {
        let v1::LabelSliceRequest { name: text, pod } = request.into_inner();
        let name = text.parse().map_err(|_| Status::invalid_argument("a name"))?;
        let pod = pod.map(TryInto::try_into).transpose()?;
        self.0.lock().unwrap().node.label(&name, pod).map_err(refused)?;
        Ok(Response::new(v1::SliceView { name: text, ..Default::default() }))
    }

    async fn enter_slice(&self, _: Request<v1::EnterSliceRequest>) -> Answer<v1::EnterSliceResponse> {
        Err(Status::unimplemented("entering is not simulated"))
    }

    async fn who_am_i(&self, _: Request<v1::WhoAmIRequest>) -> Answer<v1::WhoAmIResponse> {
        Err(Status::unimplemented("identities are not simulated"))
    }

    async fn show_daemon(&self, _: Request<v1::ShowDaemonRequest>) -> Answer<v1::DaemonView> {
        Err(Status::unimplemented("the daemon's view is not simulated"))
    }

    async fn reload_configuration(
        &self,
        _: Request<v1::ReloadConfigurationRequest>,
    ) -> Answer<v1::ReloadConfigurationResponse> {
        Err(Status::unimplemented("nothing is configured here"))
    }

    async fn cordon_gpus(&self, _: Request<v1::CordonGpusRequest>) -> Answer<v1::CordonsView> {
        Err(Status::unimplemented("tests cordon by the temper"))
    }

    async fn uncordon_gpus(&self, _: Request<v1::UncordonGpusRequest>) -> Answer<v1::CordonsView> {
        Err(Status::unimplemented("tests cordon by the temper"))
    }

    async fn forget_reserves(
        &self,
        _: Request<v1::ForgetReservesRequest>,
    ) -> Answer<v1::ForgetReservesResponse> {
        Err(Status::unimplemented("nothing is measured here"))
    }

    type DrainGpusStream = tokio_stream::Empty<Result<v1::DrainProgress, Status>>;

    async fn drain_gpus(&self, _: Request<v1::DrainGpusRequest>) -> Answer<Self::DrainGpusStream> {
        Err(Status::unimplemented("draining is not simulated"))
    }
}

fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Unknown(_) => Status::not_found(refusal.to_string()),
        _ => Status::resource_exhausted(refusal.to_string()),
    }
}

fn cordon() -> Cordon {
    let told = "cordoned by root (uid 0) since noon: fan".into();
    Cordon { by_uid: 0, since_unix_ms: 5, reason: "fan".parse().ok(), told }
}

fn fault(temper: &Temper, index: u32) -> Option<v1::FaultView> {
    let (_, xid) = temper.fault.filter(|(at, _)| *at == index)?;
    Some(v1::FaultView { xid, since_unix_ms: 0, count: 1 })
}

fn device(part: &Part) -> v1::SliceDeviceView {
    v1::SliceDeviceView { gpu_uuid: part.gpu.to_string(), cap_bytes: part.cap.get(), ..Default::default() }
}

/// The fields of the node's view that a plugin reads.
fn picture(State { node, temper }: &State) -> v1::NodeView {
    let slices = node.slices().values().map(|slice| v1::SliceView {
        name: slice.name.to_string(),
        share: Some(slice.share.into()),
        devices: slice.parts.iter().map(device).collect(),
        compute_permille: slice.compute.get(),
        limit_permille: slice.limit.get(),
        pod: slice.pod.clone().map(Into::into),
        ..Default::default()
    });
    let gpus = node.gpus().iter().map(|gpu| {
        let (memory, compute) = node.committed(gpu.uuid);
        let cordon = node.cordons().get(&gpu.uuid).cloned();
        v1::GpuView {
            index: gpu.index,
            uuid: gpu.uuid.to_string(),
            name: "Tesla V100-SXM2-32GB".into(),
            total_bytes: gpu.capacity.get(),
            capacity_bytes: gpu.capacity.get(),
            committed_bytes: memory.get(),
            committed_compute_permille: compute.get(),
            not_sliceable: gpu.obstacle.clone().or_else(|| cordon.clone().map(|cordon| cordon.told)),
            cordon: cordon.map(Into::into),
            faults: fault(temper, gpu.index).into_iter().collect(),
            ..Default::default()
        }
    });
    v1::NodeView { gpus: gpus.collect(), slices: slices.collect(), ..Default::default() }
}
