//! Services that the kubelet calls: registration, claims, and health of devices.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use tranche_kubelet::dra as api;
use tranche_kubelet::dra::dra_plugin_server::DraPlugin;
use tranche_kubelet::drahealth as health;
use tranche_kubelet::drahealth::dra_resource_health_server::DraResourceHealth;
use tranche_kubelet::pluginregistration as registration;
use tranche_kubelet::pluginregistration::registration_server::Registration;

use crate::driver::DraDriver;

type Answer<T> = Result<Response<T>, Status>;

/// Preparation of claims and its end, as the kubelet requests it.
#[derive(Debug)]
pub(crate) struct ClaimService(pub(crate) Arc<DraDriver>);

#[tonic::async_trait]
impl DraPlugin for ClaimService {
    async fn node_prepare_resources(
        &self,
        request: Request<api::NodePrepareResourcesRequest>,
    ) -> Answer<api::NodePrepareResourcesResponse> {
        let mut response = api::NodePrepareResourcesResponse::default();
        for claim in request.into_inner().claims {
            let result = match self.0.prepare(&claim).await {
                Ok(devices) => api::NodePrepareResourceResponse { devices, error: String::new() },
                Err(error) => {
                    api::NodePrepareResourceResponse { devices: Vec::new(), error: error.to_string() }
                }
            };
            response.claims.insert(claim.uid, result);
        }
        Ok(Response::new(response))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<api::NodeUnprepareResourcesRequest>,
    ) -> Answer<api::NodeUnprepareResourcesResponse> {
        let mut response = api::NodeUnprepareResourcesResponse::default();
        for claim in request.into_inner().claims {
            let error = self.0.unprepare(&claim).await.err().map(|error| error.to_string());
            let result = api::NodeUnprepareResourceResponse { error: error.unwrap_or_default() };
            response.claims.insert(claim.uid, result);
        }
        Ok(Response::new(response))
    }
}

/// Health of all devices, as the main loop sees it.
pub(crate) type SharedHealth = Arc<Vec<health::DeviceHealth>>;

/// Stream of the devices' health.
#[derive(Debug)]
pub(crate) struct HealthService(pub(crate) watch::Receiver<SharedHealth>);

#[tonic::async_trait]
impl DraResourceHealth for HealthService {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<health::NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<health::NodeWatchResourcesRequest>,
    ) -> Answer<Self::NodeWatchResourcesStream> {
        let all = WatchStream::new(self.0.clone());
        let response =
            |devices: SharedHealth| Ok(health::NodeWatchResourcesResponse { devices: devices.to_vec() });
        Ok(Response::new(Box::pin(all.map(response))))
    }
}

/// Service by which the kubelet finds the driver.
#[derive(Debug)]
pub(crate) struct RegistrationService(pub(crate) Arc<DraDriver>);

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<registration::InfoRequest>) -> Answer<registration::PluginInfo> {
        Ok(Response::new(registration::PluginInfo {
            r#type: registration::DRA_PLUGIN.into(),
            name: self.0.config.driver.clone(),
            endpoint: self.0.config.service_socket().display().to_string(),
            supported_versions: vec![api::SERVICE.into(), health::SERVICE.into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Answer<registration::RegistrationStatusResponse> {
        let status = request.into_inner();
        self.0.counters.registered(status.plugin_registered);
        if status.plugin_registered {
            // A kubelet that starts has deleted what was published for its node.
            self.0.changed.notify_one();
            tracing::info!("registered with the kubelet");
        } else {
            tracing::error!(error = status.error, "the kubelet refuses the registration");
        }
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
