//! Limits on connections to the gRPC socket. Each user's number, and the connection that is evicted for another.
//!
//! Invariant: a user who holds idle connections keeps no other user out, and costs the daemon a bounded number of
//! them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tranche_domain::access::PeerRole;

/// Connections of all read-only users together. With subordinate uids one person can be many users, and their
/// connections must not exhaust those of members.
pub(super) const MAX_READ_ONLY_CONNECTIONS: usize = 256;
/// Connections of each read-only user.
pub(super) const MAX_CONNECTIONS_PER_READ_ONLY_USER: usize = 32;
/// Connections that a read-only user may open in a burst, and the time that earns another one.
const BURST: u32 = 64;
const REFILL: Duration = Duration::from_millis(10);
/// Users with a rate limit of their own; any further ones share one.
const MOST_PACES: usize = 4096;

/// Calls in progress on a connection, and the end of the last one.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    calls: AtomicUsize,
    last: AtomicU64,
    since: Instant,
}

impl ConnectionActivity {
    fn now(since: Instant) -> Self {
        let activity = Self { calls: AtomicUsize::new(0), last: AtomicU64::new(0), since };
        activity.touch();
        activity
    }

    fn touch(&self) {
        let now = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Marks a call as in progress until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    fn is_idle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0
    }
}

impl Default for ConnectionActivity {
    fn default() -> Self {
        Self::now(Instant::now())
    }
}

/// A call in progress on a connection.
#[derive(Debug)]
pub(crate) struct Busy(Arc<ConnectionActivity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Admitted connections of all users, and the pace of new ones.
#[derive(Debug)]
pub(super) struct Connections {
    since: Instant,
    held: Mutex<HeldConnections>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { since: Instant::now(), held: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct HeldConnections {
    next: u64,
    connections: BTreeMap<u64, OpenConnection>,
    users: BTreeMap<u32, usize>,
    read_only: usize,
    paces: BTreeMap<u32, ConnectionRate>,
}

#[derive(Debug)]
struct OpenConnection {
    uid: u32,
    standing: PeerRole,
    activity: Arc<ConnectionActivity>,
    evict: oneshot::Sender<()>,
}

/// Token bucket for the connections of a user.
#[derive(Clone, Copy, Debug)]
struct ConnectionRate {
    left: u32,
    since: Duration,
}

impl ConnectionRate {
    fn refill(&mut self, now: Duration) {
        let more = now.saturating_sub(self.since).as_millis() / REFILL.as_millis();
        if more > 0 {
            self.left = self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(BURST);
            self.since = now;
        }
    }
}

/// Permit of one connection, released when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
}

/// An admitted connection: its permit, its activity and the notice of its eviction.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) place: ConnectionPermit,
    pub(super) activity: Arc<ConnectionActivity>,
    /// Resolves when the permit is given to another connection.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl Connections {
    fn held(&self) -> MutexGuard<'_, HeldConnections> {
        self.held.lock().expect("nothing panics while it counts")
    }

    /// Takes a token of the user's bucket; returns false if there is none. Cheap, and precedes any other work for the
    /// connection.
    pub(super) fn is_within_pace(&self, uid: u32, standing: PeerRole) -> bool {
        standing != PeerRole::Stranger || self.held().is_within_pace(uid, self.since.elapsed())
    }

    /// Admits a connection. A read-only user at the limit loses the connection that has been idle longest; if all of
    /// them together are at the limit, the user with the most connections does.
    pub(super) fn admit(self: &Arc<Self>, uid: u32, standing: PeerRole, most: usize) -> Option<Admitted> {
        let mut held = self.held();
        let has = held.users.get(&uid).copied().unwrap_or_default();
        let made_room = match standing {
            PeerRole::Operator => true,
            PeerRole::Member => has < most,
            PeerRole::Stranger if has >= most.min(MAX_CONNECTIONS_PER_READ_ONLY_USER) => held.evict_idle(uid),
            PeerRole::Stranger if held.read_only >= MAX_READ_ONLY_CONNECTIONS => {
                held.largest_read_only_user().is_some_and(|largest| held.evict_idle(largest))
            }
            PeerRole::Stranger => true,
        };
        if !made_room {
            return None;
        }
        let (evict, evicted) = oneshot::channel();
        let (id, activity) = (held.next, Arc::new(ConnectionActivity::now(self.since)));
        held.next += 1;
        held.connections.insert(id, OpenConnection { uid, standing, activity: Arc::clone(&activity), evict });
        *held.users.entry(uid).or_default() += 1;
        held.read_only += usize::from(standing == PeerRole::Stranger);
        Some(Admitted { place: ConnectionPermit { connections: Arc::clone(self), id }, activity, evicted })
    }
}

impl HeldConnections {
    fn is_within_pace(&mut self, uid: u32, now: Duration) -> bool {
        if self.paces.len() >= MOST_PACES {
            self.paces.retain(|_, pace| {
                pace.refill(now);
                pace.left < BURST
            });
        }
        let shared = self.paces.len() >= MOST_PACES && !self.paces.contains_key(&uid);
        let uid = if shared { u32::MAX } else { uid };
        let pace = self.paces.entry(uid).or_insert(ConnectionRate { left: BURST, since: now });
        pace.refill(now);
        let left = pace.left.checked_sub(1);
        pace.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Read-only user with the most connections.
    fn largest_read_only_user(&self) -> Option<u32> {
        let read_only = self.connections.values().filter(|one| one.standing == PeerRole::Stranger);
        read_only.map(|one| one.uid).max_by_key(|uid| self.users.get(uid))
    }

    /// Evicts the connection of a user that has been idle longest; returns false if all are busy.
    fn evict_idle(&mut self, uid: u32) -> bool {
        let idle = self.connections.iter().filter(|(_, one)| one.uid == uid && one.activity.is_idle());
        let longest = idle.min_by_key(|(_, one)| one.activity.last.load(Ordering::Relaxed));
        let Some(connection) = longest.map(|(id, _)| *id).and_then(|id| self.remove(id)) else {
            return false;
        };
        let _ = connection.evict.send(()); // fails if it has just ended
        true
    }

    fn remove(&mut self, id: u64) -> Option<OpenConnection> {
        let connection = self.connections.remove(&id)?;
        self.read_only -= usize::from(connection.standing == PeerRole::Stranger);
        if let Some(has) = self.users.get_mut(&connection.uid) {
            *has -= 1;
            if *has == 0 {
                self.users.remove(&connection.uid);
            }
        }
        Some(connection)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.held().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 40;

    fn fill(connections: &Arc<Connections>, uid: u32, standing: PeerRole, count: usize) -> Vec<Admitted> {
        (0..count).filter_map(|_| connections.admit(uid, standing, MOST)).collect()
    }

    fn open(admitted: &mut [Admitted]) -> usize {
        admitted.iter_mut().map(|one| one.evicted.try_recv()).filter(Result::is_err).count()
    }

    #[test]
    fn member_connections_are_bounded_and_released() {
        let connections = Arc::default();
        let members = fill(&connections, 7, PeerRole::Member, 50);
        assert_eq!(members.len(), MOST);
        assert!(connections.admit(8, PeerRole::Member, MOST).is_some());
        assert_eq!(fill(&connections, 0, PeerRole::Operator, 1000).len(), 1000);
        drop(members);
        assert!(connections.admit(7, PeerRole::Member, MOST).is_some());
        assert!(connections.held().users.is_empty() && connections.held().connections.is_empty());
    }

    #[test]
    fn idle_connection_makes_room_for_the_next() {
        let connections = Arc::default();
        let mut silent = fill(&connections, 7, PeerRole::Stranger, 500);
        assert_eq!(silent.len(), 500, "each is let in");
        assert_eq!(open(&mut silent), MAX_CONNECTIONS_PER_READ_ONLY_USER);
        assert!(silent[499].evicted.try_recv().is_err(), "the last is open");
    }

    #[test]
    fn connection_with_a_call_is_never_evicted() {
        let connections = Arc::default();
        let mut calling = fill(&connections, 7, PeerRole::Stranger, MAX_CONNECTIONS_PER_READ_ONLY_USER);
        let busy: Vec<_> = calling.iter().map(|one| one.activity.begin()).collect();
        assert!(connections.admit(7, PeerRole::Stranger, MOST).is_none());
        assert_eq!(open(&mut calling), MAX_CONNECTIONS_PER_READ_ONLY_USER);
        drop(busy);
        assert!(connections.admit(7, PeerRole::Stranger, MOST).is_some());
        assert_eq!(open(&mut calling), MAX_CONNECTIONS_PER_READ_ONLY_USER - 1);
    }

    #[test]
    fn full_read_only_limit_evicts_from_the_largest_user() {
        let connections = Arc::default();
        let mut one = fill(&connections, 7, PeerRole::Stranger, 1);
        let mut many: Vec<_> =
            (1000..1100).flat_map(|uid| fill(&connections, uid, PeerRole::Stranger, 50)).collect();
        assert_eq!(open(&mut many) + open(&mut one), MAX_READ_ONLY_CONNECTIONS);
        assert!(connections.admit(8, PeerRole::Stranger, MOST).is_some(), "a newcomer is let in");
        assert_eq!(open(&mut one), 1, "and the user with a single connection keeps it");
        assert!(connections.admit(9, PeerRole::Member, MOST).is_some());
    }

    #[test]
    fn storm_of_one_user_slows_that_user_alone() {
        let mut held = HeldConnections::default();
        let storm = (0..1000).filter(|_| held.is_within_pace(7, Duration::ZERO)).count();
        assert_eq!(storm, BURST as usize);
        assert!(held.is_within_pace(8, Duration::ZERO) && !held.is_within_pace(7, Duration::ZERO));
        assert!(held.is_within_pace(7, REFILL) && !held.is_within_pace(7, REFILL));
    }

    #[test]
    fn paces_of_many_users_stay_few() {
        let mut held = HeldConnections::default();
        let within = (0..100_000).filter(|uid| held.is_within_pace(*uid, Duration::ZERO)).count();
        assert_eq!(within, MOST_PACES + BURST as usize, "those beyond share one");
        assert!(held.paces.len() <= MOST_PACES + 1);
    }
}
