//! Pauses before another start of a member: after a start that failed, and after each end of a service.

use std::time::Duration;

use tranche_domain::jobs::{MemberId, ServiceSpec};

use crate::clock::Now;
use crate::record::Run;
use crate::sight::Sight;
use crate::state::ControllerState;

/// A member that is started again after a pause.
#[derive(Clone, Debug)]
pub(crate) struct PausedMember {
    cause: PauseCause,
    /// Number of consecutive occurrences of the cause.
    times: u32,
    why: String,
}

/// Cause of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PauseCause {
    /// The slice or the job runner could not be created.
    NotStarted,
    /// The service's command ended.
    Ended,
}

impl PausedMember {
    /// First and maximum pause before another attempt.
    const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

    /// Pause before the next start; doubles each time.
    pub(crate) fn pause(&self) -> Duration {
        let [first, last] = Self::PAUSES;
        last.min(first * (1 << self.times.saturating_sub(1).min(8)))
    }

    /// Reason for the pause, within the requester's rights.
    pub(crate) fn reason(&self, sight: Sight) -> String {
        let Self { cause, times, why } = self;
        let times = if *times == 1 { "once".into() } else { format!("{times} times") };
        match cause {
            PauseCause::NotStarted => {
                format!("it could not be started, {times} so far, and is tried again: {why}")
            }
            // The outcome may name programs and paths of the owner.
            PauseCause::Ended if sight < Sight::Project => {
                format!("its command ended, {times} in a row, and is started again")
            }
            PauseCause::Ended => format!("its command ended, {times} in a row, and is started again: {why}"),
        }
    }
}

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
