//! Connections to the gRPC socket: how many each user has, and which of them makes room for another.
//!
//! Law: a user who holds connections and does nothing with them keeps no other user out, and costs the daemon no more
//! than a few of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tranche_domain::access::Standing;

/// Connections that all users who may only look have together: with subordinate uids one person can be many, and what
/// they take must not be missing for members.
pub(super) const STRANGERS_CONNECTIONS: usize = 256;
/// Connections of each of them.
pub(super) const STRANGER_CONNECTIONS: usize = 32;
/// Connections that each of them may open in a burst, and the time after which one more may be opened.
const BURST: u32 = 64;
const REFILL: Duration = Duration::from_millis(10);
/// Users whose pace is known; more than that share one.
const MOST_PACES: usize = 4096;

/// Calls in progress on a connection, and when the last one ended.
#[derive(Debug)]
pub(crate) struct Activity {
    calls: AtomicUsize,
    last: AtomicU64,
    since: Instant,
}

impl Activity {
    fn now(since: Instant) -> Self {
        let activity = Self { calls: AtomicUsize::new(0), last: AtomicU64::new(0), since };
        activity.touch();
        activity
    }

    fn touch(&self) {
        let now = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// A call, until what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    fn is_idle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::now(Instant::now())
    }
}

/// A call in progress on a connection.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Every connection that has been let in.
#[derive(Debug)]
pub(super) struct Connections {
    since: Instant,
    held: Mutex<Held>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { since: Instant::now(), held: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    connections: BTreeMap<u64, Connection>,
    users: BTreeMap<u32, usize>,
    strangers: usize,
    paces: BTreeMap<u32, Pace>,
}

#[derive(Debug)]
struct Connection {
    uid: u32,
    standing: Standing,
    activity: Arc<Activity>,
    evict: oneshot::Sender<()>,
}

/// How many connections a user may open at once now.
#[derive(Clone, Copy, Debug)]
struct Pace {
    left: u32,
    since: Duration,
}

impl Pace {
    fn refill(&mut self, now: Duration) {
        let more = now.saturating_sub(self.since).as_millis() / REFILL.as_millis();
        if more > 0 {
            self.left = self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(BURST);
            self.since = now;
        }
    }
}

/// One connection's place, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    id: u64,
}

/// A connection that is let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) place: Place,
    pub(super) activity: Arc<Activity>,
    /// Resolves when the place is given to another connection.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl Connections {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it counts")
    }

    /// Whether a user may open one more connection now. Costs next to nothing, and comes before all else.
    pub(super) fn is_within_pace(&self, uid: u32, standing: Standing) -> bool {
        standing != Standing::Stranger || self.held().is_within_pace(uid, self.since.elapsed())
    }

    /// Lets a connection in. Where a user who may only look has as many as they may, the one of theirs that has been idle
    /// for longest makes room; where all such users together have, one of the user who has most.
    pub(super) fn admit(self: &Arc<Self>, uid: u32, standing: Standing, most: usize) -> Option<Admitted> {
        let mut held = self.held();
        let has = held.users.get(&uid).copied().unwrap_or_default();
        let made_room = match standing {
            Standing::Operator => true,
            Standing::Member => has < most,
            Standing::Stranger if has >= most.min(STRANGER_CONNECTIONS) => held.evict_idle(uid),
            Standing::Stranger if held.strangers >= STRANGERS_CONNECTIONS => {
                held.largest_stranger().is_some_and(|largest| held.evict_idle(largest))
            }
            Standing::Stranger => true,
        };
        if !made_room {
            return None;
        }
        let (evict, evicted) = oneshot::channel();
        let (id, activity) = (held.next, Arc::new(Activity::now(self.since)));
        held.next += 1;
        held.connections.insert(id, Connection { uid, standing, activity: Arc::clone(&activity), evict });
        *held.users.entry(uid).or_default() += 1;
        held.strangers += usize::from(standing == Standing::Stranger);
        Some(Admitted { place: Place { connections: Arc::clone(self), id }, activity, evicted })
    }
}

impl Held {
    fn is_within_pace(&mut self, uid: u32, now: Duration) -> bool {
        if self.paces.len() >= MOST_PACES {
            self.paces.retain(|_, pace| {
                pace.refill(now);
                pace.left < BURST
            });
        }
        let shared = self.paces.len() >= MOST_PACES && !self.paces.contains_key(&uid);
        let uid = if shared { u32::MAX } else { uid };
        let pace = self.paces.entry(uid).or_insert(Pace { left: BURST, since: now });
        pace.refill(now);
        let left = pace.left.checked_sub(1);
        pace.left = left.unwrap_or(0);
        left.is_some()
    }

    /// The user who may only look and has most connections.
    fn largest_stranger(&self) -> Option<u32> {
        let strangers = self.connections.values().filter(|one| one.standing == Standing::Stranger);
        strangers.map(|one| one.uid).max_by_key(|uid| self.users.get(uid))
    }

    /// Closes the connection of a user that has been idle for longest; whether there was one.
    fn evict_idle(&mut self, uid: u32) -> bool {
        let idle = self.connections.iter().filter(|(_, one)| one.uid == uid && one.activity.is_idle());
        let longest = idle.min_by_key(|(_, one)| one.activity.last.load(Ordering::Relaxed));
        let Some(connection) = longest.map(|(id, _)| *id).and_then(|id| self.remove(id)) else {
            return false;
        };
        let _ = connection.evict.send(()); // or it has just ended
        true
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        self.strangers -= usize::from(connection.standing == Standing::Stranger);
        if let Some(has) = self.users.get_mut(&connection.uid) {
            *has -= 1;
            if *has == 0 {
                self.users.remove(&connection.uid);
            }
        }
        Some(connection)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.held().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 40;

    fn fill(connections: &Arc<Connections>, uid: u32, standing: Standing, count: usize) -> Vec<Admitted> {
        (0..count).filter_map(|_| connections.admit(uid, standing, MOST)).collect()
    }

    fn open(admitted: &mut [Admitted]) -> usize {
        admitted.iter_mut().map(|one| one.evicted.try_recv()).filter(Result::is_err).count()
    }

    #[test]
    fn member_has_its_connections_and_gets_them_back() {
        let connections = Arc::default();
        let members = fill(&connections, 7, Standing::Member, 50);
        assert_eq!(members.len(), MOST);
        assert!(connections.admit(8, Standing::Member, MOST).is_some());
        assert_eq!(fill(&connections, 0, Standing::Operator, 1000).len(), 1000);
        drop(members);
        assert!(connections.admit(7, Standing::Member, MOST).is_some());
        assert!(connections.held().users.is_empty() && connections.held().connections.is_empty());
    }

    #[test]
    fn idle_connection_makes_room_for_the_next() {
        let connections = Arc::default();
        let mut silent = fill(&connections, 7, Standing::Stranger, 500);
        assert_eq!(silent.len(), 500, "each is let in");
        assert_eq!(open(&mut silent), STRANGER_CONNECTIONS);
        assert!(silent[499].evicted.try_recv().is_err(), "the last is open");
    }

    #[test]
    fn connection_with_a_call_is_never_evicted() {
        let connections = Arc::default();
        let mut calling = fill(&connections, 7, Standing::Stranger, STRANGER_CONNECTIONS);
        let busy: Vec<_> = calling.iter().map(|one| one.activity.begin()).collect();
        assert!(connections.admit(7, Standing::Stranger, MOST).is_none());
        assert_eq!(open(&mut calling), STRANGER_CONNECTIONS);
        drop(busy);
        assert!(connections.admit(7, Standing::Stranger, MOST).is_some());
        assert_eq!(open(&mut calling), STRANGER_CONNECTIONS - 1);
    }

    #[test]
    fn full_strangers_make_room_at_the_largest_cost() {
        let connections = Arc::default();
        let mut one = fill(&connections, 7, Standing::Stranger, 1);
        let mut many: Vec<_> =
            (1000..1100).flat_map(|uid| fill(&connections, uid, Standing::Stranger, 50)).collect();
        assert_eq!(open(&mut many) + open(&mut one), STRANGERS_CONNECTIONS);
        assert!(connections.admit(8, Standing::Stranger, MOST).is_some(), "a newcomer is let in");
        assert_eq!(open(&mut one), 1, "and the user with a single connection keeps it");
        assert!(connections.admit(9, Standing::Member, MOST).is_some());
    }

    #[test]
    fn storm_of_one_user_slows_that_user_alone() {
        let mut held = Held::default();
        let storm = (0..1000).filter(|_| held.is_within_pace(7, Duration::ZERO)).count();
        assert_eq!(storm, BURST as usize);
        assert!(held.is_within_pace(8, Duration::ZERO) && !held.is_within_pace(7, Duration::ZERO));
        assert!(held.is_within_pace(7, REFILL) && !held.is_within_pace(7, REFILL));
    }

    #[test]
    fn paces_of_many_users_stay_few() {
        let mut held = Held::default();
        let within = (0..100_000).filter(|uid| held.is_within_pace(*uid, Duration::ZERO)).count();
        assert_eq!(within, MOST_PACES + BURST as usize, "those beyond share one");
        assert!(held.paces.len() <= MOST_PACES + 1);
    }
}
