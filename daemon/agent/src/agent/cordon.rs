//! Cordons: GPUs that an operator closed to further slices.

use std::time::{Duration, UNIX_EPOCH};

use tranche_domain::access::Verb;
use tranche_domain::cordon::{Cordon, Cordoned, Reason};
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::GpuSelector;
use tranche_domain::node::{Node, Refusal};
use tranche_domain::text::visible;

use super::Agent;
use crate::access::{Caller, actor_of};
use crate::failure::Requested;
use tranche_linux::clock::now_unix_ms;

impl Agent {
    /// Closes GPUs to further slices.
    pub(crate) fn cordon(
        &self,
        gpus: &[GpuSelector],
        reason: Option<Reason>,
        caller: &Caller,
    ) -> Requested<Vec<Cordoned>> {
        let cordon = cordon(caller.uid, now_unix_ms(), reason);
        let done = self.change_cordons(caller, |node| node.cordon(gpus, &cordon))?;
        self.record_cordons(&done, EventKind::GpuCordoned, caller, |gpu| match &gpu.cordon {
            Some(cordon) => cordon.told.clone(),
            None => String::new(),
        });
        Ok(done)
    }

    /// Opens GPUs to slices again.
    pub(crate) fn uncordon(&self, gpus: &[GpuSelector], caller: &Caller) -> Requested<Vec<Cordoned>> {
        let done = self.change_cordons(caller, |node| node.uncordon(gpus))?;
        let who = actor_of(caller.uid);
        self.record_cordons(&done, EventKind::GpuUncordoned, caller, |_| format!("uncordoned by {who}"));
        Ok(done)
    }

    fn change_cordons(
        &self,
        caller: &Caller,
        change: impl FnOnce(&mut Node) -> Result<Vec<Cordoned>, Refusal>,
    ) -> Requested<Vec<Cordoned>> {
        self.gate.permit(caller, Verb::Administer)?;
        let mut core = self.core();
        let before = core.node.cordons().clone();
        let done = change(&mut core.node)?;
        if let Err(failure) = core.save() {
            core.node.restore_cordons(before);
            return Err(failure);
        }
        Ok(done)
    }

    fn record_cordons(
        &self,
        done: &[Cordoned],
        kind: EventKind,
        caller: &Caller,
        told: impl Fn(&Cordoned) -> String,
    ) {
        let actor = caller.actor();
        for gpu in done.iter().filter(|gpu| gpu.changed) {
            let told = format!("GPU {}: {}", gpu.index, told(gpu));
            self.telemetry.record(Happening::new(kind.clone(), told).on(gpu.uuid).asked_by(actor.clone()));
        }
        self.faults.changed();
        self.notify_capacity();
    }
}

fn cordon(by_uid: u32, since_unix_ms: u64, reason: Option<Reason>) -> Cordon {
    let since = UNIX_EPOCH + Duration::from_millis(since_unix_ms);
    let since = humantime::format_rfc3339_seconds(since);
    let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let told = format!("cordoned by {} since {since}{why}", actor_of(by_uid));
    Cordon { by_uid, since_unix_ms, reason, told: visible(&told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cordon_shows_user_time_and_reason() {
        let told = cordon(0, 1_767_323_090_007, Some("fan is loud".parse().unwrap())).told;
        assert_eq!(told, "cordoned by root (uid 0) since 2026-01-02T03:04:50Z: fan is loud");
        let told = cordon(54321, 0, None).told;
        assert_eq!(told, "cordoned by uid 54321 since 1970-01-01T00:00:00Z");
    }
}
