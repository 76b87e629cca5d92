//! Configuration file: profiles, division of GPUs, and sockets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuSelector, GpuUuid};
use tranche_exposition::Address;

use crate::offer::{Layout, Model, Offer, Which};
use crate::profile::{Profile, ProfileName};

mod document;
mod error;

use document::Document;
pub use error::ConfigError;

/// Configuration, checked as far as possible without the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Domain of the resource names, before the slash. Default: `tranche.dev`.
    pub resource_domain: String,
    /// The daemon's socket. Default: `/run/tranche/tranched.sock`.
    pub tranched_socket: PathBuf,
    /// Directory of the registration socket of the kubelet and of the plugins' sockets. Default:
    /// `/var/lib/kubelet/device-plugins`.
    pub kubelet_dir: PathBuf,
    /// Socket of the kubelet's pod resources API. Default: `/var/lib/kubelet/pod-resources/kubelet.sock`.
    pub pod_resources_socket: PathBuf,
    /// Feature directory of Node Feature Discovery. Default: none, and no labels are written.
    pub features_dir: Option<PathBuf>,
    /// Log filter in `tracing` syntax. Default: `info`.
    pub log: String,
    /// Address of metrics, liveness and readiness: an address with port, an absolute socket path, or `off`.
    /// Default: `off`.
    pub metrics: Address,
    /// True if faults of GPUs are reported as events of the node. Default: `true`; without a service account
    /// none are.
    pub events: bool,
    /// Directory of the pod's service account. Default: `/var/run/secrets/kubernetes.io/serviceaccount`.
    pub service_account_dir: PathBuf,
    /// GPUs to divide. Default: all.
    pub gpus: Option<Vec<GpuSelector>>,
    /// Faults that do not affect health. Default: those that programs cause.
    pub ignored_xids: IgnoredXids,
    /// Time for which a GPU has to be healthy after a failure before its devices are healthy again. Default:
    /// a minute.
    pub recovery: Duration,
    /// Profiles, each offered as a resource.
    pub profiles: Vec<Profile>,
    /// Division of the GPUs.
    pub division: Division,
}

/// Faults that do not affect health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IgnoredXids {
    /// Faults that programs cause on healthy GPUs.
    #[default]
    OfPrograms,
    /// Those, and these in addition.
    AndThese(BTreeSet<Xid>),
    /// All faults, whatever causes them.
    All,
}

impl IgnoredXids {
    /// Tests if a fault is ignored.
    pub fn contains(&self, xid: Xid) -> bool {
        match self {
            Self::OfPrograms => xid.is_of_programs(),
            Self::AndThese(these) => xid.is_of_programs() || these.contains(&xid),
            Self::All => true,
        }
    }
}

/// Division of GPUs into devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each GPU by its layout; all devices are available at the same time.
    Static(Vec<Layout>),
    /// Each GPU offers every profile; devices that do not fit beside those in use become unhealthy.
    Dynamic,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If the file is unreadable or invalid, has an unknown key, or describes an impossible division.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::understand(tranche_config::read(path, &document::keys())?, path)
    }

    /// Parses the content of a file; `path` is for messages.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::understand(tranche_config::parse(text, path, &document::keys())?, path)
    }

    fn understand(document: Document, path: &Path) -> Result<Self, ConfigError> {
        let checked = document.understand().and_then(|config| config.check().map(|()| config));
        checked.map_err(|problem| ConfigError::Nonsense { path: path.to_owned(), problem })
    }

    /// The profile with this name.
    pub fn profile(&self, name: &ProfileName) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == *name)
    }

    /// Resource name of a profile.
    pub fn resource(&self, name: &ProfileName) -> String {
        format!("{}/{name}", self.resource_domain)
    }

    /// Tests if the configuration includes this GPU.
    pub fn is_ours(&self, index: u32, uuid: GpuUuid) -> bool {
        let named = |gpu: &GpuSelector| [GpuSelector::Index(index), GpuSelector::Uuid(uuid)].contains(gpu);
        self.gpus.as_ref().is_none_or(|gpus| gpus.iter().any(named))
    }

    /// Layout of a GPU: the one that names it, else the one for its model, else the general one.
    pub fn layout(&self, index: u32, uuid: GpuUuid, model: &str) -> Option<&Layout> {
        let Division::Static(layouts) = &self.division else { return None };
        let that = |which: Which| layouts.iter().find(move |layout| layout.of == which);
        that(Which::Gpu(GpuSelector::Uuid(uuid)))
            .or_else(|| that(Which::Gpu(GpuSelector::Index(index))))
            .or_else(|| that(Which::Model(Model(model.to_owned()))))
            .or_else(|| that(Which::Any))
    }

    fn check(&self) -> Result<(), String> {
        check_domain(&self.resource_domain)?;
        if self.profiles.is_empty() {
            return Err(
                "there is no [[profile]]: nothing would be offered; add one with a name and a fraction"
                    .into(),
            );
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.profiles.iter().find(|profile| !names.insert(&profile.name)) {
            return Err(format!("profile {} is there twice: give one of them another name", twice.name));
        }
        for profile in &self.profiles {
            Offer::try_profile(profile).map_err(|why| format!("profile {}: {why}", profile.name))?;
        }
        match &self.division {
            Division::Static(layouts) => self.check_layouts(layouts),
            Division::Dynamic => Ok(()),
        }
    }

    fn check_layouts(&self, layouts: &[Layout]) -> Result<(), String> {
        if layouts.is_empty() {
            return Err("there is no [[layout]]: say which profiles each GPU is divided into, \
                        or set `dynamic = true`"
                .into());
        }
        for (at, layout) in layouts.iter().enumerate() {
            if layouts[..at].iter().any(|other| other.of == layout.of) {
                return Err(format!("there are two layouts for {}: keep one", layout.of));
            }
            if let Some(unknown) = layout.profiles.iter().find(|name| self.profile(name).is_none()) {
                return Err(format!(
                    "the layout for {} names profile {unknown}, which is not defined",
                    layout.of
                ));
            }
            Offer::try_layout(self, layout).map_err(|why| format!("the layout for {}: {why}", layout.of))?;
        }
        Ok(())
    }
}

/// Checks a DNS name, as Kubernetes requires before the slash of a resource.
fn check_domain(domain: &str) -> Result<(), String> {
    let label = |label: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.chars().all(|c| plain(c) || c == '-') && label.starts_with(plain) && label.ends_with(plain)
    };
    if !domain.split('.').all(label) || !domain.contains('.') || domain.len() > 253 {
        return Err(format!("resource_domain {domain:?} is not a domain name such as tranche.dev"));
    }
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return Err(format!("resource_domain {domain:?} is reserved to Kubernetes: use one of your own"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
