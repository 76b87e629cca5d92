//! Uids of pods with devices, from the file in which the kubelet keeps its allocations.
//!
//! The pod resources API has names alone, and a pod's cgroup its uid alone. The file is the kubelet's own and has no
//! promised format, so whatever cannot be read is no uid.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use tranche_domain::pod::PodUid;

/// Name in the kubelet's directory for device plugins.
const FILE: &str = "kubelet_internal_checkpoint";
/// Longest file that is read.
const MOST: u64 = 32 << 20;

#[derive(Debug, Deserialize)]
struct Checkpoint {
    #[serde(rename = "Data")]
    data: CheckpointData,
}

#[derive(Debug, Deserialize)]
struct CheckpointData {
    #[serde(rename = "PodDeviceEntries", default)]
    entries: Option<Vec<Allocation>>,
}

#[derive(Debug, Deserialize)]
struct Allocation {
    #[serde(rename = "PodUID")]
    pod: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    /// Devices by NUMA node.
    #[serde(rename = "DeviceIDs", default)]
    devices: BTreeMap<String, Vec<String>>,
}

/// Uid of the pod with each device, by resource and device. None for a device that two pods have.
pub(crate) fn pods(directory: &Path) -> BTreeMap<(String, String), PodUid> {
    let path = directory.join(FILE);
    read(&path).unwrap_or_else(|error| {
        tracing::debug!(path = %path.display(), %error, "the kubelet's allocations are not read");
        BTreeMap::new()
    })
}

fn read(path: &Path) -> std::io::Result<BTreeMap<(String, String), PodUid>> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut text)?;
    let checkpoint: Checkpoint = serde_json::from_slice(&text)?;
    let mut pods: BTreeMap<(String, String), Option<PodUid>> = BTreeMap::new();
    for Allocation { pod, resource, devices } in checkpoint.data.entries.unwrap_or_default() {
        let uid: Option<PodUid> = pod.parse().ok();
        for device in devices.into_values().flatten() {
            let known = pods.entry((resource.clone(), device)).or_insert_with(|| uid.clone());
            if *known != uid {
                *known = None;
            }
        }
    }
    Ok(pods.into_iter().filter_map(|(device, uid)| Some((device, uid?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str) -> BTreeMap<(String, String), PodUid> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        pods(folder.path())
    }

    #[test]
    fn each_device_has_its_pod() {
        // As Kubernetes 1.36 writes it.
        let text = r#"{"Data":{"PodDeviceEntries":[
            {"PodUID":"5a1c8a4e-0b8e-4a8e-9d3c-1f2e3d4c5b6a","ContainerName":"a","ResourceName":"t.d/gpu","DeviceIDs":{"0":["x","y"],"-1":["z"]},"AllocResp":"CgA="},
            {"PodUID":"5a1c8a4e-0b8e-4a8e-9d3c-1f2e3d4c5b6a","ContainerName":"b","ResourceName":"t.d/gpu","DeviceIDs":{"0":["x"]},"AllocResp":""},
            {"PodUID":"another","ContainerName":"b","ResourceName":"t.d/gpu","DeviceIDs":{"1":["y"]},"AllocResp":""},
            {"PodUID":"no uid","ContainerName":"b","ResourceName":"t.d/gpu","DeviceIDs":{"1":["w"]},"AllocResp":""}
          ],"RegisteredDevices":{"t.d/gpu":["x","y","z"]}},"Checksum":1234567890}"#;
        let found = written(text);
        let uid = |device: &str| found.get(&("t.d/gpu".into(), device.into())).map(PodUid::as_str);
        let first = Some("5a1c8a4e-0b8e-4a8e-9d3c-1f2e3d4c5b6a");
        assert_eq!(["x", "y", "z", "w"].map(uid), [first, None, first, None]);
    }

    #[test]
    fn what_cannot_be_read_has_no_pods() {
        for text in
            ["", "{}", "[]", r#"{"Data":{"PodDeviceEntries":null}}"#, r#"{"Data":{"PodDeviceEntries":[{}]}}"#]
        {
            assert_eq!(written(text), BTreeMap::new(), "{text}");
        }
        assert_eq!(pods(Path::new("/nonexistent")), BTreeMap::new());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(?s).{0,200}") {
            let _ = written(&text);
        }
    }
}
