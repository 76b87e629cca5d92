//! Node labels: number of devices and minimum memory of each profile.
//!
//! Pods can select nodes by them where a fraction suffices. The labels are in a file that Node Feature Discovery
//! reads, so that the plugin needs no access to the API server. The file is renewed regularly and has an expiry time,
//! after which the labels disappear.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tranche_adapter::LastProblem;
use tranche_domain::units::Bytes;

use crate::config::Config;
use crate::layout::Division;
use crate::offer::Offer;
use crate::placement::GpuDevice;
use crate::resource_manager::ResourceManager;

/// Name of the feature file.
const FILE: &str = "tranche";
/// Validity of the labels without renewal.
const VALIDITY: Duration = Duration::from_secs(60 * 60);
/// Interval of renewal without a change.
const REFRESH: Duration = Duration::from_secs(15 * 60);
/// Maximum length of a label's value.
const LONGEST: usize = 63;

/// Label values by name.
type Labels = BTreeMap<String, String>;

/// Labels for these GPUs and this offer. Names of GPU labels have no dot, and those of profiles contain one,
/// which profile names cannot, so all are distinct.
fn labels(config: &Config, gpu_devices: &[GpuDevice], offer: &Offer) -> Labels {
    let divided: BTreeSet<_> = offer.devices.keys().map(|device| device.gpu).collect();
    let ours: Vec<&GpuDevice> =
        gpu_devices.iter().filter(|gpu_device| divided.contains(&gpu_device.uuid)).collect();
    let models: BTreeSet<&str> = ours.iter().map(|gpu_device| gpu_device.model.as_str()).collect();
    let mut said = vec![("gpus".to_owned(), ours.len().to_string())];
    said.extend(
        ours.iter()
            .map(|gpu_device| gpu_device.capacity)
            .min()
            .map(|least| ("gpu-memory".into(), mib(least))),
    );
    said.extend(product(&models).map(|product| ("gpu-product".into(), product)));
    if config.division == Division::Dynamic {
        said.push(("dynamic".into(), "true".into()));
    }
    for profile in &config.profiles {
        let sizes = || offer.devices.iter().filter(|(device, _)| device.profile == profile.name);
        let memory: BTreeSet<Bytes> = sizes().map(|(_, claim)| claim.memory).collect();
        let name = &profile.name;
        said.push((format!("{name}.count"), sizes().count().to_string()));
        said.extend(memory.first().map(|least| (format!("{name}.memory"), mib(*least))));
        said.extend(
            memory.last().filter(|_| memory.len() > 1).map(|most| (format!("{name}.memory-max"), mib(*most))),
        );
    }
    said.into_iter().map(|(name, value)| (format!("{}/{name}", config.resource_domain), value)).collect()
}

/// Whole MiB without a unit, as in NVIDIA's labels.
fn mib(bytes: Bytes) -> String {
    bytes.whole_mib().to_string()
}

/// The model in characters valid for labels, if all GPUs have the same.
fn product(models: &BTreeSet<&str>) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let value: String =
        models.first()?.chars().take(LONGEST).map(|c| if allowed(c) { c } else { '-' }).collect();
    let value =
        if models.len() > 1 { "mixed" } else { value.trim_matches(|c: char| !c.is_ascii_alphanumeric()) };
    (!value.is_empty()).then(|| value.to_owned())
}

/// Content of the file with its expiry time.
fn text(labels: &Labels, until: SystemTime) -> String {
    let mut text = format!("# +expiry-time={}\n", humantime::format_rfc3339_seconds(until));
    text.extend(labels.iter().map(|(name, value)| format!("{name}={value}\n")));
    text
}

/// Writes the file under a temporary name that the reader ignores, and renames it.
fn write(directory: &Path, text: &str) -> io::Result<()> {
    let fresh = directory.join(format!(".{FILE}.new"));
    fs::write(&fresh, text)?;
    fs::rename(&fresh, directory.join(FILE))
}

/// Keeps the file up to date until the task is aborted.
pub(crate) async fn keep(manager: Arc<ResourceManager>, directory: impl AsRef<Path>) {
    let directory = directory.as_ref();
    let (mut pictures, mut written, mut problem) = (manager.pictures(), None, LastProblem::default());
    loop {
        let (gpu_devices, offer) = manager.offered().await;
        let labels = labels(&manager.config, &gpu_devices, &offer);
        let due = written.as_ref().is_none_or(|(old, at): &(Labels, SystemTime)| {
            *old != labels || at.elapsed().is_ok_and(|age| age >= REFRESH)
        });
        if due {
            let now = SystemTime::now();
            match write(directory, &text(&labels, now + VALIDITY)) {
                Ok(()) => (written, problem) = (Some((labels, now)), LastProblem::default()),
                Err(error) => problem.complain(error, |error| {
                    let directory = directory.display();
                    tracing::warn!(
                        "cannot write the node's labels in {directory}: {error}; it is tried again (does `features_dir` exist?)"
                    );
                }),
            }
        }
        let patience = if problem.is_there() { REFRESH / 15 } else { REFRESH };
        let _ = tokio::time::timeout(patience, pictures.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{USUAL, config, gpu_devices};

    fn labels_of(text: &str, gpu_devices: &[GpuDevice]) -> Labels {
        let config = config(text);
        labels(&config, gpu_devices, &Offer::of(&config, gpu_devices).unwrap())
    }

    #[test]
    fn labels_count_devices_of_each_profile() {
        let labels = labels_of(USUAL, &gpu_devices(8));
        let told: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            told,
            [
                "tranche.dev/gpu-20.count=8",
                "tranche.dev/gpu-20.memory=6502",
                "tranche.dev/gpu-30.count=8",
                "tranche.dev/gpu-30.memory=9753",
                "tranche.dev/gpu-50.count=8",
                "tranche.dev/gpu-50.memory=16255",
                "tranche.dev/gpu-memory=32510",
                "tranche.dev/gpu-product=Tesla-V100-SXM2-32GB",
                "tranche.dev/gpus=8",
            ]
        );
    }

    #[test]
    fn mixed_node_labels_memory_range() {
        let mut gpu_devices = gpu_devices(2);
        (gpu_devices[1].capacity, gpu_devices[1].model) = (Bytes::mib(24000), "NVIDIA A30".into());
        let labels = labels_of(USUAL, &gpu_devices);
        let told = ["gpu-50.memory", "gpu-50.memory-max", "gpu-product"];
        let told = told.map(|name| labels[&format!("tranche.dev/{name}")].as_str());
        assert_eq!(told, ["12000", "16255", "mixed"]);
    }

    #[test]
    fn unconfigured_gpus_are_not_counted() {
        let labels = labels_of(&format!("gpus = [0]\nresource_domain = 'a.b'\n{USUAL}"), &gpu_devices(8));
        assert_eq!(labels["a.b/gpus"], "1");
        let none = labels_of(&format!("gpus = [9]\n{USUAL}"), &gpu_devices(8));
        assert_eq!(
            (none["tranche.dev/gpus"].as_str(), none["tranche.dev/gpu-50.count"].as_str()),
            ("0", "0")
        );
    }

    #[test]
    fn feature_file_is_atomic_and_expires() {
        let directory = std::env::temp_dir().join(format!("tranche-features-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let labels = Labels::from([("a.b/c".into(), "1".into())]);
        for until in [0, 3600] {
            write(&directory, &text(&labels, SystemTime::UNIX_EPOCH + Duration::from_secs(until))).unwrap();
        }
        let found = fs::read_to_string(directory.join(FILE)).unwrap();
        assert_eq!(found, "# +expiry-time=1970-01-01T01:00:00Z\na.b/c=1\n");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&directory).unwrap();
    }

    proptest! {
        #[test]
        fn label_values_are_valid(model in "\\PC{0,80}") {
            if let Some(value) = product(&BTreeSet::from([model.as_str()])) {
                let plain = |c: char| c.is_ascii_alphanumeric();
                prop_assert!(value.len() <= LONGEST && value.starts_with(plain) && value.ends_with(plain));
                prop_assert!(value.chars().all(|c| plain(c) || "-_.".contains(c)));
            }
        }
    }
}
