//! A connection to the container runtime: registration, and responses to its calls.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;
use tranche_domain::id::SliceName;
use tranche_nri::api;
use tranche_nri::ttrpc::Request;
use tranche_nri::wire::{
    self, CalledSide, Message, MessageContent, MessageReader, UNIMPLEMENTED, UNKNOWN, WireError,
};

use crate::container::{self, Fence};
use crate::slices::{ContainerError, PodSlices};

/// Name of the plugin.
const NAME: &str = "tranche";
/// Number of the only call to the runtime, the registration.
const REGISTRATION: u32 = 1;
/// Longest time for a response, where the runtime does not name one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reason for which a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(
        "{path}: {cause}; has the container runtime NRI enabled (containerd 2 and CRI-O 1.30 have it by default), and \
         is its socket there?"
    )]
    Connect { path: String, cause: std::io::Error },
    #[error("the container runtime refuses the plugin: {0}")]
    Refused(String),
    #[error("the container runtime closed the connection; its log has the reason, unless it was stopped")]
    Closed,
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Connects, registers, and responds until the connection ends.
pub(crate) async fn run(slices: &PodSlices) -> Result<(), SessionError> {
    let path = &slices.config.runtime_socket;
    let stream = UnixStream::connect(path).await;
    let stream = stream.map_err(|cause| SessionError::Connect { path: path.display().to_string(), cause })?;
    let (from, to) = stream.into_split();
    let mut session = RuntimeConnection { slices, to, limit: PATIENCE, inventory: Inventory::default() };
    session.register().await?;
    session.respond(MessageReader::new(from)).await
}

#[derive(Debug)]
struct RuntimeConnection<'a> {
    slices: &'a PodSlices,
    to: OwnedWriteHalf,
    /// Time within which the runtime wants a response.
    limit: Duration,
    inventory: Inventory,
}

/// Pods and containers that were there at the registration, as far as the runtime has listed them.
#[derive(Debug, Default)]
struct Inventory {
    pods: HashMap<String, api::PodSandbox>,
    containers: Vec<api::Container>,
}

/// Encoded result, or code and reason.
type Outcome = Result<Vec<u8>, (i32, String)>;

impl RuntimeConnection<'_> {
    async fn register(&mut self) -> Result<(), WireError> {
        let argument = api::RegisterPluginRequest {
            plugin_name: NAME.into(),
            plugin_idx: self.slices.config.index.clone(),
            nri_version: String::new(),
        };
        wire::send(
            &mut self.to,
            &Message::request(CalledSide::Runtime, REGISTRATION, "RegisterPlugin", &argument),
        )
        .await
    }

    async fn respond(&mut self, mut from: MessageReader<OwnedReadHalf>) -> Result<(), SessionError> {
        while let Some(message) = from.next().await? {
            match (message.called, message.content) {
                (CalledSide::Plugin, MessageContent::Request(request)) => {
                    let _responding = self.slices.responding.lock().await;
                    let outcome = self.outcome(&request).await;
                    wire::send(&mut self.to, &Message::response(CalledSide::Plugin, message.call, outcome))
                        .await?;
                }
                (CalledSide::Runtime, MessageContent::Response(response)) => {
                    response.result::<api::Empty>().map_err(SessionError::Refused)?;
                }
                _ => return Err(SessionError::Closed),
            }
        }
        Err(SessionError::Closed)
    }

    async fn outcome(&mut self, request: &Request) -> Outcome {
        let payload = &request.payload[..];
        match request.method.as_str() {
            "Configure" => self.configure(&read(payload)?),
            "Synchronize" => Ok(self.synchronize(read(payload)?)),
            "CreateContainer" => self.create(read(payload)?).await,
            "StopPodSandbox" | "RemovePodSandbox" => {
                let api::PodSandboxRequest { pod } = read(payload)?;
                self.end(pod.as_ref());
                Ok(Vec::new())
            }
            "StopContainer" => {
                let api::RemoveContainerRequest { container, .. } = read(payload)?;
                self.slices.record().stop(&container.unwrap_or_default().id);
                Ok(Vec::new())
            }
            "RemoveContainer" => {
                let api::RemoveContainerRequest { pod, container } = read(payload)?;
                self.remove(pod.as_ref(), container.as_ref());
                Ok(Vec::new())
            }
            // Older runtimes have this one call for what has no adjustment.
            "StateChange" => {
                let event: api::StateChangeEvent = read(payload)?;
                match event.event() {
                    api::Event::StopPodSandbox | api::Event::RemovePodSandbox => self.end(event.pod.as_ref()),
                    api::Event::RemoveContainer => self.remove(event.pod.as_ref(), event.container.as_ref()),
                    _ => {}
                }
                Ok(Vec::new())
            }
            "Shutdown" => Ok(Vec::new()),
            other => Err((UNIMPLEMENTED, format!("the plugin has no method {other}"))),
        }
    }

    fn configure(&mut self, request: &api::ConfigureRequest) -> Outcome {
        let limit = u64::try_from(request.request_timeout).ok().filter(|limit| *limit > 0);
        self.limit = limit.map_or(PATIENCE, Duration::from_millis);
        tracing::info!(runtime = request.runtime_name, version = request.runtime_version, "registered");
        // containerd 2.4 omits pods' events after its restart, and has containers' ones.
        let wanted = [
            api::Event::StopPodSandbox,
            api::Event::RemovePodSandbox,
            api::Event::CreateContainer,
            api::Event::StopContainer,
            api::Event::RemoveContainer,
        ];
        let events = wanted.into_iter().map(|event| 1 << (event as i32 - 1)).sum();
        Ok(api::ConfigureResponse { events }.encode_to_vec())
    }

    /// A response with `more` requests the rest.
    fn synchronize(&mut self, request: api::SynchronizeRequest) -> Vec<u8> {
        self.inventory.pods.extend(request.pods.into_iter().map(|pod| (pod.id.clone(), pod)));
        self.inventory.containers.extend(request.containers);
        if !request.more {
            self.slices.counters.registered(true);
            let Inventory { pods, containers } = std::mem::take(&mut self.inventory);
            let kept = self.adopt(&pods, &containers);
            self.slices.record().keep(kept);
            self.slices.changed.notify_one();
        }
        api::SynchronizeResponse { more: request.more }.encode_to_vec()
    }

    /// Takes over the containers that have slices. Returns the slices of all that run.
    ///
    /// Those without the slice that they request are reported: the interface has no way to stop them. A pod without a container is one that ends, or begins and has no slice yet.
    fn adopt(
        &self,
        pods: &HashMap<String, api::PodSandbox>,
        containers: &[api::Container],
    ) -> BTreeSet<SliceName> {
        let runtime = self.slices.config.tranched_socket.parent().unwrap_or(Path::new("/"));
        let (mut unfenced, mut kept) = (0, BTreeSet::new());
        for container in containers {
            let Some(pod) = pods.get(&container.pod_sandbox_id) else { continue };
            kept.extend(container::slice_name(pod, container));
            match container::fence(pod, container, runtime) {
                Fence::NotNeeded => {}
                Fence::Slice => {
                    if let (Some(slice), Some(last)) =
                        (container::slice_name(pod, container), container::last(pod, container))
                    {
                        self.slices.record().hold(slice, last);
                    }
                }
                Fence::Missing => {
                    unfenced += 1;
                    let name = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
                    tracing::warn!(
                        container = name,
                        "runs without its slice: the plugin was away when it was created"
                    );
                }
            }
        }
        self.slices.counters.unfenced(unfenced);
        kept
    }

    /// Responds before the runtime's limit: after it the container would be created without a slice.
    async fn create(&self, request: api::CreateContainerRequest) -> Outcome {
        let (pod, container) = (request.pod.unwrap_or_default(), request.container.unwrap_or_default());
        let created = timeout(self.limit / 2, self.slices.create(&pod, &container)).await;
        let created = created.unwrap_or(Err(ContainerError::Late));
        self.slices.note(&pod, &container, &created);
        match created {
            Ok(adjust) => Ok(api::CreateContainerResponse { adjust }.encode_to_vec()),
            Err(error) => Err((UNKNOWN, format!("no slice for container {:?}: {error}", container.name))),
        }
    }

    fn end(&self, pod: Option<&api::PodSandbox>) {
        if let Some(pod) = pod {
            self.slices.end(pod);
        }
    }

    fn remove(&self, pod: Option<&api::PodSandbox>, container: Option<&api::Container>) {
        if let (Some(pod), Some(container)) = (pod, container) {
            self.slices.remove(pod, container);
        }
    }
}

fn read<T: prost::Message + Default>(payload: &[u8]) -> Result<T, (i32, String)> {
    T::decode(payload).map_err(|error| (UNKNOWN, error.to_string()))
}
