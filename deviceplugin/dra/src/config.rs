//! Configuration file: the driver's name, sockets, and GPUs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tranche_config::{FileError, Keys};
use tranche_domain::id::GpuSelector;
use tranche_domain::view::GpuView;
use tranche_domain::word::is_subdomain;
use tranche_exposition::Address;

use crate::condition::Ailment;
use crate::profile::PartProfile;

/// Default name of the driver.
const DRIVER: &str = "gpu.tranche.dev";
/// Default time for which a GPU that failed has to work before it takes claims again.
const RECOVERY_S: u64 = 60;

/// Settings with their defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverConfig {
    /// Name of the driver. Default: `gpu.tranche.dev`.
    pub(crate) driver: String,
    /// Name of this node. Default: the variable `NODE_NAME`, else the host name in lower case.
    pub(crate) node: String,
    /// The daemon's socket. Default: `/run/tranche/tranched.sock`.
    pub(crate) tranched_socket: PathBuf,
    /// Directory of the kubelet's state. Default: `/var/lib/kubelet`.
    pub(crate) kubelet_dir: PathBuf,
    /// Log filter in `tracing` syntax. Default: `info`.
    pub(crate) log: String,
    /// Address of metrics, liveness and readiness. Default: `off`.
    pub(crate) metrics: Address,
    /// GPUs to publish. Default: all.
    pub(crate) gpus: Option<Vec<GpuSelector>>,
    /// Sizes of parts. Default: none, and claims have sizes of their own.
    pub(crate) profiles: Vec<PartProfile>,
    /// GPUs that are offered in parts of these sizes alone. Default: all, if there are profiles.
    profile_gpus: Option<Vec<GpuSelector>>,
    /// Faults that keep no claim off a GPU, beside those that programs cause. Default: none.
    pub(crate) ignored_xids: Vec<u64>,
    /// Time for which a GPU that failed has to work before it takes claims again. Default: a minute.
    pub(crate) recovery: Duration,
    /// Words of the taints that evict pods from a GPU. Default: none, and pods stay.
    evict_on: Vec<String>,
}

/// Content of the file.
#[derive(Deserialize)]
struct ConfigDocument {
    driver: Option<String>,
    node: Option<String>,
    tranched_socket: Option<PathBuf>,
    kubelet_dir: Option<PathBuf>,
    log: Option<String>,
    metrics: Option<Address>,
    gpus: Option<Vec<GpuName>>,
    ignored_xids: Option<Vec<u64>>,
    recovery_s: Option<u64>,
    #[serde(default)]
    evict_on: Vec<String>,
    profile_gpus: Option<Vec<GpuName>>,
    #[serde(default)]
    profile: Vec<ProfileTable>,
}

#[derive(Deserialize)]
struct ProfileTable {
    name: String,
    permille: u32,
}

/// An index or a UUID.
#[derive(Deserialize)]
#[serde(untagged)]
enum GpuName {
    Index(u32),
    Text(String),
}

/// Reason for which there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadDriverConfig {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {why}", .path.display())]
    Value { path: PathBuf, why: String },
}

impl DriverConfig {
    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Self, BadDriverConfig> {
        Self::understand(tranche_config::read(path, &keys())?, path)
    }

    fn understand(document: ConfigDocument, path: &Path) -> Result<Self, BadDriverConfig> {
        let bad = |why: String| BadDriverConfig::Value { path: path.to_owned(), why };
        let driver = document.driver.unwrap_or_else(|| DRIVER.into());
        if !is_subdomain(&driver, 63) {
            return Err(bad(format!(
                "driver {driver:?} is no DNS name of at most 63 characters, such as {DRIVER}"
            )));
        }
        let node = document.node.or_else(tranche_adapter::node_name).unwrap_or_default();
        if !is_subdomain(&node, 253) {
            return Err(bad(format!(
                "{node:?} is no name of a node: set `node`, or NODE_NAME from spec.nodeName of the pod"
            )));
        }
        let selector = |one: GpuName| match one {
            GpuName::Index(index) => Ok(GpuSelector::Index(index)),
            GpuName::Text(text) => {
                text.parse().map_err(|why| bad(format!("gpus: {why}, nor an index such as 0")))
            }
        };
        let selectors = |all: Option<Vec<GpuName>>| {
            all.map(|all| all.into_iter().map(selector).collect::<Result<Vec<_>, _>>()).transpose()
        };
        let profile = |table: ProfileTable| PartProfile::new(table.name, table.permille).map_err(bad);
        let profiles: Vec<_> = document.profile.into_iter().map(profile).collect::<Result<_, _>>()?;
        let mut names: Vec<_> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(bad(format!("profile {} is there twice", pair[0])));
        }
        if let Some(word) = document.evict_on.iter().find(|word| !Ailment::OF_LOSS.contains(&word.as_str())) {
            let words = Ailment::OF_LOSS.join(", ");
            return Err(bad(format!(
                "evict_on: {word:?} is none of {words}, with which a GPU's programs are lost"
            )));
        }
        Ok(Self {
            driver,
            node,
            tranched_socket: document.tranched_socket.unwrap_or_else(|| "/run/tranche/tranched.sock".into()),
            kubelet_dir: document.kubelet_dir.unwrap_or_else(|| "/var/lib/kubelet".into()),
            log: document.log.unwrap_or_else(|| "info".into()),
            metrics: document.metrics.unwrap_or(Address::Off),
            gpus: selectors(document.gpus)?,
            profile_gpus: selectors(document.profile_gpus)?,
            profiles,
            ignored_xids: document.ignored_xids.unwrap_or_default(),
            recovery: Duration::from_secs(document.recovery_s.unwrap_or(RECOVERY_S)),
            evict_on: document.evict_on,
        })
    }

    /// Tests if the driver publishes this GPU.
    pub(crate) fn is_ours(&self, gpu: &GpuView) -> bool {
        self.gpus.as_ref().is_none_or(|gpus| names(gpus, gpu))
    }

    /// Tests if this GPU is offered in parts of the profiles' sizes.
    pub(crate) fn has_profiles(&self, gpu: &GpuView) -> bool {
        !self.profiles.is_empty() && self.profile_gpus.as_ref().is_none_or(|gpus| names(gpus, gpu))
    }

    /// Tests if pods are evicted from a GPU with this ailment.
    pub(crate) fn evicts(&self, ailment: &Ailment) -> bool {
        self.evict_on.iter().any(|word| word == ailment.word())
    }

    /// Socket of the driver's services.
    pub(crate) fn service_socket(&self) -> PathBuf {
        self.kubelet_dir.join("plugins").join(&self.driver).join("dra.sock")
    }

    /// Socket by which the kubelet finds the driver.
    pub(crate) fn registration_socket(&self) -> PathBuf {
        self.kubelet_dir.join("plugins_registry").join(format!("{}-reg.sock", self.driver))
    }

    /// Socket at which the kubelet lists pods with their devices.
    pub(crate) fn pod_resources_socket(&self) -> PathBuf {
        self.kubelet_dir.join("pod-resources").join("kubelet.sock")
    }
}

fn keys() -> Keys {
    Keys::of::<ConfigDocument>().and::<ProfileTable>("profile")
}

fn names(gpus: &[GpuSelector], gpu: &GpuView) -> bool {
    gpus.iter().any(|one| one.names(gpu.index, gpu.uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DriverConfig, BadDriverConfig> {
        let path = Path::new("t.toml");
        DriverConfig::understand(tranche_config::parse(text, path, &keys())?, path)
    }

    #[test]
    fn empty_file_is_a_configuration() {
        let config = parse("node = 'n1'").unwrap();
        assert_eq!((config.driver.as_str(), config.node.as_str()), (DRIVER, "n1"));
        let socket = "/var/lib/kubelet/plugins_registry/gpu.tranche.dev-reg.sock";
        assert_eq!(config.registration_socket(), Path::new(socket));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("drivr = 'x'", "drivr"),
            ("node = 'N1'", "no name of a node"),
            ("driver = 'a..b'", "no DNS name"),
            ("node = 'n'\ngpus = ['x']", "\"x\""),
            ("node = 'n'\ngpus = [-1]", "gpus"),
            ("node = 'n'\nrecovery_s = 'x'", "recovery_s"),
            ("node = 'n'\nevict_on = ['gone', 'cordoned']", "\"cordoned\" is none of gone, unusable, fault"),
            ("node = 'n'\n[[profile]]\nname = 'a'", "permille"),
            ("node = 'n'\n[[profile]]\nname = 'a'\npermille = 0", "1 to 1000"),
            ("node = 'n'\n[[profile]]\nname = 'a'\npermil = 1", "permil"),
            ("node = 'n'\nprofile = [{name = 'a', permille = 1}, {name = 'a', permille = 2}]", "twice"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
