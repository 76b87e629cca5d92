//! The configuration file: few keys, each with its default beside it, and no others.

mod gpus;
mod only_slices;
mod policies;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Group as SystemGroup;
use serde::{Deserialize, Serialize};
use tranche_config::Keys;
use tranche_domain::truth::Violations;
use tranche_domain::units::Bytes;
use tranche_exposition::Address;

use crate::access::{Access, Group, Limits};
use crate::containers::Documents;

pub use gpus::Gpus;
pub use only_slices::OnlySlices;
pub use policies::{Foreigners, OverCap, OverCapPolicy, Transfers, ViolationsPolicy};
pub use tranche_config::FileError as ConfigError;
pub use tranche_jobs::Retention;

const DAY: Duration = Duration::from_hours(24);

/// What can be configured. Options on the command line win over the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Config {
    /// Directory of sockets and regions. Default: `/run/tranche` for root, else `$XDG_RUNTIME_DIR/tranche`.
    pub runtime_dir: Option<PathBuf>,
    /// Directory of what survives a restart. Default: `/var/lib/tranche` for root, else
    /// `$XDG_STATE_HOME/tranche` or `~/.local/state/tranche`.
    pub state_dir: Option<PathBuf>,
    /// Which GPUs are divided: `all`, or a list of indices and UUIDs. The others are left alone: no slice is put
    /// there, and programs on them are neither watched nor bound. Default: `all`.
    pub gpus: Gpus,
    /// NVML's library. Default: the system's `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// The library that tenants preload. Default: `../lib/tranche/libtranche_preload.so` beside the
    /// daemon's own directory.
    pub shim: Option<PathBuf>,
    /// Group whose members may make slices and change their own; everybody else may look, and root may do anything.
    /// Default: none, so that root alone has slices. Without meaning for a daemon that serves one user.
    pub socket_group: Option<String>,
    /// System user that root's daemon reads everything as that others send. Default: `tranched` with the default
    /// `runtime_dir`, where there is that user; else the daemon stays uid 0, without capabilities.
    pub user: Option<String>,
    /// How many connections to the gRPC socket a user other than root may have at a time. Default: 256.
    pub connections_per_user: usize,
    /// How many requests of a user other than root may wait for room at a time. Default: 128.
    pub waiting_per_user: usize,
    /// How many slices a user other than root may have at a time. Default: 64.
    pub slices_per_user: usize,
    /// Charged for a context, in MiB, where its cost cannot be measured. Default: 512, more than any
    /// model costs that was measured so far.
    pub context_reserve_mib: u64,
    /// What is done about a slice that stays over its cap after a shrink: `report` shows it and refuses new
    /// memory, `kill` also kills its largest process, one after the other, until it is within. Default:
    /// `report`.
    pub over_cap: OverCapPolicy,
    /// With `over_cap = "kill"`: for how many seconds a slice may be over its cap. Default: 60.
    pub over_cap_grace_s: u64,
    /// What is done about processes of slices that hold more than they are charged for, run while they are to wait, go
    /// without the library or overwrite what they are charged by: `report` shows them in `tranche smi` and `tranche
    /// events`, `kill` also kills those who are known to do so. Default: `report`.
    pub violations: ViolationsPolicy,
    /// With `violations = "kill"`: for how many seconds somebody may go on after it was found out. Default: 10.
    pub violations_grace_s: u64,
    /// What is done about processes that are in no slice and use a GPU that slices are on: `report` shows them, `refuse`
    /// also puts no slice on a GPU as long as one uses it. Nobody kills them. Default: `report`.
    pub foreigners: Foreigners,
    /// Whether the kernel lets only processes of slices open the GPUs: `true`, or a list of cgroups that may besides
    /// slices, which with `true` is `/system.slice/nvidia-persistenced.service` alone. Takes root's daemon, all of the
    /// node's `gpus`, cgroups of version 2 and Linux 5.12. Default: `false`.
    pub only_slices: OnlySlices,
    /// For how many seconds a GPU is to have answered, needed no reset and reported nothing until its faults are
    /// over. Default: 60.
    pub fault_quiet_s: u64,
    /// How many jobs of a project are kept that have ended, with what they printed; those that ended first are forgotten.
    /// Default: 500.
    pub ended_jobs_kept: usize,
    /// For how many days of the machine being on. Default: 30.
    pub ended_jobs_days: u32,
    /// Whether asynchronous copies and fills count as compute: `uncounted` lets them pass, `counted` holds them back
    /// and charges them as it does launches. Default: `uncounted`.
    pub transfers: Transfers,
    /// Where container runtimes look for CDI documents, one of which is written for each slice that stays; or `off`.
    /// Default: `/var/run/cdi` for root's daemon with the default `runtime_dir`, else `off`.
    pub cdi_dir: Option<PathBuf>,
    /// The CDI document that describes the node's GPUs. Default: what NVIDIA's tools wrote in `/var/run/cdi` or
    /// `/etc/cdi`, else what is found without one.
    pub cdi_node: Option<PathBuf>,
    /// Whether the shim is also preloaded in containers, by an `/etc/ld.so.preload` of their own: for images that have a
    /// driver where nobody expects it. Default: `false`, it stands in the driver's place alone.
    pub cdi_preload: bool,
    /// Where metrics, liveness and readiness are served: an address with a port such as `127.0.0.1:9464`, the absolute
    /// path of a socket, or `off`. Default: `metrics.sock` in the `runtime_dir`.
    pub metrics: Option<Address>,
    /// What is logged, as `tracing` filters are written. Default: `info`.
    pub log: String,
}

impl Default for Config {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            runtime_dir: None,
            state_dir: None,
            gpus: Gpus::All,
            nvml_library: None,
            shim: None,
            socket_group: None,
            user: None,
            connections_per_user: limits.connections,
            waiting_per_user: limits.waiting,
            slices_per_user: limits.slices,
            context_reserve_mib: 512,
            over_cap: OverCapPolicy::Report,
            over_cap_grace_s: 60,
            violations: ViolationsPolicy::Report,
            violations_grace_s: 10,
            foreigners: Foreigners::Report,
            only_slices: OnlySlices::No,
            fault_quiet_s: 60,
            ended_jobs_kept: Retention::DEFAULT.most,
            ended_jobs_days: 30,
            transfers: Transfers::Uncounted,
            cdi_dir: None,
            cdi_node: None,
            cdi_preload: false,
            metrics: None,
            log: "info".into(),
        }
    }
}

/// A directory for CDI documents that depends on where the daemon was started.
#[derive(Debug, thiserror::Error)]
#[error("the configuration's `cdi_dir` is {0:?}: it takes an absolute path, or \"off\"")]
pub struct RelativeDirectory(PathBuf);

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or understood, or has a key that is not known: a misspelt limit must not pass
    /// for one.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        tranche_config::read(path, &Keys::of::<Self>())
    }

    /// Reads the content of a file; `path` is what messages call it.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        tranche_config::parse(text, path, &Keys::of::<Self>())
    }

    /// The keys whose values change without a restart.
    pub const LIVE: [&str; 7] = [
        "connections_per_user",
        "fault_quiet_s",
        "log",
        "over_cap",
        "over_cap_grace_s",
        "slices_per_user",
        "waiting_per_user",
    ];

    /// Takes the values of those keys from another configuration.
    pub(crate) fn take_live(&mut self, new: &Self) {
        let old = self.clone();
        *self = Self {
            runtime_dir: old.runtime_dir,
            state_dir: old.state_dir,
            gpus: old.gpus,
            nvml_library: old.nvml_library,
            shim: old.shim,
            socket_group: old.socket_group,
            user: old.user,
            context_reserve_mib: old.context_reserve_mib,
            violations: old.violations,
            violations_grace_s: old.violations_grace_s,
            foreigners: old.foreigners,
            only_slices: old.only_slices,
            ended_jobs_kept: old.ended_jobs_kept,
            ended_jobs_days: old.ended_jobs_days,
            transfers: old.transfers,
            cdi_dir: old.cdi_dir,
            cdi_node: old.cdi_node,
            cdi_preload: old.cdi_preload,
            metrics: old.metrics,
            ..new.clone()
        };
    }

    /// Every key with its value.
    pub(crate) fn entries(&self) -> serde_json::Map<String, serde_json::Value> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(entries)) => entries,
            // A path that is no text cannot come from a file, which is text.
            _ => serde_json::Map::new(),
        }
    }

    /// What is wrong with what it says, besides how it says it.
    pub(crate) fn faults(&self) -> Vec<String> {
        let log = check_log(&self.log).err();
        let documents = self.documents(None).err().map(|error| error.to_string());
        let group = self.socket_group.as_deref().and_then(|name| group(name).err());
        let only_slices = (self.gpus != Gpus::All && self.only_slices != OnlySlices::No).then(|| {
            "`only_slices` keeps all of the node's GPUs from other processes, also those that `gpus` leaves alone: have one of \
             the two"
                .into()
        });
        [log, documents, group, only_slices].into_iter().flatten().collect()
    }

    /// What users may take.
    pub(crate) const fn limits(&self) -> Limits {
        Limits {
            connections: self.connections_per_user,
            waiting: self.waiting_per_user,
            slices: self.slices_per_user,
        }
    }

    /// Who may have slices besides root.
    ///
    /// # Errors
    /// If there is no such group.
    pub(crate) fn access(&self) -> Result<Access, String> {
        let group = self.socket_group.as_deref().map(group).transpose()?;
        Ok(Access { group, limits: self.limits() })
    }

    /// What is done about a slice that stays over its cap.
    pub const fn over_cap(&self) -> OverCap {
        match self.over_cap {
            OverCapPolicy::Report => OverCap::Report,
            OverCapPolicy::Kill => OverCap::Kill { grace: Duration::from_secs(self.over_cap_grace_s) },
        }
    }

    /// What is done about processes that break the rules.
    pub const fn violations(&self) -> Violations {
        match self.violations {
            ViolationsPolicy::Report => Violations::Report,
            ViolationsPolicy::Kill => {
                Violations::Kill { grace: Duration::from_secs(self.violations_grace_s) }
            }
        }
    }

    /// Which jobs are kept that have ended.
    pub const fn ended_jobs(&self) -> Retention {
        Retention { most: self.ended_jobs_kept, age: DAY.saturating_mul(self.ended_jobs_days) }
    }

    /// What containers are told, and where; nothing where that is off.
    ///
    /// # Errors
    /// A directory that depends on where the daemon was started.
    pub fn documents(&self, by_default: Option<&Path>) -> Result<Option<Documents>, RelativeDirectory> {
        let directory = match self.cdi_dir.as_deref() {
            Some(off) if off == Path::new("off") => None,
            Some(relative) if !relative.is_absolute() => {
                return Err(RelativeDirectory(relative.to_owned()));
            }
            given => given.or(by_default),
        };
        Ok(directory.map(|directory| Documents {
            directory: directory.to_owned(),
            node: self.cdi_node.clone(),
            preload: self.cdi_preload,
            with_whole: self.only_slices != OnlySlices::No,
        }))
    }

    /// Charged for a context where its cost cannot be measured.
    pub const fn context_reserve(&self) -> Bytes {
        Bytes::mib(self.context_reserve_mib)
    }
}

/// Understands what is to be logged, or says why not.
pub(crate) fn check_log(filter: &str) -> Result<tracing_subscriber::EnvFilter, String> {
    tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| format!("`log` is not a filter: {error}; try `info`"))
}

fn group(name: &str) -> Result<Group, String> {
    let known =
        SystemGroup::from_name(name).map_err(|error| format!("cannot look up group {name}: {error}"))?;
    let missing = || {
        format!(
            "there is no group {name}, which `socket_group` names: make it with `groupadd --system {name}`"
        )
    };
    Ok(Group { name: name.into(), gid: known.ok_or_else(missing)?.gid.as_raw() })
}

#[cfg(test)]
mod tests;
