//! Connection limits by source, with eviction of idle connections.
//!
//! Law: connections are accepted at once, and idle ones never lock out others, so a request after a thousand
//! silent connections is answered like the first.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

/// Maximum number of connections of all sources together.
///
/// The program's own user and root have as many in addition.
const MOST: usize = 128;
/// Maximum number of connections of one source.
const MOST_EACH: usize = 32;
/// Maximum number of local connections of unknown users.
///
/// These include probes, scrapers and any other program.
const MOST_HERE: usize = 96;

/// Source of a connection, as far as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerSource {
    /// Root or the program's own user on this machine.
    Operator,
    /// Another user of this machine.
    User(u32),
    /// This machine by a loopback address, user unknown.
    Here,
    /// Another machine or pod: its IPv4 address, or its IPv6 network.
    Address(IpAddr),
}

impl PeerSource {
    /// Source for a local user.
    pub fn of_user(uid: u32, own: u32) -> Self {
        if uid == 0 || uid == own { Self::Operator } else { Self::User(uid) }
    }

    /// Source for an address.
    pub fn of_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            here if here.is_loopback() => Self::Here,
            IpAddr::V6(address) => {
                Self::Address(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into())
            }
            address => Self::Address(address),
        }
    }

    const fn most(self) -> usize {
        match self {
            Self::Operator => MOST,
            Self::Here => MOST_HERE,
            Self::User(_) | Self::Address(_) => MOST_EACH,
        }
    }
}

/// Number of unanswered requests of a connection.
#[derive(Clone, Debug, Default)]
pub struct Questions(Arc<AtomicUsize>);

impl Questions {
    /// Counts a request until the result is dropped.
    #[must_use]
    pub fn begin(&self) -> Question {
        self.0.fetch_add(1, Ordering::Relaxed);
        Question(self.clone())
    }

    fn is_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A request of a connection, counted until its answer is sent.
#[derive(Debug)]
pub struct Question(Questions);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Open connections by their sources.
#[derive(Debug, Default)]
pub struct Places(Mutex<HeldPlaces>);

#[derive(Debug, Default)]
struct HeldPlaces {
    next: u64,
    /// Connections by number, oldest first.
    connections: BTreeMap<u64, HeldConnection>,
}

#[derive(Debug)]
struct HeldConnection {
    source: PeerSource,
    questions: Questions,
    evict: oneshot::Sender<()>,
}

/// Permit of one connection, returned when dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: Arc<Places>,
    id: u64,
    /// Unanswered requests of the connection, without which it may be evicted.
    pub questions: Questions,
    /// Resolves when the connection is evicted.
    pub evicted: oneshot::Receiver<()>,
}

impl Places {
    fn held(&self) -> MutexGuard<'_, HeldPlaces> {
        self.0.lock().expect("nothing panics while it counts")
    }

    /// A permit for one more connection. At the limit of its source, the source's oldest idle connection is
    /// evicted; at the common limit, one of the largest source. `None` if all of those have unanswered
    /// requests.
    pub fn take(self: &Arc<Self>, source: PeerSource) -> Option<ConnectionPlace> {
        let mut held = self.held();
        let made_room = if held.count(source) >= source.most() {
            held.evict(source)
        } else if source != PeerSource::Operator && held.others() >= MOST {
            held.largest().is_some_and(|largest| held.evict(largest))
        } else {
            true
        };
        if !made_room {
            return None;
        }
        let (evict, evicted) = oneshot::channel();
        let (id, questions) = (held.next, Questions::default());
        held.next += 1;
        held.connections.insert(id, HeldConnection { source, questions: questions.clone(), evict });
        Some(ConnectionPlace { places: Arc::clone(self), id, questions, evicted })
    }
}

impl HeldPlaces {
    fn count(&self, source: PeerSource) -> usize {
        self.connections.values().filter(|one| one.source == source).count()
    }

    fn others(&self) -> usize {
        self.connections.len() - self.count(PeerSource::Operator)
    }

    fn largest(&self) -> Option<PeerSource> {
        let others = self.connections.values().filter(|one| one.source != PeerSource::Operator);
        let mut counts = BTreeMap::<PeerSource, usize>::new();
        others.for_each(|one| *counts.entry(one.source).or_default() += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source)
    }

    fn evict(&mut self, source: PeerSource) -> bool {
        let mut idle =
            self.connections.iter().filter(|(_, one)| one.source == source && one.questions.is_none());
        let Some(oldest) = idle.next().map(|(id, _)| *id) else { return false };
        let evicted = self.connections.remove(&oldest);
        let _ = evicted.map(|one| one.evict.send(())); // or it has just ended
        true
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.places.held().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(places: &Arc<Places>, source: PeerSource, count: usize) -> Vec<ConnectionPlace> {
        (0..count).filter_map(|_| places.take(source)).collect()
    }

    fn open(places: &mut [ConnectionPlace]) -> usize {
        places.iter_mut().map(|one| one.evicted.try_recv()).filter(Result::is_err).count()
    }

    #[test]
    fn sources_are_users_machines_and_networks() {
        assert_eq!(PeerSource::of_user(0, 7), PeerSource::Operator);
        assert_eq!(PeerSource::of_user(7, 7), PeerSource::Operator);
        assert_eq!(PeerSource::of_user(8, 7), PeerSource::User(8));
        let of = |text: &str| PeerSource::of_address(text.parse().unwrap());
        assert_eq!(
            (of("127.0.0.1"), of("::1"), of("::ffff:127.0.0.1")),
            (PeerSource::Here, PeerSource::Here, PeerSource::Here)
        );
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_eq!(of("fd00::1:2"), of("fd00::3:4"));
        assert_ne!(of("fd00::1"), of("fd00:0:0:1::1"));
    }

    #[test]
    fn idle_connection_is_evicted() {
        let places = Arc::default();
        let mut silent = fill(&places, PeerSource::Here, 1000);
        assert_eq!((silent.len(), open(&mut silent)), (1000, MOST_HERE));
        assert!(silent[999].evicted.try_recv().is_err(), "the last is open");
        assert_eq!(fill(&places, PeerSource::Operator, MOST).len(), MOST, "operators have places besides");
    }

    #[test]
    fn unanswered_request_prevents_eviction() {
        let places = Arc::default();
        let mut asking = fill(&places, PeerSource::User(7), MOST_EACH);
        let questions: Vec<_> = asking.iter().map(|place| place.questions.begin()).collect();
        assert!(places.take(PeerSource::User(7)).is_none() && places.take(PeerSource::User(8)).is_some());
        drop(questions);
        assert!(places.take(PeerSource::User(7)).is_some());
        assert_eq!(open(&mut asking), MOST_EACH - 1);
    }

    #[test]
    fn largest_source_is_evicted_first() {
        let places = Arc::default();
        let mut one = fill(&places, PeerSource::User(7), 1);
        let mut many: Vec<_> =
            (1000..1100).flat_map(|uid| fill(&places, PeerSource::User(uid), 40)).collect();
        assert_eq!(open(&mut many) + open(&mut one), MOST);
        assert_eq!(open(&mut one), 1);
        drop(many);
        assert_eq!(places.held().connections.len(), 1);
    }
}
