//! The kubelet's side: its registration socket, and its requests to plugins.

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

/// A kubelet: its directory, and a running registration service.
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
    /// Starts as Kubernetes does: removes all files of its directory, then opens its socket.
    pub fn start(directory: &Path) -> Self {
        Self::with(directory, api::VERSION, Duration::ZERO)
    }

    /// Starts with another version of the interface, or with a delay of each registration.
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

    /// Ends the kubelet; its socket stays, as after SIGKILL.
    pub fn kill(self) {
        self.server.abort();
    }

    /// Waits for the next request of a plugin to be registered.
    pub async fn registration(&mut self) -> api::RegisterRequest {
        within("a plugin registers", self.registrations.recv()).await.expect("the kubelet runs")
    }

    /// True if no plugin registers within that time.
    pub async fn registers_nothing_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.registrations.recv()).await.is_err()
    }

    /// Waits for the next registration, and connects to its plugin.
    pub async fn plugin(&mut self) -> Plugin {
        let registration = self.registration().await;
        self.connected(registration).await
    }

    /// Waits for the next plugin of a resource. Others, which may have ended meanwhile, are not connected to.
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

/// A registered plugin, as its kubelet is connected to it.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Name of the resource, as `tranche.dev/half`.
    pub resource: String,
    /// Path of the plugin's socket.
    pub socket: PathBuf,
    client: DevicePluginClient<Channel>,
}

/// Stream of the device list: a new list after each change.
#[derive(Debug)]
pub struct Devices(Streaming<api::ListAndWatchResponse>);

impl Plugin {
    /// Opens the stream of the device list.
    pub async fn devices(&mut self) -> Devices {
        let stream = within("the list begins", self.client.list_and_watch(api::Empty {})).await;
        Devices(stream.unwrap().into_inner())
    }

    /// Allocates for one container and returns the container's part of the response.
    pub async fn allocate(&mut self, ids: &[&str]) -> Result<api::ContainerAllocateResponse, Status> {
        Ok(self.allocate_all(&[ids]).await?.remove(0))
    }

    /// Allocates for several containers at once and returns the response for each.
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

    /// Sends the request that precedes the start of a container.
    pub async fn pre_start(&mut self, ids: &[&str]) -> Result<(), Status> {
        let devices_ids = ids.iter().map(ToString::to_string).collect();
        let request = api::PreStartContainerRequest { devices_ids };
        within("the plugin answers", self.client.pre_start_container(request)).await.map(drop)
    }

    /// Requests the plugin's preferred devices.
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
    /// The next list: each device's id, and true if it is healthy. `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<BTreeMap<String, bool>> {
        let devices = self.message().await?.into_iter();
        Some(devices.map(|device| (device.id, device.health == api::HEALTHY)).collect())
    }

    /// NUMA nodes near each device of the next list. `None` at the end of the stream.
    pub async fn next_near(&mut self) -> Option<BTreeMap<String, Vec<i64>>> {
        let near = |topology: api::TopologyInfo| topology.nodes.iter().map(|node| node.id).collect();
        let devices = self.message().await?.into_iter();
        Some(devices.map(|device| (device.id, device.topology.map(near).unwrap_or_default())).collect())
    }

    async fn message(&mut self) -> Option<Vec<api::Device>> {
        let message = within("the list changes or ends", self.0.message()).await.ok()??;
        Some(message.devices)
    }

    /// The first list from now on that fulfils the condition.
    pub async fn until(&mut self, what: impl Fn(&BTreeMap<String, bool>) -> bool) -> BTreeMap<String, bool> {
        loop {
            let devices = self.next().await.expect("the list continues");
            if what(&devices) {
                return devices;
            }
        }
    }
}
