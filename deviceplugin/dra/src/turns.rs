//! Turns: one piece of work at a time on each claim, none beside the search for orphaned slices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Locked, MutexGuard, PoisonError, Weak};

use tokio::sync::{Mutex, OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Exclusion of work on one claim. Work on different claims has turns at the same time: the daemon's ledger decides
/// between them.
#[derive(Debug, Default)]
pub(crate) struct ClaimTurns {
    /// Held for reading by work on claims.
    all: RwLock<()>,
    claims: Locked<BTreeMap<String, Weak<Mutex<()>>>>,
}

/// A turn at one claim, until it is dropped.
#[derive(Debug)]
pub(crate) struct ClaimTurn<'a> {
    _all: RwLockReadGuard<'a, ()>,
    _claim: OwnedMutexGuard<()>,
}

impl ClaimTurns {
    /// Waits for a turn at the claim with this uid.
    pub(crate) async fn at(&self, uid: &str) -> ClaimTurn<'_> {
        let claim = self.claim(uid);
        // In this order: work that waits for its claim does not keep the others from theirs.
        let claim = claim.lock_owned().await;
        ClaimTurn { _all: self.all.read().await, _claim: claim }
    }

    /// Waits until no work on any claim is under way, and holds off further work.
    pub(crate) async fn at_all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }

    fn claim(&self, uid: &str) -> Arc<Mutex<()>> {
        let mut claims = self.claims();
        claims.retain(|_, claim| claim.strong_count() > 0);
        if let Some(claim) = claims.get(uid).and_then(Weak::upgrade) {
            return claim;
        }
        let claim = Arc::default();
        claims.insert(uid.to_owned(), Arc::downgrade(&claim));
        claim
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Mutex<()>>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_ready(future: impl Future) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn claims_exclude_themselves_alone() {
        let turns = ClaimTurns::default();
        let first = turns.at("a").await;
        assert!(is_ready(turns.at("b")), "another claim waits");
        assert!(!is_ready(turns.at("a")), "two turns at one claim");
        drop(first);
        assert!(is_ready(turns.at("a")));
        drop(turns.at("c").await);
        assert_eq!(turns.claims().len(), 1, "turns that are over are kept");
    }

    #[tokio::test]
    async fn search_excludes_every_claim() {
        let turns = ClaimTurns::default();
        let turn = turns.at("a").await;
        assert!(!is_ready(turns.at_all()));
        drop(turn);
        let all = turns.at_all().await;
        assert!(!is_ready(turns.at("a")));
        drop(all);
        assert!(is_ready(turns.at("a")));
    }
}
