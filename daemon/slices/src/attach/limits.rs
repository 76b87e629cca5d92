//! Connection limits of a slice and of each of its processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use nix::sys::resource::{Resource, getrlimit};
use tranche_domain::slice::ProcessId;
use tranche_shm::MAX_SLOTS;

/// Largest number of connections to one slice: one for each slot, and some for new processes.
const MAX_CONNECTIONS: usize = MAX_SLOTS + 64;
/// A slice may use 1/16 of the daemon's file descriptors for connections. With the other descriptors of each process
/// that is a quarter, so no slice can exhaust them.
const DESCRIPTOR_FRACTION: u64 = 16;
/// Largest number of connections of one process, which needs one.
const MAX_PER_PROCESS: usize = 8;

/// Connection limit of a slice; RLIMIT_NOFILE may be lowered at run time.
pub(super) fn most_connections() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(files, _)| files);
    usize::try_from(files / DESCRIPTOR_FRACTION).unwrap_or(usize::MAX).min(MAX_CONNECTIONS)
}

/// Number of connections of each process.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionCounts(Arc<Mutex<BTreeMap<ProcessId, usize>>>);

/// Permit for one connection of a process, released when dropped.
pub(super) struct Permit {
    counts: ConnectionCounts,
    who: ProcessId,
}

impl ConnectionCounts {
    /// Acquires a permit, unless the process is at its limit.
    pub(super) fn permit(&self, who: ProcessId) -> Option<Permit> {
        let mut counts = self.counts();
        let count = counts.entry(who).or_default();
        *count = Some(*count + 1).filter(|count| *count <= MAX_PER_PROCESS)?;
        Some(Permit { counts: self.clone(), who })
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<ProcessId, usize>> {
        self.0.lock().expect("nothing panics while it counts")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.counts.counts();
        if let Some(count) = counts.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::id::HostPid;

    #[test]
    fn process_connections_are_bounded_and_released() {
        let (counts, who) = (ConnectionCounts::default(), ProcessId { pid: HostPid::new(7), start_time: 1 });
        let places: Vec<_> = (0..20).filter_map(|_| counts.permit(who)).collect();
        assert_eq!(places.len(), MAX_PER_PROCESS);
        assert!(counts.permit(ProcessId { start_time: 2, ..who }).is_some(), "another has its own");
        drop(places);
        assert!(counts.permit(who).is_some() && counts.counts().is_empty());
    }
}
