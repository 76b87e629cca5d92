//! Labels of slices: the pod of each, by the kubelet's list of pods and the claim.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use tokio::time::timeout;
use tranche_domain::id::SliceName;
use tranche_domain::pod::{PodContainer, PodUid};
use tranche_domain::view::{NodeView, SliceView};
use tranche_kubelet::podresources::pod_resources_lister_client::PodResourcesListerClient;
use tranche_kubelet::podresources::{ListPodResourcesRequest, ListPodResourcesResponse};
use tranche_kubelet::socket;

use crate::claim;
use crate::driver::{CDI_KIND, DraDriver};

/// Longest wait for one claim. The label comes without the pod's uid then, and is completed later.
const PATIENCE: Duration = Duration::from_secs(2);

/// A slice's first container, and the claim that the slice is of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FirstContainer {
    label: PodContainer,
    claim: (String, String),
}

/// Sets the pods of slices that have none: names from the kubelet's list, uids from the claims.
pub(crate) async fn set(driver: &DraDriver, node: &NodeView) {
    let is_open = |slice: &&SliceView| {
        claim::uid(&slice.name).is_some() && slice.pod.as_ref().is_none_or(|pod| pod.uid.is_none())
    };
    let unlabelled: Vec<_> = node.slices.iter().filter(is_open).collect();
    if unlabelled.is_empty() {
        return;
    }
    let path = driver.config.pod_resources_socket();
    let listed = socket::ask(&path, |channel| async move {
        PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await
    });
    let pods = match listed.await {
        Ok(answer) => pods(&answer),
        Err(error) => return tracing::debug!(%error, "the kubelet does not list its pods"),
    };
    for slice in unlabelled {
        let Some(first) = pods.get(&slice.name) else { continue };
        let label = PodContainer { uid: uid(driver, slice, first).await, ..first.label.clone() };
        if slice.pod.as_ref() != Some(&label)
            && let Err(error) = driver.daemon.label(&slice.name, label).await
        {
            tracing::debug!(slice = %slice.name, %error, "cannot be labelled yet");
        }
    }
}

/// Uid of the pod that the claim is reserved for. `None` if the claim cannot be read now, or is not the slice's.
async fn uid(driver: &DraDriver, slice: &SliceView, first: &FirstContainer) -> Option<PodUid> {
    let (namespace, name) = &first.claim;
    let claims: Api<ResourceClaim> = Api::namespaced(driver.client.0.clone(), namespace);
    match timeout(PATIENCE, claims.get(name)).await {
        Ok(Ok(claim)) => reserved_for(&claim, claim::uid(&slice.name)?, first.label.name.as_str()),
        Ok(Err(error)) => {
            tracing::debug!(slice = %slice.name, %error, "its claim cannot be read for the pod's uid");
            None
        }
        Err(_) => None,
    }
}

/// Uid of the pod of this name for which a claim is reserved.
fn reserved_for(claim: &ResourceClaim, uid: &str, pod: &str) -> Option<PodUid> {
    let reserved = claim.status.as_ref()?.reserved_for.as_ref()?;
    let is_it = |resource: &str, name: &str| resource == "pods" && name == pod;
    (claim.metadata.uid.as_deref() == Some(uid)).then_some(())?;
    reserved.iter().find(|one| is_it(&one.resource, &one.name))?.uid.parse().ok()
}

/// First container of each slice.
fn pods(answer: &ListPodResourcesResponse) -> BTreeMap<SliceName, FirstContainer> {
    let mut pods = BTreeMap::new();
    for pod in &answer.pod_resources {
        for container in &pod.containers {
            let Ok(label) = format!("{}/{}/{}", pod.namespace, pod.name, container.name).parse() else {
                continue;
            };
            let label: PodContainer = label;
            for claimed in &container.dynamic_resources {
                let devices = claimed.claim_resources.iter().flat_map(|resource| &resource.cdi_devices);
                for slice in devices.filter_map(|device| device.name.strip_prefix(CDI_KIND)?.parse().ok()) {
                    let claim = (claimed.claim_namespace.clone(), claimed.claim_name.clone());
                    pods.entry(slice).or_insert_with(|| FirstContainer { label: label.clone(), claim });
                }
            }
        }
    }
    pods
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tranche_kubelet::podresources::{
        CdiDevice, ClaimResource, ContainerResources, DynamicResource, PodResources,
    };

    use super::*;

    const CLAIM: &str = "5d8c3c1a-0000-4000-8000-000000000001";
    const POD: &str = "5a1c8a4e-0b8e-4a8e-9d3c-1f2e3d4c5b6a";

    fn claim() -> ResourceClaim {
        serde_json::from_value(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "half", "namespace": "n", "uid": CLAIM},
            "spec": {},
            "status": {"reservedFor": [
                {"apiGroup": "", "resource": "pods", "name": "other", "uid": "other-uid"},
                {"apiGroup": "x", "resource": "jobs", "name": "train", "uid": "job-uid"},
                {"resource": "pods", "name": "train", "uid": POD},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn uid_is_that_of_the_named_pod_and_claim() {
        let of = |uid: &str, pod: &str| reserved_for(&claim(), uid, pod).map(|uid| uid.to_string());
        assert_eq!(of(CLAIM, "train").as_deref(), Some(POD));
        assert_eq!(of(CLAIM, "third"), None);
        assert_eq!(of("5d8c3c1a-0000-4000-8000-000000000002", "train"), None, "another claim of that name");
    }

    #[test]
    fn first_container_of_a_slice_has_it() {
        let device = CdiDevice { name: format!("{CDI_KIND}dra-{CLAIM}") };
        let resource = ClaimResource { cdi_devices: vec![device], ..Default::default() };
        let claimed = DynamicResource {
            claim_name: "half".into(),
            claim_namespace: "n".into(),
            claim_resources: vec![resource],
        };
        let container = |name: &str| ContainerResources {
            name: name.into(),
            dynamic_resources: vec![claimed.clone()],
            ..Default::default()
        };
        let containers = vec![container("Not valid"), container("a"), container("b")];
        let pod = PodResources { name: "train".into(), namespace: "n".into(), containers };
        let pods = pods(&ListPodResourcesResponse { pod_resources: vec![pod] });
        let first =
            FirstContainer { label: "n/train/a".parse().unwrap(), claim: ("n".into(), "half".into()) };
        assert_eq!(pods, BTreeMap::from([(format!("dra-{CLAIM}").parse().unwrap(), first)]));
    }
}
