//! Pauses before another start of a member: after a start that failed, and after each end of a service.

use tranche_domain::jobs::{MemberId, ServiceSpec};

use crate::clock::Now;
use crate::paused::{PauseCause, PausedMember};
use crate::record::Run;
use crate::state::ControllerState;

impl ControllerState {
    /// Records that a member is started again after a pause; `None` if its run is followed by none.
    pub(crate) fn pause_after(&mut self, member: MemberId, run: &Run, now: Now) -> Option<PausedMember> {
        let entry = self.entries.get_mut(&member.job)?;
        let is_service = entry.spec.service.is_some();
        let paused = match run {
            Run::Refused(why) => {
                let times = self.paused.get(&member).map_or(0, |paused| paused.times).saturating_add(1);
                PausedMember { cause: PauseCause::NotStarted, times, why: why.clone() }
            }
            Run::Ended { outcome, told: false } if is_service => {
                let known = entry.member_mut(member.index);
                if known.farewell.is_some() {
                    return None;
                }
                if now.moment().since(known.started) >= ServiceSpec::STEADY {
                    known.failures = 0;
                }
                known.failures = known.failures.saturating_add(1);
                self.dirty.insert(member.job);
                PausedMember { cause: PauseCause::Ended, times: known.failures, why: outcome.to_string() }
            }
            _ => return None,
        };
        self.paused.insert(member, paused.clone());
        Some(paused)
    }
}
