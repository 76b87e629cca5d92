//! Devices of pods, from the kubelet's pod resources API.

use std::collections::BTreeMap;

use tranche_domain::pod::{PodContainer, PodUid};
use tranche_kubelet::podresources::pod_resources_lister_client::PodResourcesListerClient;
use tranche_kubelet::podresources::{ListPodResourcesRequest, ListPodResourcesResponse};

use crate::allocate::Refusal;
use crate::bundle::Bundle;
use crate::checkpoint;
use crate::config::Config;
use crate::device::DeviceId;
use crate::profile::ProfileName;
use tranche_kubelet::socket::{self, SocketError};

/// Container of each allocated device, and the pod's uid as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// As `NAMESPACE/POD/CONTAINER`.
    containers: BTreeMap<DeviceId, String>,
    pods: BTreeMap<DeviceId, PodUid>,
}

impl Owners {
    /// Devices that the kubelet lists as allocated.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.containers.keys()
    }

    /// Container of a slice's devices, if the kubelet lists it.
    pub(crate) fn of(&self, bundle: &Bundle) -> Option<PodContainer> {
        let owner = bundle.devices().iter().find_map(|device| self.containers.get(device))?;
        // Names that are invalid in Kubernetes are no label.
        let label: PodContainer = owner.parse().ok()?;
        Some(PodContainer { uid: self.pod(bundle), ..label })
    }

    /// Uid of the pod that has all of a slice's devices.
    fn pod(&self, bundle: &Bundle) -> Option<PodUid> {
        let mut pods = bundle.devices().iter().map(|device| self.pods.get(device));
        let first = pods.next()??;
        pods.all(|other| other == Some(first)).then(|| first.clone())
    }

    /// Error if the container with these devices also has devices of another profile.
    pub(crate) fn mixture(&self, profile: &ProfileName, devices: &[String]) -> Option<Refusal> {
        let owner = devices.iter().find_map(|text| self.containers.get(&text.parse().ok()?))?;
        let is_other = |(device, has): &(&DeviceId, &String)| *has == owner && device.profile != *profile;
        let other = self.containers.iter().find(is_other)?.0;
        let (one, other) = (profile.clone(), other.profile.clone());
        Some(Refusal::SeveralProfiles { container: owner.clone(), one, other })
    }
}

/// All devices of this plugin that pods have.
pub(crate) async fn list(config: &Config) -> Result<Owners, SocketError> {
    let answer = socket::ask(&config.pod_resources_socket, |channel| async move {
        PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await
    });
    let answer = answer.await?;
    Ok(owners(config, answer, &checkpoint::pods(&config.kubelet_dir)))
}

fn owners(
    config: &Config,
    answer: ListPodResourcesResponse,
    uids: &BTreeMap<(String, String), PodUid>,
) -> Owners {
    let mut containers = BTreeMap::new();
    for pod in answer.pod_resources {
        for container in pod.containers {
            let owner = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
            let ids = container.devices.iter().flat_map(|devices| {
                devices.device_ids.iter().filter_map(|id| ours(config, &devices.resource_name, id))
            });
            containers.extend(ids.map(|device| (device, owner.clone())));
        }
    }
    let uid = |device: &DeviceId| uids.get(&(config.resource(&device.profile), device.to_string()));
    let pods = containers.keys().filter_map(|device| Some((device.clone(), uid(device)?.clone()))).collect();
    Owners { containers, pods }
}

/// Parses a device of this plugin; devices of profiles no longer configured are included.
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
    fn container_of_two_profiles_is_detected() {
        let owner = |container: &str| format!("n/p/{container}");
        let devices =
            [(device(0, "gpu-50", 0), "a"), (device(1, "gpu-50", 0), "a"), (device(0, "gpu-30", 0), "b")];
        let containers = devices.into_iter().map(|(device, name)| (device, owner(name))).collect();
        let mut owners = Owners { containers, ..Owners::default() };
        let (half, asked) = ("gpu-50".parse().unwrap(), [device(0, "gpu-50", 0).to_string()]);
        assert_eq!(owners.mixture(&half, &asked), None);
        owners.containers.insert(device(2, "gpu-30", 0), owner("a"));
        let refused = owners.mixture(&half, &asked).unwrap().to_string();
        assert!(refused.starts_with("container n/p/a asks for gpu-50 and gpu-30"), "{refused}");
    }

    #[test]
    fn foreign_devices_are_ignored() {
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
            ..Default::default()
        };
        let pod = PodResources { name: "p".into(), namespace: "n".into(), containers: vec![container] };
        let uids = ["gpu-50", "gpu-30"].map(|name| ((format!("tranche.dev/{name}"), half.to_string()), "u"));
        let uids = uids.into_iter().map(|(key, uid)| (key, uid.parse().unwrap())).collect();
        let owners = owners(&config(USUAL), ListPodResourcesResponse { pod_resources: vec![pod] }, &uids);
        assert_eq!(owners.pods, BTreeMap::from([(half.clone(), "u".parse().unwrap())]));
        let told: Vec<_> =
            owners.containers.iter().map(|(device, owner)| (device.clone(), owner.clone())).collect();
        assert_eq!(told, [(half, "n/p/c".into())]);
    }
}
