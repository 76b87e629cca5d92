//! Slices whose regions are of another version of the layout than this daemon's, as after going back to an earlier one.
//!
//! What stands in such regions cannot be read, so nothing is granted there and nobody is let in. While programs live in
//! one it stays as it is, and what was promised to its slice stays promised; once they have ended it is made anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::slice::ProcessId;
use tranche_shm::{ABI, version};

use crate::agent::{Agent, Core};
use crate::failure::Failure;
use crate::process::Process;

/// Programs that live in regions of another version.
#[derive(Debug)]
pub(crate) struct Others {
    pub(crate) abi: u64,
    pub(crate) alive: Vec<Process>,
}

impl Others {
    /// Those in a slice's directory, if there are any.
    pub(crate) fn in_directory(directory: &Path) -> Option<Self> {
        let (abi, seated) = seated(directory).filter(|(abi, _)| *abi != ABI)?;
        let alive = alive(seated);
        (!alive.is_empty()).then_some(Self { abi, alive })
    }

    /// Why nothing can be done with their slice.
    pub(crate) fn failure(&self, name: &SliceName) -> Failure {
        Failure::OtherVersion { name: name.clone(), abi: self.abi, pids: self.pids() }
    }

    fn pids(&self) -> Vec<HostPid> {
        pids(&self.alive)
    }
}

/// Who has a seat in a slice's regions, of whichever version they are.
fn seated(directory: &Path) -> Option<(u64, BTreeSet<ProcessId>)> {
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
    /// Refuses what cannot be done with a slice in whose regions programs of another version live.
    pub(crate) fn refuse_other_version(&self, core: &Core, name: &SliceName) -> Result<(), Failure> {
        if !core.is_stranded(name) {
            return Ok(());
        }
        match Others::in_directory(&self.layout.slice(name)) {
            Some(others) => Err(others.failure(name)),
            None => Ok(()),
        }
    }

    /// Ends what is kept of a slice that is not served; its programs first, which must be wanted.
    pub(crate) fn delete_unserved(
        &self,
        core: &mut Core,
        name: &SliceName,
        force: bool,
    ) -> Result<Vec<HostPid>, Failure> {
        let mut there = seated(&self.layout.slice(name)).map(|(_, seated)| seated).unwrap_or_default();
        let saved = core.stranded.iter().filter(|saved| saved.slice.name == *name);
        there.extend(saved.flat_map(|saved| &saved.roots));
        let alive = alive(there);
        let pids = pids(&alive);
        if !alive.is_empty() && !force {
            return Err(Failure::InUse { name: name.clone(), pids });
        }
        for process in &alive {
            let _ = process.kill(); // or it has just ended
        }
        core.stranded.retain(|saved| saved.slice.name != *name);
        // Why it was not served.
        core.notes.retain(|note| !note.starts_with(&format!("slice {name} ")));
        let _ = core.node.delete(name); // or it had nothing of a GPU that is here
        self.remove_files(name);
        self.room_appeared();
        core.save(&self.layout)?;
        Ok(pids)
    }
}
