//! Which pod has which device, as the kubelet tells.

use std::collections::BTreeMap;
use std::fmt;

use tranche_kubelet::podresources::pod_resources_lister_client::PodResourcesListerClient;
use tranche_kubelet::podresources::{ListPodResourcesRequest, ListPodResourcesResponse};

use crate::config::Config;
use crate::device::DeviceId;
use crate::socket::{self, SocketError};

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    namespace: String,
    pod: String,
    container: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

/// All our devices that pods have now. An error says nothing about any of them.
pub(crate) async fn list(config: &Config) -> Result<BTreeMap<DeviceId, Owner>, SocketError> {
    let answer = socket::ask(&config.pod_resources_socket, |channel| async move {
        PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await
    });
    Ok(owners(config, answer.await?))
}

fn owners(config: &Config, answer: ListPodResourcesResponse) -> BTreeMap<DeviceId, Owner> {
    let mut owners = BTreeMap::new();
    for pod in answer.pod_resources {
        for container in pod.containers {
            let owner = || Owner {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: container.name.clone(),
            };
            let ids = container.devices.iter().flat_map(|devices| {
                devices.device_ids.iter().filter_map(|id| ours(config, &devices.resource_name, id))
            });
            owners.extend(ids.map(|device| (device, owner())));
        }
    }
    owners
}

/// Devices of profiles that are not configured any more are ours as well.
fn ours(config: &Config, resource: &str, id: &str) -> Option<DeviceId> {
    let device: DeviceId = id.parse().ok()?;
    (config.resource(&device.profile) == resource).then_some(device)
}

#[cfg(test)]
mod tests {
    use tranche_kubelet::podresources::{ContainerDevices, ContainerResources, PodResources};

    use super::*;
    use crate::testing::{USUAL, config, device};

    #[test]
    fn devices_of_others_are_not_ours() {
        let devices = |resource: &str, id: String| ContainerDevices {
            resource_name: resource.into(),
            device_ids: vec![id],
        };
        let half = device(0, "gpu-50", 0);
        let container = ContainerResources {
            name: "c".into(),
            devices: vec![
                devices("tranche.dev/gpu-50", half.to_string()),
                devices("nvidia.com/gpu", device(1, "gpu-50", 0).to_string()),
                devices("tranche.dev/gpu-30", device(2, "gpu-50", 0).to_string()),
                devices("tranche.dev/gpu-50", "0".into()),
            ],
        };
        let pod = PodResources { name: "p".into(), namespace: "n".into(), containers: vec![container] };
        let owners = owners(&config(USUAL), ListPodResourcesResponse { pod_resources: vec![pod] });
        let told: Vec<_> = owners.iter().map(|(device, owner)| (device.clone(), owner.to_string())).collect();
        assert_eq!(told, [(half, "n/p/c".into())]);
    }
}
