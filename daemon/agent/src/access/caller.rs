//! Client of a call, as the kernel identified it when it connected.

use std::sync::Arc;

use nix::unistd::{Uid, User};
use tranche_domain::access::PeerRole;
use tranche_domain::event::Actor;
use tranche_domain::id::HostPid;
use tranche_domain::slice::ProcessId;

use super::connections::ConnectionActivity;
use crate::failure::{RequestFailure, Requested};
use tranche_jobs::Requester;
use tranche_linux::process::{self, Process};

/// Client of a call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) standing: PeerRole,
    /// `None` if its pid namespace is not visible to the daemon.
    pub(crate) pid: Option<HostPid>,
    /// `None` if it had ended by the time it was inspected.
    pub(super) process: Option<ProcessId>,
    /// Calls in progress on the connection.
    pub(super) activity: Arc<ConnectionActivity>,
}

impl Caller {
    /// Actor for the event history. Looks up the user's name and the process's command.
    pub(crate) fn actor(&self) -> Actor {
        let actor = actor_of(self.uid);
        let Some(pid) = self.pid else { return actor };
        let command = process::command(pid);
        // Checked last: only if the pid still belongs to the client, so does the command that was read.
        let same = self.process.is_some_and(|id| Process::reopen(id).is_ok());
        actor.by(pid, if same { &command } else { "" })
    }

    /// The user, for requests about jobs and projects.
    pub(crate) const fn requester(&self) -> Requester {
        Requester { uid: self.uid, admin: matches!(self.standing, PeerRole::Operator) }
    }

    /// Process that connected, by pid and start time.
    /// Fails if the kernel did not report the process or the process had ended.
    pub(crate) fn process(&self) -> Requested<ProcessId> {
        self.process.ok_or(RequestFailure::CallerGone(self.pid.ok_or(RequestFailure::CallerUnknown)?))
    }
}

/// Actor for a user on whose behalf the daemon acts.
pub(crate) fn actor_of(uid: u32) -> Actor {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Actor::of_user(uid, user.as_ref().map(|user| user.name.as_str()))
}
