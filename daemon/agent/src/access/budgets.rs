//! Limits on concurrent calls and followed streams, for each user and in total.
//!
//! Invariant: operators need no permit. Calls of read-only users wait for each other, and no other user's call waits
//! for theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tranche_domain::access::PeerRole;

use super::caller::Caller;
use super::connections::Busy;
use crate::failure::{RequestFailure, Requested};

/// Calls of read-only users that run concurrently, in total.
const MAX_READ_ONLY_CALLS: usize = 4;

/// Limits of one resource, with its name and a remedy for error messages.
#[derive(Clone, Copy, Debug)]
struct BudgetRule {
    what: &'static str,
    remedy: &'static str,
    /// Limit for each read-only user.
    read_only: usize,
    /// Limit for all read-only users together.
    read_only_total: usize,
    /// Limit for each member, in addition to the requests that may wait for capacity.
    member: usize,
}

const CALLS: BudgetRule = BudgetRule {
    what: "calls in progress",
    remedy: "wait for one of them",
    read_only: 16,
    read_only_total: 256,
    member: 64,
};
const FOLLOWERS: BudgetRule = BudgetRule {
    what: "streams that are followed",
    remedy: "end one",
    read_only: 8,
    read_only_total: 64,
    member: 64,
};

/// Number of a resource's units that each user holds.
#[derive(Debug)]
struct Counted {
    rule: BudgetRule,
    counts: Mutex<CallCounts>,
}

#[derive(Debug, Default)]
struct CallCounts {
    users: BTreeMap<u32, usize>,
    read_only_total: usize,
}

/// One unit, released when dropped.
#[derive(Debug)]
struct HeldUnit {
    counted: Arc<Counted>,
    uid: u32,
    read_only: bool,
}

impl Counted {
    fn by(rule: BudgetRule) -> Arc<Self> {
        Arc::new(Self { rule, counts: Mutex::default() })
    }

    fn counts(&self) -> MutexGuard<'_, CallCounts> {
        self.counts.lock().expect("nothing panics while it counts")
    }

    /// Acquires a unit; `more` raises the limit of members.
    fn take(self: &Arc<Self>, uid: u32, standing: PeerRole, more: usize) -> Requested<HeldUnit> {
        let BudgetRule { what, remedy, read_only, read_only_total, member } = self.rule;
        let mut counts = self.counts();
        let has = counts.users.get(&uid).copied().unwrap_or_default();
        let most = match standing {
            PeerRole::Operator => usize::MAX,
            PeerRole::Member => member.saturating_add(more),
            PeerRole::Stranger => read_only,
        };
        let is_read_only = standing == PeerRole::Stranger;
        if has >= most {
            return Err(RequestFailure::TooMany { uid, most, what, remedy });
        }
        if is_read_only && counts.read_only_total >= read_only_total {
            return Err(RequestFailure::TooManyTogether { most: read_only_total, what });
        }
        *counts.users.entry(uid).or_default() += 1;
        counts.read_only_total += usize::from(is_read_only);
        Ok(HeldUnit { counted: Arc::clone(self), uid, read_only: is_read_only })
    }
}

impl Drop for HeldUnit {
    fn drop(&mut self) {
        let mut counts = self.counted.counts();
        counts.read_only_total -= usize::from(self.read_only);
        if let Some(has) = counts.users.get_mut(&self.uid) {
            *has -= 1;
            if *has == 0 {
                counts.users.remove(&self.uid);
            }
        }
    }
}

/// Counters of calls and streams.
#[derive(Debug)]
pub(super) struct Budgets {
    calls: Arc<Counted>,
    followers: Arc<Counted>,
    at_work: Arc<Semaphore>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            calls: Counted::by(CALLS),
            followers: Counted::by(FOLLOWERS),
            at_work: Arc::new(Semaphore::new(MAX_READ_ONLY_CALLS)),
        }
    }
}

impl Budgets {
    /// Acquires a unit for a call, and waits until it may run.
    /// A member's limit is raised by `waiting`, the requests that may wait for capacity.
    pub(super) async fn begin(&self, caller: &Caller, waiting: usize) -> Requested<RunningCall> {
        let (uid, standing) = (caller.uid, caller.standing);
        let held = self.calls.take(uid, standing, waiting)?;
        let busy = caller.activity.begin();
        let at_work = match standing {
            PeerRole::Stranger => Arc::clone(&self.at_work).acquire_owned().await.ok(),
            PeerRole::Operator | PeerRole::Member => None,
        };
        Ok(RunningCall { _held: held, _busy: busy, _at_work: at_work })
    }

    /// Acquires a unit for a stream.
    pub(super) fn follow(&self, caller: &Caller) -> Requested<Follower> {
        let held = self.followers.take(caller.uid, caller.standing, 0)?;
        Ok(Follower { _held: held, _busy: caller.activity.begin() })
    }
}

/// A running call, until dropped.
#[derive(Debug)]
pub(crate) struct RunningCall {
    _held: HeldUnit,
    _busy: Busy,
    _at_work: Option<OwnedSemaphorePermit>,
}

/// A followed stream, until dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    _held: HeldUnit,
    _busy: Busy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_user_has_few_calls() {
        let calls = Counted::by(CALLS);
        let take = |uid, standing| calls.take(uid, standing, 0);
        let mine: Vec<_> = (0..100).filter_map(|_| take(7, PeerRole::Stranger).ok()).collect();
        assert_eq!(mine.len(), CALLS.read_only);
        let refused = take(7, PeerRole::Stranger).unwrap_err().to_string();
        assert!(refused.contains("uid 7 has 16 calls in progress"), "{refused}");
        let root: Vec<_> = (0..1000).filter_map(|_| take(0, PeerRole::Operator).ok()).collect();
        assert_eq!(root.len(), 1000);
        drop((mine, root));
        assert!(calls.counts().users.is_empty());
    }

    #[test]
    fn read_only_users_leave_members_their_calls() {
        let calls = Counted::by(CALLS);
        let many: Vec<_> = (1000..2000)
            .flat_map(|uid| (0..4).map(move |_| uid))
            .filter_map(|uid| calls.take(uid, PeerRole::Stranger, 0).ok())
            .collect();
        assert_eq!(many.len(), CALLS.read_only_total);
        let refused = calls.take(7, PeerRole::Stranger, 0).unwrap_err().to_string();
        assert!(refused.contains("256 calls in progress"), "{refused}");
        assert!(calls.take(7, PeerRole::Member, 0).is_ok());
    }

    #[test]
    fn members_have_calls_beside_waiting_ones() {
        let calls = Counted::by(CALLS);
        let mine: Vec<_> = (0..1000).filter_map(|_| calls.take(7, PeerRole::Member, 128).ok()).collect();
        assert_eq!(mine.len(), CALLS.member + 128);
    }
}
