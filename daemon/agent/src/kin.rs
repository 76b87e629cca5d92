//! Who descends from whom, followed once: the next child of the same parent is known by its parent.
//!
//! A process gets another parent only when its own ends. So a line of which everybody still lives, each held by a
//! handle, is what it was when it was followed, and whoever was looked at since then and was a child of its first was
//! the next in it. One question to the kernel answers for all of them; following the line anew takes two for each.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::slice::ProcessId;

use crate::process::{self, Process};

/// Lines that are kept: programs have few parents that start many.
const MOST_LINES: usize = 4;
/// Longer ones are followed anew each time, so that they take no descriptors.
const LONGEST: usize = 8;

/// How long somebody is remembered who descends from no root, and how many are.
const STRANGERS_LAST: Duration = Duration::from_secs(1);
const MOST_STRANGERS: usize = 256;

/// The lines that were followed last, and those who were found to be in none.
#[derive(Debug, Default)]
pub(crate) struct Kin {
    lines: Mutex<VecDeque<Line>>,
    strangers: Mutex<Option<Strangers>>,
}

/// Those who descend from none of these roots. Nobody gets ancestors after birth, so they never will; whoever knocks
/// again and again is followed once.
#[derive(Debug)]
struct Strangers {
    roots: BTreeSet<ProcessId>,
    since: Instant,
    known: BTreeSet<ProcessId>,
}

/// From a process that may have children up to a root, all alive at `since`.
#[derive(Debug)]
struct Line {
    members: Vec<Process>,
    since: Instant,
}

impl Kin {
    /// Whether a process is one of `roots` or descends from one.
    pub(crate) fn descends(&self, who: &Process, roots: &BTreeSet<ProcessId>) -> bool {
        if roots.contains(&who.id) || self.lines().iter().any(|line| line.leads(who, roots)) {
            return true;
        }
        if self.strangers(roots).as_ref().is_some_and(|strangers| strangers.known.contains(&who.id)) {
            return false;
        }
        let descends = self.follow(who, roots);
        if !descends && let Some(strangers) = &mut *self.strangers(roots) {
            strangers.known.insert(who.id);
        }
        descends
    }

    /// Those that are known of these roots, which are none at first and every now and then.
    fn strangers(&self, roots: &BTreeSet<ProcessId>) -> MutexGuard<'_, Option<Strangers>> {
        let mut strangers = self.strangers.lock().expect("nothing panics while it holds the strangers");
        if !strangers.as_ref().is_some_and(|strangers| strangers.are_of(roots)) {
            *strangers =
                Some(Strangers { roots: roots.clone(), since: Instant::now(), known: BTreeSet::new() });
        }
        strangers
    }

    fn follow(&self, who: &Process, roots: &BTreeSet<ProcessId>) -> bool {
        let mut line: Vec<ProcessId> = process::ancestry(who.id.pid).collect();
        let Some(root) = line.iter().position(|id| roots.contains(id)) else { return false };
        line.truncate(root + 1);
        if let Some(line) = Line::of(&line[1..]) {
            self.remember(line);
        }
        true
    }

    fn remember(&self, line: Line) {
        let mut lines = self.lines();
        lines.retain(Line::lives);
        if lines.len() == MOST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Line>> {
        self.lines.lock().expect("nothing panics while it holds the lines")
    }
}

impl Strangers {
    fn are_of(&self, roots: &BTreeSet<ProcessId>) -> bool {
        self.roots == *roots && self.since.elapsed() < STRANGERS_LAST && self.known.len() < MOST_STRANGERS
    }
}

impl Line {
    /// Those of a line that was just followed, if they are few and still alive: then nobody in it has got another parent
    /// meanwhile.
    fn of(ids: &[ProcessId]) -> Option<Self> {
        if ids.is_empty() || ids.len() > LONGEST {
            return None;
        }
        let members: Option<Vec<Process>> = ids.iter().map(|id| Process::reopen(*id).ok()).collect();
        let line = Self { members: members?, since: Instant::now() };
        line.lives().then_some(line)
    }

    fn leads(&self, who: &Process, roots: &BTreeSet<ProcessId>) -> bool {
        let ends = (self.members.first(), self.members.last());
        let (Some(parent), Some(root)) = ends else { return false };
        parent.id.pid == who.parent && self.since <= who.looked && roots.contains(&root.id) && self.lives()
    }

    fn lives(&self) -> bool {
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
    fn a_child_descends_from_us_and_we_not_from_it() {
        let child = sleeper();
        let (kin, me, it) = (Kin::default(), open(std::process::id()), open(child.id()));
        let own = BTreeSet::from([me.id]);
        assert!(kin.descends(&it, &own) && kin.descends(&me, &own));
        assert!(!kin.descends(&me, &BTreeSet::from([it.id])));
        let other = ProcessId { start_time: me.id.start_time + 1, ..me.id };
        assert!(!kin.descends(&me, &BTreeSet::from([other])));
        assert!(!kin.descends(&me, &BTreeSet::from([other])), "and it is remembered");
        assert!(kin.descends(&me, &BTreeSet::from([other, me.id])), "but not of other roots");
        end(child);
    }

    #[test]
    fn a_sibling_is_known_by_its_parent_as_long_as_the_root_is_one() {
        let (first, second) = (sleeper(), sleeper());
        let (kin, me) = (Kin::default(), open(std::process::id()));
        let own = BTreeSet::from([me.id]);
        let known = |who: &Process, roots| kin.lines().iter().any(|line| line.leads(who, roots));
        let before = open(second.id());
        assert!(kin.descends(&open(first.id()), &own));
        assert!(known(&open(second.id()), &own));
        assert!(!known(&before, &own), "it was looked at before the line was known");
        assert!(!known(&open(second.id()), &BTreeSet::new()));
        end(first);
        end(second);
    }

    #[test]
    fn an_orphan_is_not_known_by_the_parent_that_it_had() {
        let shell = "sleep 60 & echo $!; exec sleep 60";
        let mut parent =
            Command::new("sh").args(["-c", shell]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut line)
            .unwrap();
        let child: u32 = line.trim().parse().unwrap();
        let (kin, roots) = (Kin::default(), BTreeSet::from([open(parent.id()).id]));
        assert!(kin.descends(&open(child), &roots));
        let seen = open(child);
        end(parent);
        assert!(!kin.descends(&seen, &roots), "its parent was the root, and has ended");
        seen.kill().unwrap();
    }
}
