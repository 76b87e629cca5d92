//! The configuration file: profiles, how they divide each GPU, and where everybody listens.

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

/// What is configured, checked as far as it can be without knowing the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What stands before the profile's name in a resource. Default: `tranche.dev`.
    pub resource_domain: String,
    /// The daemon's socket. Default: `/run/tranche/tranched.sock`.
    pub tranched_socket: PathBuf,
    /// The directory of the kubelet's registration socket and of the plugins'. Default:
    /// `/var/lib/kubelet/device-plugins`.
    pub kubelet_dir: PathBuf,
    /// The kubelet's socket that tells which pod holds what. Default:
    /// `/var/lib/kubelet/pod-resources/kubelet.sock`.
    pub pod_resources_socket: PathBuf,
    /// The directory in which NodeFeatureDiscovery looks for labels. Default: none are written.
    pub features_dir: Option<PathBuf>,
    /// What is logged, as `tracing` filters are written. Default: `info`.
    pub log: String,
    /// Where metrics, liveness and readiness are served: an address with a port, the absolute path of a socket, or
    /// `off`. Default: `off`.
    pub metrics: Address,
    /// Whether Kubernetes is told what befalls GPUs, by events of the node. Default: `true`; without a service account
    /// none are.
    pub events: bool,
    /// The directory of the pod's service account. Default: `/var/run/secrets/kubernetes.io/serviceaccount`.
    pub service_account_dir: PathBuf,
    /// The GPUs that are ours to divide. Default: all.
    pub gpus: Option<Vec<GpuSelector>>,
    /// Faults that make nothing unhealthy. Default: none but those that programs bring about.
    pub ignored_xids: IgnoredXids,
    /// How long a GPU that was lost or could take no slice has to be well before its devices are given away again.
    /// Default: a minute.
    pub recovery: Duration,
    /// The sizes that are offered, each a resource.
    pub profiles: Vec<Profile>,
    /// How the GPUs are divided.
    pub division: Division,
}

/// Faults that make nothing unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IgnoredXids {
    /// Those that programs bring about, which say nothing of the GPU.
    #[default]
    OfPrograms,
    /// Those, and these.
    AndThese(BTreeSet<Xid>),
    /// All of them.
    All,
}

impl IgnoredXids {
    /// Whether a fault is among them.
    pub fn contains(&self, xid: Xid) -> bool {
        match self {
            Self::OfPrograms => xid.is_of_programs(),
            Self::AndThese(these) => xid.is_of_programs() || these.contains(&xid),
            Self::All => true,
        }
    }
}

/// How GPUs are divided into devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each GPU as its layout says: what is allocatable can be had.
    Static(Vec<Layout>),
    /// As asked: each GPU offers every profile, and what no longer fits beside what is in use becomes
    /// unhealthy.
    Dynamic,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or understood, has a key that is not known, or describes what no GPU could give.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::understand(tranche_config::read(path, &document::keys())?, path)
    }

    /// Reads the content of a file; `path` is what messages call it.
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

    /// The profile of that name.
    pub fn profile(&self, name: &ProfileName) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == *name)
    }

    /// The resource that a profile is.
    pub fn resource(&self, name: &ProfileName) -> String {
        format!("{}/{name}", self.resource_domain)
    }

    /// Whether a GPU is ours.
    pub fn is_ours(&self, index: u32, uuid: GpuUuid) -> bool {
        let named = |gpu: &GpuSelector| [GpuSelector::Index(index), GpuSelector::Uuid(uuid)].contains(gpu);
        self.gpus.as_ref().is_none_or(|gpus| gpus.iter().any(named))
    }

    /// How a GPU is divided: by the layout that names it, else by the one for its model, else by the general.
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

/// A DNS name, as Kubernetes wants before the slash of a resource.
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
