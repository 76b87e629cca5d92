//! How many connections a slice and a process may have, so that nobody keeps the others from being heard.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use nix::sys::resource::{Resource, getrlimit};
use tranche_domain::slice::ProcessId;
use tranche_shm::MAX_SLOTS;

/// The most connections to one slice: a seat each, and room for those who come anew.
const MOST_CONNECTIONS: usize = MAX_SLOTS + 64;
/// Of so many files that the daemon may open, one may be a connection of one slice. With what else each of them takes
/// that is a quarter: no slice alone keeps the others from being heard.
const FILES_EACH: u64 = 16;
/// The most connections of one process: it needs one.
const MOST_EACH: usize = 8;

/// How many a slice may have. The limit may be lowered while we run.
pub(super) fn most_connections() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(files, _)| files);
    usize::try_from(files / FILES_EACH).unwrap_or(usize::MAX).min(MOST_CONNECTIONS)
}

/// How many connections each process has.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd(Arc<Mutex<BTreeMap<ProcessId, usize>>>);

/// One connection of a process; given up when dropped.
pub(super) struct Place {
    crowd: Crowd,
    who: ProcessId,
}

impl Crowd {
    /// One more, unless it has enough.
    pub(super) fn place(&self, who: ProcessId) -> Option<Place> {
        let mut counts = self.counts();
        let count = counts.entry(who).or_default();
        *count = Some(*count + 1).filter(|count| *count <= MOST_EACH)?;
        Some(Place { crowd: self.clone(), who })
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<ProcessId, usize>> {
        self.0.lock().expect("nothing panics while it counts")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts();
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
    fn a_process_has_only_so_many_connections_and_gets_them_back() {
        let (crowd, who) = (Crowd::default(), ProcessId { pid: HostPid::new(7), start_time: 1 });
        let places: Vec<_> = (0..20).filter_map(|_| crowd.place(who)).collect();
        assert_eq!(places.len(), MOST_EACH);
        assert!(crowd.place(ProcessId { start_time: 2, ..who }).is_some(), "another has its own");
        drop(places);
        assert!(crowd.place(who).is_some() && crowd.counts().is_empty());
    }
}
