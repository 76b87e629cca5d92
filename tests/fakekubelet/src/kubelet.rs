//! The kubelet's side: its registration socket, and what it asks of plugins.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status, Streaming};
use tranche_kubelet::deviceplugin as api;
use tranche_kubelet::deviceplugin::device_plugin_client::DevicePluginClient;
use tranche_kubelet::deviceplugin::registration_server::{Registration, RegistrationServer};

use crate::node::within;

/// A kubelet.
#[derive(Debug)]
pub struct Kubelet {
    directory: PathBuf,
    registrations: mpsc::UnboundedReceiver<api::RegisterRequest>,
    server: JoinHandle<()>,
}

struct Desk {
    registrations: mpsc::UnboundedSender<api::RegisterRequest>,
    version: String,
    delay: Duration,
}

#[tonic::async_trait]
impl Registration for Desk {
    async fn register(&self, request: Request<api::RegisterRequest>) -> Result<Response<api::Empty>, Status> {
        tokio::time::sleep(self.delay).await;
        let request = request.into_inner();
        let known = request.version == self.version;
        let _ = self.registrations.send(request);
        if known { Ok(Response::new(api::Empty {})) } else { Err(Status::unknown("unsupported API version")) }
    }
}

impl Kubelet {
    /// Starts one as Kubernetes does: whatever lies in its directory goes, then its socket appears.
    pub fn start(directory: &Path) -> Self {
        Self::with(directory, api::VERSION, Duration::ZERO)
    }

    /// One that knows another version of the interface only, or takes its time to register.
    pub fn with(directory: &Path, version: &str, delay: Duration) -> Self {
        fs::create_dir_all(directory).unwrap();
        for file in fs::read_dir(directory).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        let calls = UnixListener::bind(directory.join(api::KUBELET_SOCKET)).unwrap();
        let (sender, registrations) = mpsc::unbounded_channel();
        let desk = Desk { registrations: sender, version: version.into(), delay };
        let server = Server::builder().add_service(RegistrationServer::new(desk));
        let server = server.serve_with_incoming(UnixListenerStream::new(calls));
        let server = tokio::spawn(async move { server.await.unwrap() });
        Self { directory: directory.to_owned(), registrations, server }
    }

    /// Ends it; its socket stays, as that of a kubelet that is killed.
    pub fn kill(self) {
        self.server.abort();
    }

    /// The next registration.
    pub async fn registration(&mut self) -> api::RegisterRequest {
        within("a plugin registers", self.registrations.recv()).await.expect("the kubelet runs")
    }

    /// Tests if no plugin registers for a while.
    pub async fn hears_nothing_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.registrations.recv()).await.is_err()
    }

    /// The plugin that registers next, connected to.
    pub async fn plugin(&mut self) -> Plugin {
        let registration = self.registration().await;
        self.connected(registration).await
    }

    /// The next of a resource. Others, which may have gone meanwhile, are left alone.
    pub async fn plugin_of(&mut self, resource: &str) -> Plugin {
        loop {
            let registration = self.registration().await;
            if registration.resource_name == resource {
                return self.connected(registration).await;
            }
        }
    }

    async fn connected(&self, registration: api::RegisterRequest) -> Plugin {
        assert_eq!(registration.version, api::VERSION);
        let path = self.directory.join(&registration.endpoint);
        Plugin { resource: registration.resource_name, client: connect(path.clone()).await, socket: path }
    }
}

async fn connect(path: PathBuf) -> DevicePluginClient<Channel> {
    let dial = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://plugin");
    let channel = within("a plugin that registers is there", endpoint.connect_with_connector(dial)).await;
    DevicePluginClient::new(channel.unwrap())
}

/// A registered plugin, as its kubelet talks to it.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its resource.
    pub resource: String,
    /// Its socket.
    pub socket: PathBuf,
    client: DevicePluginClient<Channel>,
}

/// A list of devices that is kept up to date.
#[derive(Debug)]
pub struct Devices(Streaming<api::ListAndWatchResponse>);

impl Plugin {
    /// Listens to the list of devices.
    pub async fn devices(&mut self) -> Devices {
        let stream = within("the list begins", self.client.list_and_watch(api::Empty {})).await;
        Devices(stream.unwrap().into_inner())
    }

    /// Allocates for one container and returns what it is given.
    pub async fn allocate(&mut self, ids: &[&str]) -> Result<api::ContainerAllocateResponse, Status> {
        Ok(self.allocate_all(&[ids]).await?.remove(0))
    }

    /// Allocates for several containers at once and returns what each is given.
    pub async fn allocate_all(
        &mut self,
        containers: &[&[&str]],
    ) -> Result<Vec<api::ContainerAllocateResponse>, Status> {
        let of = |ids: &&[&str]| api::ContainerAllocateRequest {
            devices_ids: ids.iter().map(ToString::to_string).collect(),
        };
        let request = api::AllocateRequest { container_requests: containers.iter().map(of).collect() };
        let answer = within("the plugin allocates", self.client.allocate(request)).await?;
        Ok(answer.into_inner().container_responses)
    }

    /// Asks before a container starts.
    pub async fn pre_start(&mut self, ids: &[&str]) -> Result<(), Status> {
        let devices_ids = ids.iter().map(ToString::to_string).collect();
        let request = api::PreStartContainerRequest { devices_ids };
        within("the plugin answers", self.client.pre_start_container(request)).await.map(drop)
    }

    /// Asks which devices are best.
    pub async fn prefer(&mut self, available: &[&str], count: i32) -> Vec<String> {
        let request = api::ContainerPreferredAllocationRequest {
            available_device_i_ds: available.iter().map(ToString::to_string).collect(),
            must_include_device_i_ds: Vec::new(),
            allocation_size: count,
        };
        let request = api::PreferredAllocationRequest { container_requests: vec![request] };
        let answer =
            within("the plugin prefers", self.client.get_preferred_allocation(request)).await.unwrap();
        answer.into_inner().container_responses.remove(0).device_i_ds
    }
}

impl Devices {
    /// The next list: each device's id, and whether it is healthy. Nothing at the end of the stream.
    pub async fn next(&mut self) -> Option<BTreeMap<String, bool>> {
        let devices = self.message().await?.into_iter();
        Some(devices.map(|device| (device.id, device.health == api::HEALTHY)).collect())
    }

    /// The NUMA nodes that each device of the next list is near to. Nothing at the end of the stream.
    pub async fn next_near(&mut self) -> Option<BTreeMap<String, Vec<i64>>> {
        let near = |topology: api::TopologyInfo| topology.nodes.iter().map(|node| node.id).collect();
        let devices = self.message().await?.into_iter();
        Some(devices.map(|device| (device.id, device.topology.map(near).unwrap_or_default())).collect())
    }

    async fn message(&mut self) -> Option<Vec<api::Device>> {
        let message = within("the list changes or ends", self.0.message()).await.ok()??;
        Some(message.devices)
    }

    /// The first list from now on of which this is true.
    pub async fn until(&mut self, what: impl Fn(&BTreeMap<String, bool>) -> bool) -> BTreeMap<String, bool> {
        loop {
            let devices = self.next().await.expect("the list goes on");
            if what(&devices) {
                return devices;
            }
        }
    }
}
