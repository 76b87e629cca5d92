//! The service `tranche.v1.Node`. Converts between messages, domain values and statuses; decides nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use tranche_domain::access::Verb;
use tranche_domain::daemon::DaemonView;
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{Resize, SliceRequest};
use tranche_domain::view::SliceView;
use tranche_rpc::BadMessage;
use tranche_rpc::v1::{self, node_server::Node};

use crate::access::Caller;
use crate::agent::{Agent, Drain};
use crate::audit;
use crate::configuration::{Configured, ReloadOutcome};
use crate::failure::{self, RequestFailure, Requested};
use crate::snapshot;
use event_stream::EventSelection;
use tranche_linux::privileges;
use tranche_linux::process;

mod creation;
mod event_stream;
mod gpus;
mod parking;
mod waiting;

/// Implementation of the service.
pub(crate) struct NodeService(pub(crate) Arc<Agent>);

type Answer<T> = Result<Response<T>, Status>;

/// Longest wait for capacity in milliseconds: a day.
const LONGEST_WAIT_MS: u64 = 24 * 60 * 60 * 1000;

#[tonic::async_trait]
impl Node for NodeService {
    async fn snapshot(&self, _: Request<v1::SnapshotRequest>) -> Answer<v1::NodeView> {
        let agent = Arc::clone(&self.0);
        let view = tokio::task::spawn_blocking(move || snapshot::node(&agent)).await;
        Ok(Response::new(view.map_err(RequestFailure::from)?.into()))
    }

    async fn create_slice(&self, request: Request<v1::CreateSliceRequest>) -> Answer<v1::SliceView> {
        let caller = caller(&request)?;
        self.told(&caller, self.0.gate.permit(&caller, Verb::Create))?;
        let message = request.into_inner();
        let wait = Duration::from_millis(message.wait_ms.min(LONGEST_WAIT_MS));
        let wanted = SliceRequest::try_from(message)?;
        let created = creation::create(&self.0, &wanted, &caller, wait).await;
        self.0.telemetry.counters.request(failure::outcome(&created));
        let slice = self.told(&caller, created)?;
        self.show(&slice.name)
    }

    async fn resize_slice(&self, request: Request<v1::ResizeSliceRequest>) -> Answer<v1::SliceView> {
        let caller = caller(&request)?;
        let message = request.into_inner();
        let name = name(&message.name)?;
        self.told(&caller, self.0.resize(&name, Resize::try_from(message)?, &caller))?;
        let runtime = self.0.core().live.get(&name).cloned();
        audit::resample(&self.0, runtime.as_slice()).await;
        self.show(&name)
    }

    async fn park_slice(&self, request: Request<v1::ParkSliceRequest>) -> Answer<v1::SliceView> {
        let caller = caller(&request)?;
        let name = name(&request.into_inner().name)?;
        parking::park(&self.0, &name, &caller).await.map_err(|failure| self.refused(&caller, failure))?;
        self.show(&name)
    }

    async fn unpark_slice(&self, request: Request<v1::UnparkSliceRequest>) -> Answer<v1::SliceView> {
        let caller = caller(&request)?;
        let v1::UnparkSliceRequest { name: text, wait_ms } = request.into_inner();
        let (name, wait) = (name(&text)?, Duration::from_millis(wait_ms.min(LONGEST_WAIT_MS)));
        let unparked = parking::unpark(&self.0, &name, &caller, wait).await;
        unparked.map_err(|failure| self.refused(&caller, failure))?;
        self.show(&name)
    }

    async fn label_slice(&self, request: Request<v1::LabelSliceRequest>) -> Answer<v1::SliceView> {
        let caller = caller(&request)?;
        let message = request.into_inner();
        let name = name(&message.name)?;
        let pod = message.pod.map(PodContainer::try_from).transpose()?;
        self.told(&caller, self.0.label(&name, pod, &caller))?;
        self.show(&name)
    }

    async fn delete_slice(
        &self,
        request: Request<v1::DeleteSliceRequest>,
    ) -> Answer<v1::DeleteSliceResponse> {
        let caller = caller(&request)?;
        let v1::DeleteSliceRequest { name: text, force } = request.into_inner();
        let killed = self.told(&caller, self.0.delete(&name(&text)?, force, &caller).await)?;
        let killed_pids = killed.into_iter().map(HostPid::get).collect();
        Ok(Response::new(v1::DeleteSliceResponse { killed_pids }))
    }

    async fn enter_slice(&self, request: Request<v1::EnterSliceRequest>) -> Answer<v1::EnterSliceResponse> {
        let caller = caller(&request)?;
        let name = name(&request.into_inner().name)?;
        let shim = &self.0.shim;
        if !shim.is_file() {
            return Err(RequestFailure::NoShim(shim.display().to_string()).into());
        }
        let slice = self.told(&caller, self.0.enter(&name, &caller))?;
        Ok(Response::new(v1::EnterSliceResponse {
            socket_path: self.0.layout.attach(&name).display().to_string(),
            preload_path: shim.display().to_string(),
            gpu_uuids: slice.parts.iter().map(|part| part.gpu.to_string()).collect(),
        }))
    }

    type FollowGpusStream = Pin<Box<dyn Stream<Item = Result<v1::GpusChanged, Status>> + Send>>;

    async fn follow_gpus(&self, request: Request<v1::FollowGpusRequest>) -> Answer<Self::FollowGpusStream> {
        let follower = self.0.gate.follow(&caller(&request)?)?;
        let changes = WatchStream::new(self.0.faults.subscribe());
        let told = changes.map_while(move |turn| {
            let _until_the_stream_ends = &follower;
            turn.map(|turn| Ok(v1::GpusChanged { turn }))
        });
        Ok(Response::new(Box::pin(told)))
    }

    type FollowEventsStream = ReceiverStream<Result<v1::Event, Status>>;

    async fn follow_events(
        &self,
        request: Request<v1::FollowEventsRequest>,
    ) -> Answer<Self::FollowEventsStream> {
        let follower = self.0.gate.follow(&caller(&request)?)?;
        let v1::FollowEventsRequest { since_seq, slice, follow } = request.into_inner();
        let slice = slice.map(|text| name(&text)).transpose()?;
        let wanted = EventSelection { since: since_seq, slice, follow };
        Ok(Response::new(event_stream::events(&self.0, wanted, follower)))
    }

    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Answer<v1::WhoAmIResponse> {
        let line = process::ancestry(caller(&request)?.process()?.pid).collect::<Vec<_>>();
        let holds = |runtime: &&Arc<tranche_slices::slice_runtime::SliceRuntime>| {
            let here = runtime.occupants();
            line.iter().any(|id| here.roots.contains(id) || here.members.values().any(|member| member == id))
        };
        let slice = self.0.runtimes().iter().find(holds).map(|runtime| runtime.name.to_string());
        Ok(Response::new(v1::WhoAmIResponse { slice }))
    }

    async fn show_daemon(&self, _: Request<v1::ShowDaemonRequest>) -> Answer<v1::DaemonView> {
        let held = privileges::held().map_err(RequestFailure::OwnPrivileges)?;
        let settings = self.0.configured.as_ref().map(Configured::settings).unwrap_or_default();
        Ok(Response::new(DaemonView { settings, ..held }.into()))
    }

    async fn reload_configuration(
        &self,
        request: Request<v1::ReloadConfigurationRequest>,
    ) -> Answer<v1::ReloadConfigurationResponse> {
        let caller = caller(&request)?;
        self.told(&caller, self.0.gate.permit(&caller, Verb::Administer))?;
        let agent = Arc::clone(&self.0);
        let actor = caller.actor();
        let reloaded = tokio::task::spawn_blocking(move || agent.reload(Some(actor)))
            .await
            .map_err(RequestFailure::from)??;
        let ReloadOutcome { applied, needs_restart } = reloaded;
        Ok(Response::new(v1::ReloadConfigurationResponse { applied, needs_restart }))
    }

    async fn forget_reserves(
        &self,
        request: Request<v1::ForgetReservesRequest>,
    ) -> Answer<v1::ForgetReservesResponse> {
        let caller = caller(&request)?;
        self.told(&caller, self.0.gate.permit(&caller, Verb::Administer))?;
        let (agent, actor) = (Arc::clone(&self.0), caller.actor());
        let forgotten = tokio::task::spawn_blocking(move || agent.forget_reserves(actor)).await;
        let (slices, models) = self.told(&caller, forgotten.map_err(RequestFailure::from)?)?;
        let slices = slices.iter().map(ToString::to_string).collect();
        Ok(Response::new(v1::ForgetReservesResponse { slices, models }))
    }

    async fn cordon_gpus(&self, request: Request<v1::CordonGpusRequest>) -> Answer<v1::CordonsView> {
        let caller = caller(&request)?;
        let v1::CordonGpusRequest { gpus, reason } = request.into_inner();
        let (gpus, reason) = (gpus::named(&gpus)?, gpus::reason(reason)?);
        gpus::shown(self.told(&caller, self.0.cordon(&gpus, reason, &caller))?)
    }

    async fn uncordon_gpus(&self, request: Request<v1::UncordonGpusRequest>) -> Answer<v1::CordonsView> {
        let caller = caller(&request)?;
        let gpus = gpus::named(&request.into_inner().gpus)?;
        gpus::shown(self.told(&caller, self.0.uncordon(&gpus, &caller))?)
    }

    type DrainGpusStream = gpus::Told;

    async fn drain_gpus(&self, request: Request<v1::DrainGpusRequest>) -> Answer<Self::DrainGpusStream> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let (gpus, reason) = (gpus::named(&wanted.gpus)?, gpus::reason(wanted.reason)?);
        let drain = Drain {
            gpus: self.told(&caller, self.0.cordon(&gpus, reason, &caller))?,
            park: wanted.park,
            patience: wanted.timeout_ms.map(Duration::from_millis),
            grace: wanted
                .delete_slices
                .then_some(Duration::from_millis(wanted.grace_ms.min(LONGEST_WAIT_MS))),
        };
        Ok(Response::new(gpus::drain(&self.0, drain, caller)))
    }
}

impl NodeService {
    /// Records refusals as events.
    fn told<T>(&self, caller: &Caller, answer: Requested<T>) -> Requested<T> {
        if let Err(failure) = &answer {
            let told = Happening::new(EventKind::Refused, format!("user {}: {failure}", caller.uid));
            let told = told.asked_by(caller.actor());
            self.0.telemetry.record(match caller.pid {
                Some(pid) => told.by(pid),
                None => told,
            });
        }
        answer
    }

    /// Records a refusal as an event; returns its status.
    fn refused(&self, caller: &Caller, failure: RequestFailure) -> Status {
        self.told::<()>(caller, Err(failure)).map_or_else(Status::from, |()| Status::ok(""))
    }

    fn show(&self, name: &SliceName) -> Answer<v1::SliceView> {
        let core = self.0.core();
        let slice = core.node.slice(name).map_err(RequestFailure::from)?;
        let runtime = core.live.get(name).ok_or_else(|| RequestFailure::Ending(name.clone()))?;
        let view: SliceView = snapshot::slice(&self.0, slice, runtime);
        Ok(Response::new(view.into()))
    }
}

/// Client of a request, as identified when its connection was admitted.
pub(crate) fn caller<T>(request: &Request<T>) -> Requested<Caller> {
    request.extensions().get::<Caller>().cloned().ok_or(RequestFailure::CallerUnknown)
}

fn name(text: &str) -> Result<SliceName, Status> {
    text.parse().map_err(|bad| BadMessage::Name(bad).into())
}
