//! The configuration file: few keys, each with its default; unknown keys are errors.

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

/// All configuration keys. Command-line options take precedence over the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Config {
    /// Directory of sockets and regions. Default: `/run/tranche` for root, else `$XDG_RUNTIME_DIR/tranche`.
    pub runtime_dir: Option<PathBuf>,
    /// Directory of persistent state. Default: `/var/lib/tranche` for root, else `$XDG_STATE_HOME/tranche` or
    /// `~/.local/state/tranche`.
    pub state_dir: Option<PathBuf>,
    /// GPUs to divide: `all`, or a list of indices and UUIDs. Slices are not placed on other GPUs, whose programs are
    /// neither watched nor limited. Default: `all`.
    pub gpus: Gpus,
    /// Path of the NVML library. Default: the system's `libnvidia-ml.so.1`.
    pub nvml_library: Option<PathBuf>,
    /// Library that tenants preload. Default: `../lib/tranche/libtranche_preload.so`, relative to the directory of
    /// the daemon.
    pub shim: Option<PathBuf>,
    /// Group whose members may create slices and change their own; other users have read access, and root may do
    /// everything. Default: none, so only root may create slices. Ignored by a daemon that serves one user.
    pub socket_group: Option<String>,
    /// System user as which root's daemon parses what others send. Default: `tranched` with the default
    /// `runtime_dir`, if that user exists; else the daemon stays uid 0, without capabilities.
    pub user: Option<String>,
    /// Concurrent connections to the gRPC socket of each user other than root. Default: 256.
    pub connections_per_user: usize,
    /// Concurrently waiting requests of each user other than root. Default: 128.
    pub waiting_per_user: usize,
    /// Slices of each user other than root. Default: 64.
    pub slices_per_user: usize,
    /// Charge for a context, in MiB, where its cost cannot be measured. Default: 512, more than the cost of any model
    /// measured so far.
    pub context_reserve_mib: u64,
    /// Policy for a slice that stays over its cap after a shrink: `report` shows it and refuses new memory, `kill`
    /// also kills its largest process, repeatedly, until it is within. Default: `report`.
    pub over_cap: OverCapPolicy,
    /// With `over_cap = "kill"`: seconds for which a slice may be over its cap. Default: 60.
    pub over_cap_grace_s: u64,
    /// Policy for processes of slices that hold more than they are charged for, compute while their launches should
    /// wait, run without the shim or overwrite the accounting: `report` shows them in `tranche smi` and `tranche
    /// events`, `kill` also kills processes known to do so. Default: `report`.
    pub violations: ViolationsPolicy,
    /// With `violations = "kill"`: seconds between the finding and the kill. Default: 10.
    pub violations_grace_s: u64,
    /// Policy for processes outside slices that use a GPU with slices: `report` shows them, `refuse` also keeps
    /// slices off a GPU while such a process uses it. They are never killed. Default: `report`.
    pub foreigners: Foreigners,
    /// Restriction of opening GPUs to processes of slices: `true`, or a list of cgroups that may as well, which with
    /// `true` is `/system.slice/nvidia-persistenced.service` alone. Requires root's daemon, all of the node's `gpus`,
    /// cgroup version 2 and Linux 5.12. Default: `false`.
    pub only_slices: OnlySlices,
    /// Seconds for which a GPU has to answer, need no reset and report nothing until its faults are over. Default:
    /// 60.
    pub fault_quiet_s: u64,
    /// Ended jobs of each project that are kept with their output; the oldest are deleted first. Default: 500.
    pub ended_jobs_kept: usize,
    /// Days, of the machine being on, for which ended jobs are kept. Default: 30.
    pub ended_jobs_days: u32,
    /// Treatment of asynchronous copies and fills: `uncounted` lets them pass the launch gate, `counted` delays and
    /// charges them as launches. Default: `uncounted`.
    pub transfers: Transfers,
    /// Directory in which container runtimes look for CDI documents, one of which is written for each persistent
    /// slice; or `off`. Default: `/var/run/cdi` for root's daemon with the default `runtime_dir`, else `off`.
    pub cdi_dir: Option<PathBuf>,
    /// CDI document that describes the node's GPUs. Default: the one that NVIDIA's tools wrote in `/var/run/cdi` or
    /// `/etc/cdi`, else the daemon's own discovery.
    pub cdi_node: Option<PathBuf>,
    /// Preloads the shim in containers as well, through their `/etc/ld.so.preload`: for images with a driver at an
    /// unusual path. Default: `false`, the shim only replaces the driver's libraries.
    pub cdi_preload: bool,
    /// Address of metrics, liveness and readiness: an address with a port such as `127.0.0.1:9464`, the absolute path
    /// of a socket, or `off`. Default: `metrics.sock` in the `runtime_dir`.
    pub metrics: Option<Address>,
    /// Log filter, in the syntax of `tracing`. Default: `info`.
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

/// The directory for CDI documents is relative, so it depends on the working directory.
#[derive(Debug, thiserror::Error)]
#[error("the configuration's `cdi_dir` is {0:?}: it takes an absolute path, or \"off\"")]
pub struct RelativeDirectory(PathBuf);

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or has an unknown key: a misspelt limit must not go unnoticed.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        tranche_config::read(path, &Keys::of::<Self>())
    }

    /// Parses the content of a file; error messages name it `path`.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        tranche_config::parse(text, path, &Keys::of::<Self>())
    }

    /// Keys that change without a restart.
    pub const LIVE: [&str; 7] = [
        "connections_per_user",
        "fault_quiet_s",
        "log",
        "over_cap",
        "over_cap_grace_s",
        "slices_per_user",
        "waiting_per_user",
    ];

    /// Copies the values of [`Config::LIVE`] from another configuration.
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

    /// All keys with their values.
    pub(crate) fn entries(&self) -> serde_json::Map<String, serde_json::Value> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(entries)) => entries,
            // Paths from a file are always text, so this cannot fail for them.
            _ => serde_json::Map::new(),
        }
    }

    /// Errors in values that are valid TOML of the right types.
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

    /// Quotas of users.
    pub(crate) const fn limits(&self) -> Limits {
        Limits {
            connections: self.connections_per_user,
            waiting: self.waiting_per_user,
            slices: self.slices_per_user,
        }
    }

    /// Users other than root that may create slices.
    ///
    /// # Errors
    /// The group does not exist.
    pub(crate) fn access(&self) -> Result<Access, String> {
        let group = self.socket_group.as_deref().map(group).transpose()?;
        Ok(Access { group, limits: self.limits() })
    }

    /// Policy for slices that stay over their caps.
    pub const fn over_cap(&self) -> OverCap {
        match self.over_cap {
            OverCapPolicy::Report => OverCap::Report,
            OverCapPolicy::Kill => OverCap::Kill { grace: Duration::from_secs(self.over_cap_grace_s) },
        }
    }

    /// Policy for processes that violate their slice's limits.
    pub const fn violations(&self) -> Violations {
        match self.violations {
            ViolationsPolicy::Report => Violations::Report,
            ViolationsPolicy::Kill => {
                Violations::Kill { grace: Duration::from_secs(self.violations_grace_s) }
            }
        }
    }

    /// Retention of ended jobs.
    pub const fn ended_jobs(&self) -> Retention {
        Retention { most: self.ended_jobs_kept, age: DAY.saturating_mul(self.ended_jobs_days) }
    }

    /// Documents for containers and their directory; `None` if that is off.
    ///
    /// # Errors
    /// The directory is relative.
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

    /// Charge for a context whose cost cannot be measured.
    pub const fn context_reserve(&self) -> Bytes {
        Bytes::mib(self.context_reserve_mib)
    }
}

/// Parses a log filter; the error is a sentence.
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
