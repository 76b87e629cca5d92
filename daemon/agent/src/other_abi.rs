//! Slices whose regions have another ABI version than this daemon's, as after a downgrade.
//!
//! Such regions cannot be interpreted, so nothing is granted in them and no process is admitted. While processes are
//! attached to one, it stays as it is and its capacity stays committed; once they have ended, it is created again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::slice::ProcessId;
use tranche_shm::{ABI, version};

use crate::agent::{Agent, Core};
use crate::failure::{RequestFailure, Requested};
use tranche_linux::process::Process;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Processes attached to regions of another ABI version.
#[derive(Debug)]
pub(crate) struct OtherAbi {
    pub(crate) abi: u64,
    pub(crate) alive: Vec<Process>,
}

impl OtherAbi {
    /// Processes attached to the regions in a slice's directory.
    /// `None` if the regions have this ABI version or no process is alive.
    pub(crate) fn in_directory(directory: &Path) -> Option<Self> {
        let (abi, attached) = attached(directory).filter(|(abi, _)| *abi != ABI)?;
        let alive = alive(attached);
        (!alive.is_empty()).then_some(Self { abi, alive })
    }

    /// The error for requests that concern their slice.
    pub(crate) fn failure(&self, name: &SliceName) -> RequestFailure {
        RequestFailure::OtherVersion { name: name.clone(), abi: self.abi, pids: self.pids() }
    }

    fn pids(&self) -> Vec<HostPid> {
        pids(&self.alive)
    }
}

/// ABI version and attached processes of a slice's regions, whatever the version.
fn attached(directory: &Path) -> Option<(u64, BTreeSet<ProcessId>)> {
    let bytes = fs::read(directory.join("control")).ok()?;
    let word = |bytes: &[u8]| bytes.iter().rfold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let abi = version::of(&words)?;
    let id = |pid, start_time| ProcessId { pid: HostPid::new(pid), start_time };
    let ids = version::identities(&words).map(|identity| id(identity.pid, identity.start_time));
    Some((abi, ids.collect()))
}

fn alive(ids: BTreeSet<ProcessId>) -> Vec<Process> {
    ids.into_iter().filter_map(|id| Process::reopen(id).ok()).collect()
}

fn pids(processes: &[Process]) -> Vec<HostPid> {
    processes.iter().map(|process| process.id.pid).collect()
}

impl Agent {
    /// Fails if processes of another ABI version are attached to the slice.
    pub(crate) fn refuse_other_version(&self, core: &Core, name: &SliceName) -> Requested<()> {
        if !core.is_stranded(name) {
            return Ok(());
        }
        match OtherAbi::in_directory(&self.layout.slice(name)) {
            Some(other) => Err(other.failure(name)),
            None => Ok(()),
        }
    }

    /// Deletes a slice that is not being served. With `force`, kills its processes first; without, fails if there are
    /// any.
    pub(crate) fn delete_unserved(
        &self,
        core: &mut Core,
        name: &SliceName,
        force: bool,
    ) -> Requested<Vec<HostPid>> {
        let mut ids = attached(&self.layout.slice(name)).map(|(_, attached)| attached).unwrap_or_default();
        let saved = core.stranded.iter().filter(|saved| saved.slice.name == *name);
        ids.extend(saved.flat_map(|saved| &saved.roots));
        let alive = alive(ids);
        let pids = pids(&alive);
        if !alive.is_empty() && !force {
            return Err(RequestFailure::InUse { name: name.clone(), pids });
        }
        for process in &alive {
            let _ = process.kill(); // an error means that it has just ended
        }
        core.stranded.retain(|saved| saved.slice.name != *name);
        self.telemetry.conditions.clear(Condition::NotServed, ConditionSubject::Slice(name.clone()));
        let _ = core.node.delete(name); // fails if it had no part of a present GPU
        self.remove_files(name);
        self.notify_capacity();
        core.save()?;
        Ok(pids)
    }
}
