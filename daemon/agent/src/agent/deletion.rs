//! Deletion of slices: on request, with their last process, or when none entered in time.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tranche_domain::access::Verb;
use tranche_domain::event::{EventCause, EventKind, Happening, Instigator};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::node::Refusal;
use tranche_shm::crash::point;

use super::Agent;
use crate::access::Caller;
use crate::failure::{RequestFailure, Requested};
use tranche_linux::clock::monotonic_ms;
use tranche_slices::slice_runtime::SliceRuntime;

/// Longest wait for killed processes in a forced deletion.
const DEATH_PATIENCE: Duration = Duration::from_secs(10);

/// First step of a deletion.
enum Begun {
    /// Processes have to end first.
    Serving(Arc<SliceRuntime>),
    /// The slice was not being served and is gone; these processes were killed.
    Over(Vec<HostPid>),
}

impl Agent {
    /// Deletes a slice, if the client may; with `force` kills its processes.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        name: &SliceName,
        force: bool,
        caller: &Caller,
    ) -> Requested<Vec<HostPid>> {
        let cause = force.then_some(EventCause::ForcedDeletion);
        self.delete_by(name, force, caller, cause).await
    }

    /// Deletes a slice by a rule that is named in its events.
    pub(super) async fn delete_by(
        self: &Arc<Self>,
        name: &SliceName,
        force: bool,
        caller: &Caller,
        cause: Option<EventCause>,
    ) -> Requested<Vec<HostPid>> {
        let verb = if force { Verb::Kill } else { Verb::Delete };
        self.permit(&self.core(), name, caller, verb)?;
        self.end(name, force, Instigator { actor: Some(caller.actor()), cause }).await
    }

    /// Deletes a slice without further authorization. Dropping the future does not interrupt it.
    pub(crate) async fn end(
        self: &Arc<Self>,
        name: &SliceName,
        force: bool,
        by: Instigator,
    ) -> Requested<Vec<HostPid>> {
        let (agent, name) = (Arc::clone(self), name.clone());
        tokio::spawn(async move { agent.end_uninterrupted(&name, force, by).await }).await?
    }

    async fn end_uninterrupted(
        self: &Arc<Self>,
        name: &SliceName,
        force: bool,
        by: Instigator,
    ) -> Requested<Vec<HostPid>> {
        if force && self.may_be_restored(name) {
            let (agent, of) = (Arc::clone(self), name.clone());
            tokio::task::spawn_blocking(move || agent.prepare_signal(&of, Signal::SIGKILL)).await?;
        }
        let begun = self.begin_deletion(name, force, &by)?;
        let (agent, of, origin) = (Arc::clone(self), name.clone(), by.clone());
        let tell = move |pid| {
            let killed = Happening::new(EventKind::Killed, reason(&origin)).of(&of).by(pid);
            agent.telemetry.record(killed.due_to(origin.clone()));
        };
        let killed = match &begun {
            Begun::Serving(runtime) if force => {
                let (agent, runtime) = (Arc::clone(self), Arc::clone(runtime));
                tokio::task::spawn_blocking(move || agent.kill_tree(&runtime, tell)).await?
            }
            Begun::Serving(_) => Vec::new(),
            Begun::Over(killed) => {
                killed.iter().copied().for_each(tell);
                killed.clone()
            }
        };
        let Begun::Serving(runtime) = begun else {
            let deleted = Happening::new(EventKind::SliceDeleted, "it was not served, and is gone").of(name);
            self.telemetry.record(deleted.due_to(by));
            return Ok(killed);
        };
        let deadline = tokio::time::Instant::now() + DEATH_PATIENCE;
        let is_over = || {
            let (agent, runtime) = (Arc::clone(self), Arc::clone(&runtime));
            tokio::task::spawn_blocking(move || agent.end_if_over(&runtime))
        };
        while !is_over().await? {
            if tokio::time::Instant::now() >= deadline {
                return Err(RequestFailure::Unkillable { name: name.clone(), pids: pids(&runtime) });
            }
            // Bounded: a process may leave between the check and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(20), runtime.left.notified()).await;
        }
        Ok(killed)
    }

    /// Ends the slice, so that no process is admitted any more.
    fn begin_deletion(&self, name: &SliceName, force: bool, by: &Instigator) -> Requested<Begun> {
        let mut core = self.core();
        if core.is_stranded(name) {
            return self.delete_unserved(&mut core, name, force).map(Begun::Over);
        }
        let runtime = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let users = pids(&runtime);
        if !users.is_empty() && !force {
            return Err(RequestFailure::InUse { name: name.clone(), pids: users });
        }
        let _ = runtime.ended_by.set(by.clone()); // fails if an earlier request set it
        runtime.end();
        point("delete: ending");
        Ok(Begun::Serving(runtime))
    }

    /// Removes a slice whose time is over; returns true if it is gone.
    pub(crate) fn end_if_over(&self, runtime: &Arc<SliceRuntime>) -> bool {
        let mut core = self.core();
        let name = &runtime.name;
        let current = core.live.get(name).is_some_and(|live| Arc::ptr_eq(live, runtime));
        let Some(slice) = core.node.slice(name).ok().filter(|_| current) else { return true };
        if !runtime.end_if_over(slice.ephemeral, monotonic_ms()) {
            return false;
        }
        self.forget(&mut core, name);
        point("delete: forgotten");
        let snapshot = core.next_snapshot();
        drop(core);
        if let Err(failure) = self.record(snapshot) {
            tracing::error!(%failure, "a slice that ended would come back after a restart");
        }
        point("delete: recorded");
        let deleted = match runtime.ended_by.get() {
            Some(by) => Happening::new(EventKind::SliceDeleted, "it was deleted").due_to(by.clone()),
            None => Happening::new(EventKind::SliceDeleted, "it has ended"),
        };
        self.telemetry.record(deleted.of(name));
        self.telemetry.events.forget(name);
        self.notify_capacity();
        true
    }
}

/// Reason for killing the processes of a slice that ends, as a sentence.
const fn reason(by: &Instigator) -> &'static str {
    match by.cause {
        Some(EventCause::Drain) => "its GPU is drained, and it was still there after the grace",
        Some(EventCause::QuotaScheduler) => {
            "its slice gives its part of the GPUs to others, and it was still there after the grace"
        }
        Some(EventCause::JobEnd) => "its job's member has ended",
        _ => "its slice was deleted with force",
    }
}

fn pids(runtime: &SliceRuntime) -> Vec<HostPid> {
    runtime.occupants().pids().into_iter().collect()
}
