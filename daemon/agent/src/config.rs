//! The configuration file: one table of its keys.
//!
//! The template, the man page and the reload follow from it. Law: unknown keys are errors.

mod gpus;
pub(crate) mod manual;
mod only_slices;
mod policies;
#[macro_use]
mod table;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nix::unistd::Group as SystemGroup;
use serde::{Deserialize, Serialize};
use tranche_config::Keys;
use tranche_domain::driver_release::DriverRelease;
use tranche_domain::overcommit::Overcommit;
use tranche_domain::truth::ViolationPolicy;
use tranche_domain::units::Bytes;
use tranche_exposition::Address;
use tranche_jobs::Preemption;

use crate::access::{Access, Group, Limits};
use crate::containers::Documents;
use crate::parking::{ParkTerms, default_budget};

pub use gpus::ManagedGpus;
pub use only_slices::OnlySlices;
pub(crate) use policies::PreemptionPolicy;
pub use policies::{Foreigners, OverCap, OverCapPolicy, Transfers, ViolationsPolicy};
pub use tranche_config::FileError as ConfigError;
pub use tranche_jobs::Retention;

use table::{Key, KeyEffect};

const DAY: Duration = Duration::from_hours(24);

settings! {
    /// Group whose members may create slices and change their own.
    ///
    /// Other users have read access, root may do everything. Without a group, only root may create slices. A daemon
    /// that serves one user ignores it.
    restart socket_group: Option<String> = None, "\"tranche\"";

    /// System user of the process that parses requests.
    ///
    /// Its default applies with the default `runtime_dir`, if that user exists; else the process stays uid 0, without
    /// capabilities. Not a member of `socket_group`.
    restart user: Option<String> = None, "\"tranched\"";

    /// Concurrent connections to the gRPC socket of each user other than root.
    live connections_per_user: usize = Limits::default().connections;

    /// Concurrently waiting requests of each user other than root.
    live waiting_per_user: usize = Limits::default().waiting;

    /// Slices of each user other than root.
    live slices_per_user: usize = Limits::default().slices;

    /// Directory of sockets and regions, which has to be empty after a reboot.
    ///
    /// Default for other users than root: `$XDG_RUNTIME_DIR/tranche`.
    restart runtime_dir: Option<PathBuf> = None, "\"/run/tranche\"";

    /// Directory of persistent state.
    ///
    /// Default for other users than root: `$XDG_STATE_HOME/tranche` or `~/.local/state/tranche`.
    restart state_dir: Option<PathBuf> = None, "\"/var/lib/tranche\"";

    /// GPUs to divide.
    ///
    /// `"all"`, or a list of indices and UUIDs such as `["GPU-6b9f...", 3]`; indices may change with the hardware.
    /// Slices are not placed on other GPUs, whose programs are neither watched nor limited.
    restart gpus: ManagedGpus = ManagedGpus::All;

    /// NVML library, as a path or as a name for the loader.
    restart nvml_library: Option<PathBuf> = None, "\"libnvidia-ml.so.1\"";

    /// Library that tenants preload.
    ///
    /// Default: `../lib/tranche/libtranche_preload.so`, relative to the directory of the daemon. A library that is named here
    /// has to be a file of root's that others cannot write, of this release's version of shared memory.
    restart shim: Option<PathBuf> = None, "\"/usr/lib/tranche/libtranche_preload.so\"";

    /// Charge for a context, in MiB, where its cost cannot be measured.
    ///
    /// The default is more than the cost on any model measured so far.
    restart context_reserve_mib: u64 = 512;

    /// Policy for a slice that stays over its cap after a shrink.
    ///
    /// `"report"` shows it and refuses new memory, `"kill"` also kills its largest process, repeatedly, until it is
    /// within.
    live over_cap: OverCapPolicy = OverCapPolicy::Report;

    /// With `over_cap = "kill"`: seconds for which a slice may be over its cap.
    live over_cap_grace_s: u64 = 60;

    /// Host memory in MiB for the contents of all parked slices; 0 forbids parking.
    ///
    /// Default: half of the node's memory. Parking moves the device memory of a slice's processes to host memory.
    live park_memory_mib: Option<u64> = None, "65536";

    /// Drivers with which nothing is parked, by the numbers with which their versions begin.
    ///
    /// With 595.71.05 the end of a restored process took its host down, and no later release of that branch is known to be better. Add others
    /// where parking fails; `[]` trusts all.
    live park_refused_drivers: Vec<DriverRelease> = DriverRelease::known_to_hang();

    /// Multiple of a GPU's memory that the caps of its slices may reach, 1 to 16.
    ///
    /// With 1 no slice rotates. Slices that are created with `--rotate` may reach it together: what has no room beside the others is parked, and has
    /// its stays on the GPU in turn with them.
    live memory_overcommit: Overcommit = Overcommit::NONE;

    /// Treatment of jobs that are preempted or suspended.
    ///
    /// `"stop"` ends their programs, which start over later; `"park"` parks those that can be parked, which continue where
    /// they were on the same GPUs, and stops the others.
    live preemption: PreemptionPolicy = PreemptionPolicy::Stop;

    /// Seconds without use of the GPU after which a slice counts as idle, 2 at least.
    ///
    /// A smaller value counts as 2, since the use is sampled each second. Idle slices are named with their
    /// owner in `tranche list`, `tranche smi`, metrics and the event `slice-idle`.
    live idle_after_s: u64 = 300;

    /// Policy for processes that violate their slice's limits.
    ///
    /// They hold more than they are charged for, compute while their launches should wait, run without the shim or
    /// overwrite the accounting. `"report"` shows them in `tranche smi` and `tranche events`, `"kill"` also kills
    /// processes known to do so.
    restart violations: ViolationsPolicy = ViolationsPolicy::Report;

    /// With `violations = "kill"`: seconds between the finding and the kill.
    restart violations_grace_s: u64 = 10;

    /// Policy for processes outside slices that use a GPU with slices.
    ///
    /// `"report"` shows them, `"refuse"` also keeps slices off a GPU while such a process uses it. They are never
    /// killed.
    restart foreigners: Foreigners = Foreigners::Report;

    /// Restriction of opening GPUs to processes of slices.
    ///
    /// `true`, or a list of the cgroups that may as well, such as `["/system.slice/nvidia-persistenced.service",
    /// "/system.slice/dcgm-exporter.service"]`, of which `true` has the first. Requires root's daemon, all of the
    /// node's `gpus`, cgroup version 2 and Linux 5.12; docs/operations.md has the procedure.
    restart only_slices: OnlySlices = OnlySlices::No;

    /// Seconds for which a GPU has to answer, need no reset and report nothing until its faults are over.
    live fault_quiet_s: u64 = 60;

    /// Ended jobs of each project that are kept with their output; the oldest are deleted first.
    restart ended_jobs_kept: usize = Retention::DEFAULT.most;

    /// Days, of the machine being on, for which ended jobs are kept.
    restart ended_jobs_days: u32 = 30;

    /// Treatment of asynchronous copies and fills.
    ///
    /// `"inside"` delays and charges fills and copies inside GPUs as launches, `"counted"` also those over the bus;
    /// `"uncounted"` lets all of them pass the launch gate.
    restart transfers: Transfers = Transfers::Inside;

    /// Directory in which container runtimes look for CDI documents, or `"off"`.
    ///
    /// One document is written there for each persistent slice. The default of a daemon with another `runtime_dir` is
    /// `"off"`.
    restart cdi_dir: Option<PathBuf> = None, "\"/var/run/cdi\"";

    /// CDI document that describes the node's GPUs.
    ///
    /// Default: the one that NVIDIA's tools wrote in `/var/run/cdi` or `/etc/cdi`, else the daemon's own discovery.
    restart cdi_node: Option<PathBuf> = None, "\"/var/run/cdi/nvidia.yaml\"";

    /// Preload of the shim in containers as well, through their `/etc/ld.so.preload`.
    ///
    /// For images with a driver at an unusual path. Otherwise the shim only replaces the driver's libraries.
    restart cdi_preload: bool = false;

    /// Address of metrics, `/healthz` and `/readyz`.
    ///
    /// The absolute path of a socket, an address with a port such as `"127.0.0.1:9464"` (which also needs
    /// examples/metrics.conf as a drop-in), or `"off"`.
    restart metrics: Option<Address> = None, "\"/run/tranche/metrics.sock\"";

    /// Metrics of slices under the names of NVIDIA's DCGM exporter as well.
    ///
    /// For dashboards that were made for it. Where that exporter runs too, its figures of whole GPUs have the same names.
    restart metrics_dcgm: bool = false;

    /// Log filter, in the syntax of `tracing`.
    live log: String = "info".into();
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

    /// Tests if a reload changes this key; others need a restart.
    pub(crate) fn is_live(key: &str) -> bool {
        Self::KEYS.iter().any(|known| known.name == key && known.effect == KeyEffect::Reload)
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
        let only_slices = (self.gpus != ManagedGpus::All && self.only_slices != OnlySlices::No).then(|| {
            "`only_slices` keeps all of the node's GPUs from other processes, also those that `gpus` leaves alone: have one of \
             the two"
                .into()
        });
        [log, documents, group, only_slices].into_iter().flatten().collect()
    }

    /// Quotas of each user other than root.
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

    /// Budget and policy of parking; the budget is half of the node's memory by default.
    pub(crate) fn park_terms(&self) -> ParkTerms {
        ParkTerms {
            refused: self.park_refused_drivers.clone(),
            budget: self.park_memory_mib.map_or_else(default_budget, Bytes::mib),
            preemption: match self.preemption {
                PreemptionPolicy::Stop => Preemption::Stop,
                PreemptionPolicy::Park => Preemption::Park,
            },
        }
    }

    /// Policy for slices that stay over their caps.
    pub const fn over_cap(&self) -> OverCap {
        match self.over_cap {
            OverCapPolicy::Report => OverCap::Report,
            OverCapPolicy::Kill => OverCap::Kill { grace: Duration::from_secs(self.over_cap_grace_s) },
        }
    }

    /// Policy for processes that violate their slice's limits.
    pub const fn violations(&self) -> ViolationPolicy {
        match self.violations {
            ViolationsPolicy::Report => ViolationPolicy::Report,
            ViolationsPolicy::Kill => {
                ViolationPolicy::Kill { grace: Duration::from_secs(self.violations_grace_s) }
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
///
/// A bare word has to be a level. The parser takes any other for the name of a module, of which everything is logged and
/// of the rest nothing.
pub(crate) fn check_log(filter: &str) -> Result<tracing_subscriber::EnvFilter, String> {
    let words = filter.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    for word in words {
        tracing_subscriber::filter::LevelFilter::from_str(word).map_err(|_| {
            format!(
                "`log` has no level {word:?}: those are off, error, warn, info, debug and trace; a module has one behind \
                 an equals sign, such as tranche_agent=debug"
            )
        })?;
    }
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
