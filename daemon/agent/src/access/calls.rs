//! Calls in progress and streams that are followed: how many each user has, and how many of them are worked on at once.
//!
//! Law: operators need no place. Users who may only look wait for each other, and no other user waits for them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};
use tranche_domain::access::Standing;

use super::places::Busy;
use super::{Caller, Gate};
use crate::failure::Failure;

/// Calls of users who may only look that are worked on at a time, of all of them together.
const STRANGERS_AT_WORK: usize = 4;

/// What is counted: its name, what a user can do who has too many, and how many there may be.
#[derive(Clone, Copy, Debug)]
struct Rule {
    what: &'static str,
    remedy: &'static str,
    /// For each user who may only look.
    stranger: usize,
    /// For all of them together.
    strangers: usize,
    /// For each member, beside the requests that may wait for room.
    member: usize,
}

const CALLS: Rule = Rule {
    what: "calls in progress",
    remedy: "wait for one of them",
    stranger: 16,
    strangers: 256,
    member: 64,
};
const FOLLOWERS: Rule =
    Rule { what: "streams that are followed", remedy: "end one", stranger: 8, strangers: 64, member: 64 };

/// How many of a rule's things each user has.
#[derive(Debug)]
struct Counted {
    rule: Rule,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    users: BTreeMap<u32, usize>,
    strangers: usize,
}

/// One of them, given up when dropped.
#[derive(Debug)]
struct Held {
    counted: Arc<Counted>,
    uid: u32,
    stranger: bool,
}

impl Counted {
    fn by(rule: Rule) -> Arc<Self> {
        Arc::new(Self { rule, counts: Mutex::default() })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("nothing panics while it counts")
    }

    /// One more; `more` is what members may have beyond the rule.
    fn take(self: &Arc<Self>, uid: u32, standing: Standing, more: usize) -> Result<Held, Failure> {
        let Rule { what, remedy, stranger, strangers, member } = self.rule;
        let mut counts = self.counts();
        let has = counts.users.get(&uid).copied().unwrap_or_default();
        let most = match standing {
            Standing::Operator => usize::MAX,
            Standing::Member => member.saturating_add(more),
            Standing::Stranger => stranger,
        };
        let is_stranger = standing == Standing::Stranger;
        if has >= most {
            return Err(Failure::TooMany { uid, most, what, remedy });
        }
        if is_stranger && counts.strangers >= strangers {
            return Err(Failure::TooManyTogether { most: strangers, what });
        }
        *counts.users.entry(uid).or_default() += 1;
        counts.strangers += usize::from(is_stranger);
        Ok(Held { counted: Arc::clone(self), uid, stranger: is_stranger })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.counted.counts();
        counts.strangers -= usize::from(self.stranger);
        if let Some(has) = counts.users.get_mut(&self.uid) {
            *has -= 1;
            if *has == 0 {
                counts.users.remove(&self.uid);
            }
        }
    }
}

/// Everything that is counted of calls.
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
            at_work: Arc::new(Semaphore::new(STRANGERS_AT_WORK)),
        }
    }
}

/// A call that is worked on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    _held: Held,
    _busy: Busy,
    _at_work: Option<OwnedSemaphorePermit>,
}

/// A stream that is followed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    _held: Held,
    _busy: Busy,
}

impl Gate {
    /// Begins a call as soon as it may be worked on.
    async fn begin(&self, caller: &Caller) -> Result<Call, Failure> {
        let (uid, standing) = (caller.uid, caller.standing);
        let held = self.budgets.calls.take(uid, standing, self.limits().waiting)?;
        let busy = caller.activity.begin();
        let at_work = match standing {
            Standing::Stranger => Arc::clone(&self.budgets.at_work).acquire_owned().await.ok(),
            Standing::Operator | Standing::Member => None,
        };
        Ok(Call { _held: held, _busy: busy, _at_work: at_work })
    }

    /// Lets a user follow one more stream.
    pub(crate) fn follow(&self, caller: &Caller) -> Result<Follower, Failure> {
        let held = self.budgets.followers.take(caller.uid, caller.standing, 0)?;
        Ok(Follower { _held: held, _busy: caller.activity.begin() })
    }
}

/// Holds calls to their budgets, before they reach a service.
#[derive(Clone, Debug)]
pub(crate) struct Budgeted(pub(crate) Arc<Gate>);

impl<S> Layer<S> for Budgeted {
    type Service = BudgetedService<S>;

    fn layer(&self, inner: S) -> BudgetedService<S> {
        BudgetedService { gate: Arc::clone(&self.0), inner }
    }
}

/// A service behind budgets.
#[derive(Clone, Debug)]
pub(crate) struct BudgetedService<S> {
    gate: Arc<Gate>,
    inner: S,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for BudgetedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let fresh = self.inner.clone();
        // The one that is ready is called.
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            let begun = match request.extensions().get::<Caller>().cloned() {
                Some(caller) => gate.begin(&caller).await,
                None => Err(Failure::CallerUnknown),
            };
            match begun {
                Ok(_call) => ready.call(request).await,
                Err(failure) => Ok(Status::from(failure).into_http()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_who_may_only_look_has_few_calls_and_root_any() {
        let calls = Counted::by(CALLS);
        let take = |uid, standing| calls.take(uid, standing, 0);
        let mine: Vec<_> = (0..100).filter_map(|_| take(7, Standing::Stranger).ok()).collect();
        assert_eq!(mine.len(), CALLS.stranger);
        let refused = take(7, Standing::Stranger).unwrap_err().to_string();
        assert!(refused.contains("uid 7 has 16 calls in progress"), "{refused}");
        let root: Vec<_> = (0..1000).filter_map(|_| take(0, Standing::Operator).ok()).collect();
        assert_eq!(root.len(), 1000);
        drop((mine, root));
        assert!(calls.counts().users.is_empty());
    }

    #[test]
    fn many_users_together_leave_members_their_calls() {
        let calls = Counted::by(CALLS);
        let many: Vec<_> = (1000..2000)
            .flat_map(|uid| (0..4).map(move |_| uid))
            .filter_map(|uid| calls.take(uid, Standing::Stranger, 0).ok())
            .collect();
        assert_eq!(many.len(), CALLS.strangers);
        let refused = calls.take(7, Standing::Stranger, 0).unwrap_err().to_string();
        assert!(refused.contains("256 calls in progress"), "{refused}");
        assert!(calls.take(7, Standing::Member, 0).is_ok());
    }

    #[test]
    fn member_has_calls_beside_those_that_wait() {
        let calls = Counted::by(CALLS);
        let mine: Vec<_> = (0..1000).filter_map(|_| calls.take(7, Standing::Member, 128).ok()).collect();
        assert_eq!(mine.len(), CALLS.member + 128);
    }
}
