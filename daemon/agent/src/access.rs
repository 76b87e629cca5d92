//! Authorization: identity of clients from the kernel, their permissions, and their resource quotas.

mod budgets;
mod caller;
mod calls;
mod connections;
mod incoming;
mod peer;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use tokio::net::UnixStream;
use tranche_domain::access::{Denied, PeerRole, Relation, Verb, allows};
use tranche_domain::id::{HostPid, SliceName};

use crate::failure::{RequestFailure, Requested};
use crate::sockets::DaemonScope;
use budgets::{Budgets, RunningCall};
use connections::{Admitted, Connections};
use peer::PeerConnection;
use tranche_linux::process::Process;
use tranche_linux::sys;

pub(crate) use budgets::Follower;
pub(crate) use caller::{Caller, actor_of};
pub(crate) use calls::Budgeted;
pub(crate) use incoming::incoming;

/// Permissions and quotas of users other than root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Group whose members may create slices.
    pub group: Option<Group>,
    /// Quotas of each user.
    pub limits: Limits,
}

/// A group of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name in the group database, for messages.
    pub name: String,
    /// Number by which the kernel lists it among a client's groups.
    pub gid: u32,
}

/// Quotas of each user other than root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections to the gRPC socket.
    pub connections: usize,
    /// Requests that wait for capacity.
    pub waiting: usize,
    /// Slices that the user owns.
    pub slices: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, waiting: 128, slices: 64 }
    }
}

/// Admits connections and authorizes calls.
#[derive(Debug)]
pub(crate) struct AccessGate {
    /// User that the daemon serves.
    operator: u32,
    group: Option<Group>,
    limits: Mutex<Limits>,
    connections: Arc<Connections>,
    budgets: Budgets,
}

impl AccessGate {
    pub(crate) fn new(access: Access, reach: DaemonScope) -> Self {
        let operator = match reach {
            DaemonScope::Node => 0,
            DaemonScope::User => nix::unistd::geteuid().as_raw(),
        };
        let (limits, connections) = (Mutex::new(access.limits), Arc::default());
        Self { operator, group: access.group, limits, connections, budgets: Budgets::default() }
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().expect("nothing panics while it holds the limits")
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock().expect("nothing panics while it holds the limits") = limits;
    }

    /// Admits a connection or drops it. The checks are cheap and precede any other work for the connection.
    pub(crate) fn admit(&self, stream: UnixStream) -> Option<PeerConnection> {
        let peer = stream.peer_cred().ok()?;
        let (uid, gid) = (peer.uid(), peer.gid());
        let standing = self.standing(uid, || {
            let mut groups = sys::peer_groups(stream.as_fd()).unwrap_or_default();
            groups.push(gid);
            groups
        });
        if !self.connections.is_within_pace(uid, standing) {
            return None;
        }
        let Some(Admitted { place, activity, evicted }) =
            self.connections.admit(uid, standing, self.limits().connections)
        else {
            tracing::debug!(uid, "has as many connections as it may");
            return None;
        };
        // Credentials as of the client's `connect`.
        let pid =
            peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0).map(HostPid::new);
        let process = pid.and_then(|pid| Process::peer(stream.as_fd(), pid).ok()).map(|process| process.id);
        let caller = Caller { uid, gid, standing, pid, process, activity };
        Some(PeerConnection::new(stream, caller, place, evicted))
    }

    fn standing(&self, uid: u32, groups: impl FnOnce() -> Vec<u32>) -> PeerRole {
        match &self.group {
            _ if uid == 0 || uid == self.operator => PeerRole::Operator,
            Some(group) if groups().contains(&group.gid) => PeerRole::Member,
            _ => PeerRole::Stranger,
        }
    }

    /// Authorizes an operation that concerns no existing slice.
    pub(crate) fn permit(&self, caller: &Caller, verb: Verb) -> Requested<()> {
        self.decide(caller, verb, caller.standing.to_slice(false), None)
    }

    /// Authorizes an operation on a slice of `owner`.
    pub(crate) fn permit_with(
        &self,
        caller: &Caller,
        verb: Verb,
        slice: &SliceName,
        owner: u32,
    ) -> Requested<()> {
        let relation = caller.standing.to_slice(caller.uid == owner);
        self.decide(caller, verb, relation, Some((slice, owner)))
    }

    fn decide(
        &self,
        caller: &Caller,
        verb: Verb,
        relation: Relation,
        slice: Option<(&SliceName, u32)>,
    ) -> Requested<()> {
        if allows(verb, relation) {
            return Ok(());
        }
        let group = self.group.as_ref().map(|group| group.name.clone());
        let slice = slice.map(|(name, owner)| (name.clone(), owner));
        tracing::info!(uid = caller.uid, ?verb, ?relation, "denied");
        Err(RequestFailure::Denied(Denied { verb, uid: caller.uid, relation, slice, group }))
    }

    /// Checks the quota of slices for a user who has `has` of them.
    pub(crate) fn permit_another_slice(&self, caller: &Caller, has: usize) -> Requested<()> {
        within(caller, has, self.limits().slices, "slices", "delete one")
    }

    /// Acquires a unit for a call, and waits until it may run.
    async fn begin(&self, caller: &Caller) -> Requested<RunningCall> {
        self.budgets.begin(caller, self.limits().waiting).await
    }

    /// Acquires a unit for a stream.
    pub(crate) fn follow(&self, caller: &Caller) -> Requested<Follower> {
        self.budgets.follow(caller)
    }

    /// Checks the quota of waiting requests for a user who has `wait` of them.
    pub(crate) fn permit_to_wait(&self, caller: &Caller, wait: usize) -> Requested<()> {
        within(caller, wait, self.limits().waiting, "requests that wait", "wait for one of them")
    }
}

fn within(
    caller: &Caller,
    has: usize,
    most: usize,
    what: &'static str,
    remedy: &'static str,
) -> Requested<()> {
    if caller.standing == PeerRole::Operator || has < most {
        return Ok(());
    }
    Err(RequestFailure::TooMany { uid: caller.uid, most, what, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> AccessGate {
        let group = Some(Group { name: "gpus".into(), gid: 44 });
        AccessGate::new(
            Access { group, limits: Limits { connections: 40, ..Limits::default() } },
            DaemonScope::Node,
        )
    }

    fn caller(uid: u32, standing: PeerRole) -> Caller {
        Caller { uid, gid: uid, standing, pid: None, process: None, activity: Arc::default() }
    }

    #[test]
    fn supplementary_group_members_may_create_slices() {
        let gate = gate();
        assert_eq!(gate.standing(0, Vec::new), PeerRole::Operator);
        assert_eq!(gate.standing(7, || [7, 44].to_vec()), PeerRole::Member);
        assert_eq!(gate.standing(7, || [7].to_vec()), PeerRole::Stranger);
        assert_eq!(
            AccessGate::new(Access::default(), DaemonScope::Node).standing(7, || vec![0]),
            PeerRole::Stranger
        );
    }

    #[test]
    fn user_daemon_permits_its_user_everything() {
        let own = AccessGate::new(Access::default(), DaemonScope::User);
        assert_eq!(own.standing(nix::unistd::geteuid().as_raw(), Vec::new), PeerRole::Operator);
        assert_eq!(own.standing(65533, Vec::new), PeerRole::Stranger);
    }

    #[test]
    fn quotas_apply_to_all_but_root() {
        let gate = gate();
        let (root, member) = (caller(0, PeerRole::Operator), caller(7, PeerRole::Member));
        assert!(gate.permit_another_slice(&root, 10_000).is_ok());
        assert!(gate.permit_another_slice(&member, 63).is_ok());
        let refused = gate.permit_another_slice(&member, 64).unwrap_err().to_string();
        assert!(refused.contains("uid 7 has 64 slices") && refused.contains("delete one"), "{refused}");
        assert!(gate.permit_to_wait(&member, 128).is_err());
    }
}
