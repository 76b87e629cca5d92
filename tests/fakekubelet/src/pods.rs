//! The kubelet's list of pods and their devices.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tranche_kubelet::podresources as api;
use tranche_kubelet::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};

/// The pods, each with one container.
#[derive(Clone, Debug, Default)]
pub struct Pods(Arc<Mutex<Vec<api::PodResources>>>);

impl Pods {
    /// Serves the list at a socket, empty at first.
    pub fn start(socket: &Path) -> Self {
        let pods = Self::default();
        let calls = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let server = Server::builder().add_service(PodResourcesListerServer::new(pods.clone()));
        tokio::spawn(async move { server.serve_with_incoming(calls).await.unwrap() });
        pods
    }

    /// Adds a pod whose container has devices of one resource.
    pub fn list(&self, name: &str, resource: &str, ids: &[&str]) {
        self.list_mixture(name, &[(resource, ids)]);
    }

    /// Adds a pod whose container has devices of several resources.
    pub fn list_mixture(&self, name: &str, resources: &[(&str, &[&str])]) {
        let of = |(resource, ids): &(&str, &[&str])| api::ContainerDevices {
            resource_name: (*resource).into(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
        };
        let devices = resources.iter().map(of).collect();
        let container = api::ContainerResources { name: "c".into(), devices, ..Default::default() };
        let pod = api::PodResources { name: name.into(), namespace: "n".into(), containers: vec![container] };
        self.0.lock().unwrap().push(pod);
    }

    /// Removes a pod from the list.
    pub fn unlist(&self, name: &str) {
        self.0.lock().unwrap().retain(|pod| pod.name != name);
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Pods {
    async fn list(
        &self,
        _: Request<api::ListPodResourcesRequest>,
    ) -> Result<Response<api::ListPodResourcesResponse>, Status> {
        let pod_resources = self.0.lock().unwrap().clone();
        Ok(Response::new(api::ListPodResourcesResponse { pod_resources }))
    }
}
