//! Who calls, by the kernel's word, what they may do, and how much of the daemon they may take.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::UnixStream;
use tranche_domain::access::{Denied, Relation, Standing, Verb, allows};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::slice::ProcessId;

use crate::failure::Failure;
use crate::guest::Guest;
use crate::process::Process;
use crate::sockets::Reach;
use crate::sys;

/// Connections that all users who may only look have together: with subordinate uids one person can be many, and what
/// they take must not be missing for those who may do more.
const STRANGERS_CONNECTIONS: usize = 256;
/// And each of them.
const STRANGER_CONNECTIONS: usize = 32;

/// Who besides root may have slices, and how much anybody but root may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The group whose members may make slices.
    pub group: Option<Group>,
    /// What each user may take.
    pub limits: Limits,
}

/// A group as the system knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, for messages.
    pub name: String,
    /// Its number.
    pub gid: u32,
}

/// What each user who is not root may have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections to the gRPC socket.
    pub connections: usize,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Slices.
    pub slices: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, waiting: 128, slices: 64 }
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) standing: Standing,
    /// Nothing if it is of a pid namespace that we cannot see into.
    pub(crate) pid: Option<HostPid>,
    /// Nothing if it had ended by the time it was looked at.
    process: Option<ProcessId>,
}

impl Caller {
    /// The process that connected, as it was then: whoever has its pid later is not meant.
    pub(crate) fn process(&self) -> Result<ProcessId, Failure> {
        self.process.ok_or(Failure::CallerGone(self.pid.ok_or(Failure::CallerUnknown)?))
    }
}

/// Lets callers in and says what they may do.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Whose daemon it is.
    operator: u32,
    group: Option<Group>,
    limits: Mutex<Limits>,
    connections: Arc<Connections>,
}

impl Gate {
    pub(crate) fn new(access: Access, reach: Reach) -> Self {
        let operator = match reach {
            Reach::Node => 0,
            Reach::User => nix::unistd::geteuid().as_raw(),
        };
        let (limits, connections) = (Mutex::new(access.limits), Arc::default());
        Self { operator, group: access.group, limits, connections }
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().expect("nothing panics while it holds the limits")
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock().expect("nothing panics while it holds the limits") = limits;
    }

    /// Lets a connection in, or drops it: whoever has as many as they may gets no more.
    pub(crate) fn admit(&self, stream: UnixStream) -> Option<Guest> {
        let caller = self.caller(&stream)?;
        match Place::take(&self.connections, &caller, self.limits().connections) {
            Some(place) => Some(Guest::new(stream, caller, place)),
            None => {
                tracing::debug!(uid = caller.uid, "has as many connections as it may");
                None
            }
        }
    }

    /// Who connected, as the kernel noted it at that moment.
    fn caller(&self, stream: &UnixStream) -> Option<Caller> {
        let peer = stream.peer_cred().ok()?;
        let pid =
            peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0).map(HostPid::new);
        let process = pid.and_then(|pid| Process::peer(stream.as_fd(), pid).ok()).map(|process| process.id);
        let mut groups = sys::peer_groups(stream.as_fd()).unwrap_or_default();
        groups.push(peer.gid());
        let (uid, gid) = (peer.uid(), peer.gid());
        Some(Caller { uid, gid, standing: self.standing(uid, &groups), pid, process })
    }

    fn standing(&self, uid: u32, groups: &[u32]) -> Standing {
        match &self.group {
            _ if uid == 0 || uid == self.operator => Standing::Operator,
            Some(group) if groups.contains(&group.gid) => Standing::Member,
            _ => Standing::Stranger,
        }
    }

    /// Whether somebody may do what concerns no slice that is there.
    pub(crate) fn permit(&self, caller: &Caller, verb: Verb) -> Result<(), Failure> {
        self.decide(caller, verb, caller.standing.to_slice(false), None)
    }

    /// Whether somebody may do something with a slice that `owner` made.
    pub(crate) fn permit_with(
        &self,
        caller: &Caller,
        verb: Verb,
        slice: &SliceName,
        owner: u32,
    ) -> Result<(), Failure> {
        let relation = caller.standing.to_slice(caller.uid == owner);
        self.decide(caller, verb, relation, Some((slice, owner)))
    }

    fn decide(
        &self,
        caller: &Caller,
        verb: Verb,
        relation: Relation,
        slice: Option<(&SliceName, u32)>,
    ) -> Result<(), Failure> {
        if allows(verb, relation) {
            return Ok(());
        }
        let group = self.group.as_ref().map(|group| group.name.clone());
        let slice = slice.map(|(name, owner)| (name.clone(), owner));
        tracing::info!(uid = caller.uid, ?verb, ?relation, "denied");
        Err(Failure::Denied(Denied { verb, uid: caller.uid, relation, slice, group }))
    }

    /// Whether somebody who has that many slices may have one more.
    pub(crate) fn permit_another_slice(&self, caller: &Caller, has: usize) -> Result<(), Failure> {
        within(caller, has, self.limits().slices, "slices", "delete one")
    }

    /// Whether somebody of whom that many requests wait may wait with one more.
    pub(crate) fn permit_to_wait(&self, caller: &Caller, wait: usize) -> Result<(), Failure> {
        within(caller, wait, self.limits().waiting, "requests that wait", "wait for one of them")
    }
}

fn within(
    caller: &Caller,
    has: usize,
    most: usize,
    what: &'static str,
    remedy: &'static str,
) -> Result<(), Failure> {
    if caller.standing == Standing::Operator || has < most {
        return Ok(());
    }
    Err(Failure::TooMany { uid: caller.uid, most, what, remedy })
}

/// How many connections each user has.
#[derive(Debug, Default)]
struct Connections(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    of: BTreeMap<u32, usize>,
    strangers: usize,
}

impl Connections {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("nothing panics while it counts")
    }
}

/// One connection's place, given up when dropped. Root needs none.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    uid: u32,
    standing: Standing,
}

impl Place {
    fn take(connections: &Arc<Connections>, caller: &Caller, most: usize) -> Option<Self> {
        let mut counts = connections.counts();
        let is_stranger = caller.standing == Standing::Stranger;
        let has = counts.of.entry(caller.uid).or_default();
        let most = match caller.standing {
            Standing::Operator => usize::MAX,
            Standing::Member => most,
            Standing::Stranger => most.min(STRANGER_CONNECTIONS),
        };
        let too_many = *has >= most || (is_stranger && counts.strangers >= STRANGERS_CONNECTIONS);
        if too_many {
            counts.forget_if_none(caller.uid);
            return None;
        }
        *counts.of.entry(caller.uid).or_default() += 1;
        counts.strangers += usize::from(is_stranger);
        drop(counts);
        Some(Self { connections: Arc::clone(connections), uid: caller.uid, standing: caller.standing })
    }
}

impl Counts {
    fn forget_if_none(&mut self, uid: u32) {
        if self.of.get(&uid) == Some(&0) {
            self.of.remove(&uid);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.connections.counts();
        counts.strangers -= usize::from(self.standing == Standing::Stranger);
        if let Some(has) = counts.of.get_mut(&self.uid) {
            *has -= 1;
        }
        counts.forget_if_none(self.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        let group = Some(Group { name: "gpus".into(), gid: 44 });
        Gate::new(Access { group, limits: Limits { connections: 40, ..Limits::default() } }, Reach::Node)
    }

    fn caller(uid: u32, standing: Standing) -> Caller {
        Caller { uid, gid: uid, standing, pid: None, process: None }
    }

    #[test]
    fn who_is_in_the_group_by_any_of_their_groups_may_make_slices() {
        let gate = gate();
        assert_eq!(gate.standing(0, &[]), Standing::Operator);
        assert_eq!(gate.standing(7, &[7, 44]), Standing::Member);
        assert_eq!(gate.standing(7, &[7]), Standing::Stranger);
        assert_eq!(Gate::new(Access::default(), Reach::Node).standing(7, &[0]), Standing::Stranger);
    }

    #[test]
    fn a_daemon_of_ones_own_is_ones_own() {
        let own = Gate::new(Access::default(), Reach::User);
        assert_eq!(own.standing(nix::unistd::geteuid().as_raw(), &[]), Standing::Operator);
        assert_eq!(own.standing(65533, &[]), Standing::Stranger);
    }

    #[test]
    fn a_user_has_as_many_connections_as_they_may_and_gets_them_back() {
        let gate = gate();
        let take = |uid, standing| Place::take(&gate.connections, &caller(uid, standing), 40);
        let members: Vec<_> = (0..50).filter_map(|_| take(7, Standing::Member)).collect();
        assert_eq!(members.len(), 40);
        assert!(take(8, Standing::Member).is_some() && take(0, Standing::Operator).is_some());
        drop(members);
        assert!(take(7, Standing::Member).is_some());
        assert!(gate.connections.counts().of.is_empty());
    }

    #[test]
    fn strangers_together_take_nothing_from_members() {
        let gate = gate();
        let take = |uid, standing| Place::take(&gate.connections, &caller(uid, standing), 40);
        let uids = 1000..1100;
        let strangers: Vec<_> =
            uids.flat_map(|uid| (0..50).filter_map(move |_| take(uid, Standing::Stranger))).collect();
        assert_eq!(strangers.len(), STRANGERS_CONNECTIONS);
        assert!(take(7, Standing::Member).is_some());
    }

    #[test]
    fn nobody_but_root_has_more_than_they_may() {
        let gate = gate();
        let (root, member) = (caller(0, Standing::Operator), caller(7, Standing::Member));
        assert!(gate.permit_another_slice(&root, 10_000).is_ok());
        assert!(gate.permit_another_slice(&member, 63).is_ok());
        let refused = gate.permit_another_slice(&member, 64).unwrap_err().to_string();
        assert!(refused.contains("uid 7 has 64 slices") && refused.contains("delete one"), "{refused}");
        assert!(gate.permit_to_wait(&member, 128).is_err());
    }
}
