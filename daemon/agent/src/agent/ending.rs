//! How slices end: when told, with their last process, or when nobody came.

use std::sync::Arc;
use std::time::Duration;

use tranche_domain::access::Verb;
use tranche_domain::event::{Actor, Happening, Kind};
use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::node::Refusal;
use tranche_shm::crash::point;

use super::Agent;
use crate::access::Caller;
use crate::clock::monotonic_ms;
use crate::failure::Failure;
use crate::tenancy::Tenancy;

/// How long killed processes may take to go before a forced deletion answers.
const DEATH_PATIENCE: Duration = Duration::from_secs(10);

/// How far a deletion is.
enum Begun {
    /// Whoever is in it has to go first.
    Serving(Arc<Tenancy>),
    /// It was not served, and is gone with those who were killed for it.
    Over(Vec<HostPid>),
}

impl Agent {
    /// Ends a slice; with force by killing those who use it.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        name: &SliceName,
        force: bool,
        caller: &Caller,
    ) -> Result<Vec<HostPid>, Failure> {
        let verb = if force { Verb::Kill } else { Verb::Delete };
        self.permit(&self.core(), name, caller, verb)?;
        self.end(name, force, caller.actor()).await
    }

    /// Ends a slice as its user, or whoever may, wants it.
    pub(crate) async fn end(
        self: &Arc<Self>,
        name: &SliceName,
        force: bool,
        actor: Actor,
    ) -> Result<Vec<HostPid>, Failure> {
        let begun = self.begin_deletion(name, force, &actor)?;
        let killed = match &begun {
            Begun::Serving(tenancy) => tenancy.kill_all(),
            Begun::Over(killed) => killed.clone(),
        };
        for pid in &killed {
            let evidence = format!("user {} deleted its slice with force", actor.uid);
            let killed = Happening::new(Kind::Killed, evidence).of(name).by(*pid);
            self.events.record(killed.asked_by(actor.clone()));
        }
        let Begun::Serving(tenancy) = begun else {
            let deleted = Happening::new(Kind::SliceDeleted, "it was not served, and is gone").of(name);
            self.events.record(deleted.asked_by(actor));
            return Ok(killed);
        };
        let deadline = tokio::time::Instant::now() + DEATH_PATIENCE;
        while !self.end_if_over(&tenancy) {
            if tokio::time::Instant::now() >= deadline {
                return Err(Failure::Unkillable { name: name.clone(), pids: pids(&tenancy) });
            }
            // Bounded, so that nobody's departure can be missed between the look and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(20), tenancy.left.notified()).await;
        }
        Ok(killed)
    }

    /// From here on the slice lets nobody in.
    fn begin_deletion(&self, name: &SliceName, force: bool, actor: &Actor) -> Result<Begun, Failure> {
        let mut core = self.core();
        if core.is_stranded(name) {
            return self.delete_unserved(&mut core, name, force).map(Begun::Over);
        }
        let tenancy = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let users = pids(&tenancy);
        if !users.is_empty() && !force {
            return Err(Failure::InUse { name: name.clone(), pids: users });
        }
        let _ = tenancy.ended_by.set(actor.clone()); // or another asked for it before
        tenancy.end();
        point("delete: ending");
        Ok(Begun::Serving(tenancy))
    }

    /// Removes a slice whose time is over; says whether it is gone.
    pub(crate) fn end_if_over(&self, tenancy: &Arc<Tenancy>) -> bool {
        let mut core = self.core();
        let name = &tenancy.name;
        let current = core.live.get(name).is_some_and(|live| Arc::ptr_eq(live, tenancy));
        let Some(slice) = core.node.slice(name).ok().filter(|_| current) else { return true };
        if !tenancy.end_if_over(slice.ephemeral, monotonic_ms()) {
            return false;
        }
        self.forget(&mut core, name);
        point("delete: forgotten");
        if let Err(failure) = core.save(&self.layout) {
            tracing::error!(%failure, "a slice that ended would come back after a restart");
        }
        point("delete: recorded");
        drop(core);
        let deleted = match tenancy.ended_by.get() {
            Some(actor) => Happening::new(Kind::SliceDeleted, "it was deleted").asked_by(actor.clone()),
            None => Happening::new(Kind::SliceDeleted, "it has ended"),
        };
        self.events.record(deleted.of(name));
        self.events.forget(name);
        self.room_appeared();
        true
    }
}

fn pids(tenancy: &Tenancy) -> Vec<HostPid> {
    tenancy.occupants().pids().into_iter().collect()
}
