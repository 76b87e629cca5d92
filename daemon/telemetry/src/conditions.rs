//! Conditions that an operator should know as long as they last, set and cleared by kind and subject.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::text::visible_within;

use tranche_linux::clock::now_unix_ms;

/// Largest length of a message in characters, part of which a tenant may have chosen.
const LONGEST_MESSAGE: usize = 1000;
/// Largest number of conditions. The oldest makes room for another, so that tenants cannot exhaust memory.
const MOST: usize = 4096;

/// State of the node that a condition names, by its stable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionKind {
    /// The driver or its list of GPUs cannot be read.
    DriverUnavailable,
    /// A GPU cannot be used.
    GpuUnusable,
    /// A GPU has a fault with this Xid.
    GpuFault(u64),
    /// The cost of a context is assumed, or is being measured.
    ContextCostAssumed,
    /// The main process runs as uid 0.
    RunsAsRoot,
    /// Few processes can attach, because few descriptors may be open.
    FewDescriptors,
    /// Usage regions are files, which a tenant can extend.
    UsageNotSealed,
    /// No jobs are taken.
    JobsUnavailable,
    /// Changes of jobs cannot be saved.
    JobsNotSaved,
    /// Logs of jobs cannot be cut to their budgets.
    JobLogsNotCut,
    /// Stored jobs could not be read, or a project names GPUs that the node does not have.
    JobsNotRestored,
    /// A member of a job cannot be started.
    JobNotStarted,
    /// A slice has not used its GPUs for long.
    SliceIdle,
    /// A member of a job did not end in time.
    JobKilled,
    /// The state file, or a part of it, could not be read.
    StateUnreadable,
    /// Containers cannot use slices, or not as configured.
    ContainersLimited,
    /// Containers cannot use a slice.
    NotInContainers,
    /// A slice is not served.
    NotServed,
    /// Processes of a slice that the state file lacked live in it.
    Adopted,
    /// A slice's processes lost their accounting.
    AccountingLost,
    /// Contexts of a slice take more than was measured.
    ContextCostRaised,
    /// A process has ended, and the driver still lists it.
    StillListed,
    /// A process was killed because its slice was over its cap.
    KilledOverCap,
    /// A tenant extended a usage file.
    UsageExtended,
    /// A tenant truncated a usage region.
    UsageTruncated,
}

/// Thing that a condition concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionSubject {
    /// The node, or one of several things of it, by this name.
    Node(String),
    /// A GPU of the node.
    Gpu(GpuUuid),
    /// A slice, served or not.
    Slice(SliceName),
    /// A device of a slice, by its number there.
    Device(SliceName, usize),
    /// A process of a slice.
    Process(SliceName, HostPid),
}

impl ConditionSubject {
    /// The node as a whole.
    pub const NODE: Self = Self::Node(String::new());

    fn slice(&self) -> Option<&SliceName> {
        match self {
            Self::Slice(slice) | Self::Device(slice, _) | Self::Process(slice, _) => Some(slice),
            Self::Node(_) | Self::Gpu(_) => None,
        }
    }
}

/// A condition that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Time at which it was set, in milliseconds of Unix time.
    pub since_unix_ms: u64,
    /// Sentence for the operator.
    pub message: String,
    /// Position in the order in which conditions were set.
    number: u64,
}

/// The conditions that last.
#[derive(Debug, Default)]
pub struct Conditions(Mutex<StandingCondition>);

#[derive(Debug, Default)]
struct StandingCondition {
    conditions: BTreeMap<(ConditionKind, ConditionSubject), Condition>,
    next: u64,
}

impl Conditions {
    fn standing(&self) -> MutexGuard<'_, StandingCondition> {
        self.0.lock().expect("nothing panics while it holds the conditions")
    }

    /// Sets a condition, and logs it unless its message is the same already.
    pub fn set(&self, kind: ConditionKind, subject: ConditionSubject, message: impl fmt::Display) {
        let message = visible_within(&message.to_string(), LONGEST_MESSAGE);
        let mut standing = self.standing();
        let key = (kind, subject);
        if standing.conditions.get(&key).is_some_and(|known| known.message == message) {
            return;
        }
        tracing::warn!("{message}");
        let number = standing.next;
        standing.next += 1;
        standing.conditions.insert(key, Condition { since_unix_ms: now_unix_ms(), message, number });
        if standing.conditions.len() > MOST {
            let oldest = standing.conditions.iter().min_by_key(|(_, condition)| condition.number);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| standing.conditions.remove(&key));
        }
    }

    /// Clears a condition, if it is set.
    pub fn clear(&self, kind: ConditionKind, subject: ConditionSubject) {
        self.standing().conditions.remove(&(kind, subject));
    }

    /// Clears the conditions of these kinds that concern a slice, its devices or its processes.
    pub fn clear_of_slice(&self, kinds: &[ConditionKind], slice: &SliceName) {
        let is_its = |kind: &ConditionKind, subject: &ConditionSubject| {
            kinds.contains(kind) && subject.slice() == Some(slice)
        };
        self.standing().conditions.retain(|(kind, subject), _| !is_its(kind, subject));
    }

    /// Number of conditions that are set, for metrics.
    pub fn count(&self) -> usize {
        self.standing().conditions.len()
    }

    /// Messages, in the order in which they were set.
    pub fn messages(&self) -> Vec<String> {
        let standing = self.standing();
        let mut conditions: Vec<&Condition> = standing.conditions.values().collect();
        conditions.sort_by_key(|condition| condition.number);
        conditions.into_iter().map(|condition| condition.message.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str) -> SliceName {
        name.parse().unwrap()
    }

    #[test]
    fn condition_is_cleared_by_key_whatever_its_message() {
        let conditions = Conditions::default();
        conditions.set(ConditionKind::NotServed, ConditionSubject::Slice(slice("a")), "slice a: one");
        conditions.set(ConditionKind::NotServed, ConditionSubject::Slice(slice("ab")), "slice ab: two");
        conditions.set(ConditionKind::NotServed, ConditionSubject::Slice(slice("a")), "slice a: three");
        assert_eq!(conditions.messages(), ["slice ab: two", "slice a: three"]);
        conditions.clear(ConditionKind::NotServed, ConditionSubject::Slice(slice("a")));
        assert_eq!(conditions.messages(), ["slice ab: two"]);
    }

    #[test]
    fn conditions_of_a_slice_are_cleared_with_its_devices_and_processes() {
        let conditions = Conditions::default();
        conditions.set(ConditionKind::ContextCostRaised, ConditionSubject::Device(slice("a"), 1), "device");
        conditions.set(
            ConditionKind::StillListed,
            ConditionSubject::Process(slice("a"), HostPid::new(7)),
            "process",
        );
        conditions.set(ConditionKind::UsageExtended, ConditionSubject::Slice(slice("a")), "usage");
        conditions.set(ConditionKind::ContextCostRaised, ConditionSubject::Device(slice("b"), 1), "other");
        conditions
            .clear_of_slice(&[ConditionKind::ContextCostRaised, ConditionKind::StillListed], &slice("a"));
        assert_eq!(conditions.messages(), ["usage", "other"]);
    }

    #[test]
    fn repeated_condition_keeps_its_time_and_place() {
        let conditions = Conditions::default();
        conditions.set(ConditionKind::RunsAsRoot, ConditionSubject::NODE, "one");
        conditions.set(ConditionKind::FewDescriptors, ConditionSubject::NODE, "two");
        conditions.set(ConditionKind::RunsAsRoot, ConditionSubject::NODE, "one");
        assert_eq!(conditions.messages(), ["one", "two"]);
    }

    #[test]
    fn oldest_condition_makes_room() {
        let conditions = Conditions::default();
        for number in 0..MOST + 3 {
            conditions.set(
                ConditionKind::JobsNotRestored,
                ConditionSubject::Node(number.to_string()),
                number,
            );
        }
        assert_eq!((conditions.count(), conditions.messages()[0].as_str()), (MOST, "3"));
    }
}
