//! Device plugin API of one profile: converts messages and delegates to the resource manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tranche_exposition::Gauge;
use tranche_kubelet::deviceplugin as api;
use tranche_kubelet::deviceplugin::device_plugin_server::DevicePlugin;

use crate::bundle::Bundle;
use crate::device_states::SharedStates;
use crate::profile::ProfileName;
use crate::resource_manager::ResourceManager;

/// Optional calls that the plugin supports.
pub(crate) const OPTIONS: api::DevicePluginOptions =
    api::DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

/// Service of one profile.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) manager: Arc<ResourceManager>,
    pub(crate) profile: ProfileName,
    /// True once the service ends.
    pub(crate) ended: watch::Receiver<bool>,
    /// Number of open streams of devices.
    pub(crate) listeners: Arc<AtomicUsize>,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(&self, _: Request<api::Empty>) -> Answer<api::DevicePluginOptions> {
        Ok(Response::new(OPTIONS))
    }

    type ListAndWatchStream = ReceiverStream<Result<api::ListAndWatchResponse, Status>>;

    async fn list_and_watch(&self, _: Request<api::Empty>) -> Answer<Self::ListAndWatchStream> {
        let (sender, receiver) = mpsc::channel(1);
        let streams = self.manager.counters.streams(&self.manager.config, &self.profile);
        let listener = Listener::new(Arc::clone(&self.listeners), streams);
        let (pictures, ended, profile) = (self.manager.pictures(), self.ended.clone(), self.profile.clone());
        tokio::spawn(async move {
            tell(pictures, ended, &profile, sender).await;
            drop(listener);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Answer<api::PreferredAllocationResponse> {
        let mut container_responses = Vec::new();
        for container in request.into_inner().container_requests {
            let count = usize::try_from(container.allocation_size).unwrap_or(0);
            let (available, must) = (&container.available_device_i_ds, &container.must_include_device_i_ds);
            let device_i_ds = self.manager.prefer(available, must, count).await;
            container_responses.push(api::ContainerPreferredAllocationResponse { device_i_ds });
        }
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<api::AllocateRequest>) -> Answer<api::AllocateResponse> {
        let containers = request.into_inner().container_requests;
        let containers: Vec<_> = containers.into_iter().map(|container| container.devices_ids).collect();
        let (manager, profile) = (Arc::clone(&self.manager), self.profile.clone());
        let given = to_the_end(async move { manager.allocate(&profile, &containers).await }).await?;
        let container_responses = given.iter().map(equipment).collect();
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Answer<api::PreStartContainerResponse> {
        let devices = request.into_inner().devices_ids;
        let (manager, profile) = (Arc::clone(&self.manager), self.profile.clone());
        to_the_end(async move { manager.restore(&profile, &devices).await }).await?;
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

/// Runs a future to its end even if the caller disconnects.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    tokio::spawn(work)
        .await
        .map_err(|error| Status::internal(format!("a task of the plugin failed: {error}")))?
}

/// Response for a container: the CDI device of its slice. NVIDIA_VISIBLE_DEVICES keeps NVIDIA's toolkit from
/// adding GPUs.
fn equipment(bundle: &Bundle) -> api::ContainerAllocateResponse {
    let slice = api::CdiDevice { name: format!("tranche.dev/slice={}", bundle.slice()) };
    api::ContainerAllocateResponse {
        envs: [("NVIDIA_VISIBLE_DEVICES".to_owned(), "void".to_owned())].into(),
        cdi_devices: vec![slice],
        ..Default::default()
    }
}

/// Streams the list of devices and each change, until the receiver or the service ends.
async fn tell(
    mut pictures: watch::Receiver<SharedStates>,
    mut ended: watch::Receiver<bool>,
    profile: &ProfileName,
    sender: mpsc::Sender<Result<api::ListAndWatchResponse, Status>>,
) {
    let mut last = None;
    loop {
        let devices = list(&pictures.borrow_and_update(), profile);
        if last.as_ref() != Some(&devices) {
            let message = api::ListAndWatchResponse { devices: devices.clone() };
            if sender.send(Ok(message)).await.is_err() {
                return;
            }
            last = Some(devices);
        }
        tokio::select! {
            changed = pictures.changed() => if changed.is_err() { return },
            _ = ended.wait_for(|ended| *ended) => return,
            () = sender.closed() => return,
        }
    }
}

fn list(picture: &SharedStates, profile: &ProfileName) -> Vec<api::Device> {
    let numa = |gpu| picture.numa.get(gpu).map(|node| api::NumaNode { id: node.get().into() });
    let ours = picture.health.iter().filter(|(device, _)| device.profile == *profile);
    let shown = ours.map(|(device, health)| api::Device {
        id: device.to_string(),
        health: if health.is_healthy() { api::HEALTHY } else { api::UNHEALTHY }.to_owned(),
        topology: numa(&device.gpu).map(|node| api::TopologyInfo { nodes: vec![node] }),
    });
    shown.collect()
}

/// An open stream, counted for its lifetime.
struct Listener(Arc<AtomicUsize>, Gauge);

impl Listener {
    fn new(count: Arc<AtomicUsize>, published: Gauge) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        published.inc();
        Self(count, published)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        self.1.dec();
    }
}
