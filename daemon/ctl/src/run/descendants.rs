//! Descendants of this process.

use std::collections::{HashMap, HashSet};
use std::fmt;

use nix::unistd::Pid;

/// A live descendant of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descendant {
    pub(super) pid: Pid,
    pub(super) command: String,
}

impl fmt::Display for Descendant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.command, self.pid)
    }
}

/// All live descendants, by pid. Processes that end meanwhile, or are unreadable, are left out.
pub(super) fn living() -> Vec<Descendant> {
    let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
    let stats = processes.filter_map(|process| process.ok()?.stat().ok()).filter(|stat| stat.state != 'Z');
    let table: HashMap<i32, (i32, String)> = stats.map(|stat| (stat.pid, (stat.ppid, stat.comm))).collect();
    descend(&table, Pid::this().as_raw())
}

/// Entries of `table` (pid to parent and command) whose ancestry leads to `ancestor`.
fn descend(table: &HashMap<i32, (i32, String)>, ancestor: i32) -> Vec<Descendant> {
    let mut family = HashSet::from([ancestor]);
    // A table read while processes are created and reparented may contain a cycle, so each is visited once.
    loop {
        let found: Vec<_> = table
            .iter()
            .filter(|(pid, (parent, _))| family.contains(parent) && !family.contains(*pid))
            .map(|(&pid, _)| pid)
            .collect();
        if found.is_empty() {
            break;
        }
        family.extend(found);
    }
    family.remove(&ancestor);
    let mut pids: Vec<_> = family.into_iter().collect();
    pids.sort_unstable();
    pids.into_iter()
        .map(|pid| Descendant { pid: Pid::from_raw(pid), command: table[&pid].1.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_include_grandchildren_only_of_ancestor() {
        let table = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 7), (7, 6)];
        let table = table.map(|(pid, parent)| (pid, (parent, format!("p{pid}")))).into();
        let pids: Vec<_> = descend(&table, 2).iter().map(ToString::to_string).collect();
        assert_eq!(pids, ["p3 (3)", "p4 (4)"]);
        assert_eq!(descend(&table, 9), []);
    }

    #[test]
    fn live_child_is_listed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let seen = living().iter().any(|one| one.pid.as_raw().cast_unsigned() == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen);
    }
}
