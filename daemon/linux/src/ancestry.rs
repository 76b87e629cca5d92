//! Cache of process ancestry: siblings of a process that was resolved are recognised by their parent.
//!
//! A process gets another parent only when its own ends. A chain of processes in which each is alive and held by a
//! pidfd is therefore still the chain that was read, and a process that was inspected since then and whose parent is
//! the chain's first entry extends it. One `poll` call answers for the whole chain; reading `/proc` again takes two
//! files for each entry.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::slice::ProcessId;

use crate::process::{self, Process};

/// Cached chains; few parents start many processes at once.
const MAX_CHAINS: usize = 4;
/// Longest chain that is cached: each entry takes a file descriptor.
const MAX_LENGTH: usize = 8;

/// Age at which the set of unrelated processes is dropped, and its largest size.
const UNRELATED_LIFETIME: Duration = Duration::from_secs(1);
const MAX_UNRELATED: usize = 256;

/// Recently resolved chains, and processes found to have no root among their ancestors.
#[derive(Debug, Default)]
pub struct AncestryCache {
    chains: Mutex<VecDeque<Chain>>,
    unrelated: Mutex<Option<Unrelated>>,
}

/// Negative cache for one set of roots. A process gains no ancestors after its creation, so an entry stays valid; a
/// process that connects repeatedly is resolved once.
#[derive(Debug)]
struct Unrelated {
    roots: BTreeSet<ProcessId>,
    since: Instant,
    known: BTreeSet<ProcessId>,
}

/// Chain from a possible parent up to a root; all entries were alive at `since`.
#[derive(Debug)]
struct Chain {
    members: Vec<Process>,
    since: Instant,
}

impl AncestryCache {
    /// Returns true if the process is one of `roots` or descends from one.
    pub fn descends(&self, process: &Process, roots: &BTreeSet<ProcessId>) -> bool {
        if roots.contains(&process.id) || self.chains().iter().any(|chain| chain.extends_to(process, roots)) {
            return true;
        }
        if self.unrelated(roots).as_ref().is_some_and(|unrelated| unrelated.known.contains(&process.id)) {
            return false;
        }
        let descends = self.follow(process, roots);
        if !descends && let Some(unrelated) = &mut *self.unrelated(roots) {
            unrelated.known.insert(process.id);
        }
        descends
    }

    /// Negative cache for these roots; empty at first, and again once it is too old or too large.
    fn unrelated(&self, roots: &BTreeSet<ProcessId>) -> MutexGuard<'_, Option<Unrelated>> {
        let mut unrelated = self.unrelated.lock().expect("nothing panics while it holds the strangers");
        if !unrelated.as_ref().is_some_and(|unrelated| unrelated.is_valid_for(roots)) {
            *unrelated =
                Some(Unrelated { roots: roots.clone(), since: Instant::now(), known: BTreeSet::new() });
        }
        unrelated
    }

    fn follow(&self, process: &Process, roots: &BTreeSet<ProcessId>) -> bool {
        let mut chain = Vec::new();
        let mut line = process::ancestry(process.id.pid).inspect(|id| chain.push(*id));
        if !line.any(|id| roots.contains(&id)) {
            return false;
        }
        if let Some(chain) = Chain::of(&chain[1..]) {
            self.insert(chain);
        }
        true
    }

    fn insert(&self, chain: Chain) {
        let mut chains = self.chains();
        chains.retain(Chain::is_alive);
        if chains.len() == MAX_CHAINS {
            chains.pop_front();
        }
        chains.push_back(chain);
    }

    fn chains(&self) -> MutexGuard<'_, VecDeque<Chain>> {
        self.chains.lock().expect("nothing panics while it holds the lines")
    }
}

impl Unrelated {
    fn is_valid_for(&self, roots: &BTreeSet<ProcessId>) -> bool {
        self.roots == *roots && self.since.elapsed() < UNRELATED_LIFETIME && self.known.len() < MAX_UNRELATED
    }
}

impl Chain {
    /// Opens the processes of a chain that was just read. `None` if there are too many, or if one has ended: the
    /// processes below it may have another parent by now.
    fn of(ids: &[ProcessId]) -> Option<Self> {
        if ids.is_empty() || ids.len() > MAX_LENGTH {
            return None;
        }
        let members: Option<Vec<Process>> = ids.iter().map(|id| Process::reopen(*id).ok()).collect();
        let chain = Self { members: members?, since: Instant::now() };
        chain.is_alive().then_some(chain)
    }

    fn extends_to(&self, process: &Process, roots: &BTreeSet<ProcessId>) -> bool {
        let ends = (self.members.first(), self.members.last());
        let (Some(parent), Some(root)) = ends else { return false };
        parent.id.pid == process.parent
            && self.since <= process.looked
            && roots.contains(&root.id)
            && self.is_alive()
    }

    fn is_alive(&self) -> bool {
        !process::any_ended(&self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use tranche_domain::id::HostPid;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn open(pid: u32) -> Process {
        Process::open(HostPid::new(pid)).unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn child_descends_from_its_parent_only() {
        let child = sleeper();
        let (cache, me, it) = (AncestryCache::default(), open(std::process::id()), open(child.id()));
        let own = BTreeSet::from([me.id]);
        assert!(cache.descends(&it, &own) && cache.descends(&me, &own));
        assert!(!cache.descends(&me, &BTreeSet::from([it.id])));
        let other = ProcessId { start_time: me.id.start_time + 1, ..me.id };
        assert!(!cache.descends(&me, &BTreeSet::from([other])));
        assert!(!cache.descends(&me, &BTreeSet::from([other])), "and it is remembered");
        assert!(cache.descends(&me, &BTreeSet::from([other, me.id])), "but not of other roots");
        end(child);
    }

    #[test]
    fn sibling_is_resolved_from_a_cached_chain() {
        let (first, second) = (sleeper(), sleeper());
        let (cache, me) = (AncestryCache::default(), open(std::process::id()));
        let own = BTreeSet::from([me.id]);
        let known =
            |process: &Process, roots| cache.chains().iter().any(|chain| chain.extends_to(process, roots));
        let before = open(second.id());
        assert!(cache.descends(&open(first.id()), &own));
        assert!(known(&open(second.id()), &own));
        assert!(!known(&before, &own), "it was looked at before the line was known");
        assert!(!known(&open(second.id()), &BTreeSet::new()));
        end(first);
        end(second);
    }

    #[test]
    fn orphan_is_not_resolved_by_its_former_parent() {
        let shell = "sleep 60 & echo $!; exec sleep 60";
        let mut parent =
            Command::new("sh").args(["-c", shell]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut chain = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut chain)
            .unwrap();
        let child: u32 = chain.trim().parse().unwrap();
        let (cache, roots) = (AncestryCache::default(), BTreeSet::from([open(parent.id()).id]));
        assert!(cache.descends(&open(child), &roots));
        let inspected = open(child);
        end(parent);
        assert!(!cache.descends(&inspected, &roots), "its parent was the root, and has ended");
        inspected.kill().unwrap();
    }
}
