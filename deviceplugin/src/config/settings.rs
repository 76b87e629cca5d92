//! The settings of a configuration file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuSelector, GpuUuid};
use tranche_exposition::Address;

use crate::layout::{Division, Layout, LayoutScope};
use crate::profile::{Profile, ProfileName};

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

impl Config {
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
        self.gpus.as_ref().is_none_or(|gpus| gpus.iter().any(|gpu| gpu.names(index, uuid)))
    }

    /// Layout of a GPU: the one that names it, else the one for its model, else the general one.
    pub fn layout(&self, index: u32, uuid: GpuUuid, model: &str) -> Option<&Layout> {
        let Division::Static(layouts) = &self.division else { return None };
        let that = |scope: LayoutScope| layouts.iter().find(move |layout| layout.of == scope);
        that(LayoutScope::Gpu(GpuSelector::Uuid(uuid)))
            .or_else(|| that(LayoutScope::Gpu(GpuSelector::Index(index))))
            .or_else(|| that(LayoutScope::Model(model.to_owned())))
            .or_else(|| that(LayoutScope::Any))
    }
}
