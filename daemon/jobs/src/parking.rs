//! Members that are parked instead of stopped.
//!
//! Laws:
//! - A member is parked only for a preemption or a suspension, and stopped where it cannot be parked.
//! - Its GPUs are free for others only once its slice is parked, and its slice returns only once it has them again.
//! - The time in which it is parked counts for no limit.
//! - The members of a gang return together: where one does not, its mates are parked again.

use std::time::Duration;

use tokio::time::sleep;
use tranche_domain::jobs::MemberId;
use tranche_shm::crash::point;

use crate::clock::{JobTime, Now};
use crate::controller::JobController;
use crate::record::{StopReason, StoredMember};
use crate::site::{JobCondition, JobSite, JobSlice, Preemption, UnparkFailure};
use crate::state::ControllerState;

/// Pause after a return that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Time after which a parked member starts over on other GPUs, where it could start at once.
const PATIENCE: Duration = Duration::from_hours(1);

impl<S: JobSite> JobController<S> {
    /// Parks a member that has to leave; false if it has to be stopped instead.
    pub(crate) async fn park(&self, member: MemberId, slice: &JobSlice) -> bool {
        let reason = self.state().reason_to_park(member);
        let Some(reason) = reason.filter(|_| self.site.preemption() == Preemption::Park) else {
            return false;
        };
        point("jobs: parking");
        if let Err(why) = self.site.park(slice).await {
            self.folders.note(member, &format!("{reason}, and stopped: {why}"));
            return false;
        }
        point("jobs: parked");
        self.folders.note(member, &format!("{reason}: its device memory lies in host memory, and it waits"));
        let now = self.now();
        self.state().enter_parked(member, now);
        self.bell.notify_one();
        true
    }

    /// Brings a member's slice back to the GPUs that it has again. Where it stays parked, it waits as before. Returns false if
    /// it is on its way, so that the call has to be repeated.
    pub(crate) async fn unpark(&self, member: MemberId, slice: &JobSlice) -> bool {
        let condition = JobCondition::NotStarted(slice.name.clone());
        match self.site.unpark(slice).await {
            Err(UnparkFailure::OnItsWay(why)) => {
                self.site.set_condition(condition, format!("job {}: {why}", slice.name));
                sleep(PAUSE).await;
                return false;
            }
            Ok(true) => self.folders.note(member, "it is on its GPUs again, and continues"),
            Ok(false) => {}
            Err(UnparkFailure::Parked(why)) => {
                self.state().give_reason(member, StopReason::NotBack(why));
                let is_gang = self.state().scheduler.is_gang(member.job);
                // The mates of its gang leave at once, which takes them longer than the pause.
                if !is_gang {
                    sleep(PAUSE).await;
                }
                let now = self.now();
                self.state().enter_parked(member, now);
                self.bell.notify_one();
                if is_gang {
                    sleep(PAUSE).await;
                }
            }
        }
        self.site.clear_condition(condition);
        true
    }
}

impl ControllerState {
    /// Reason for which a member has to leave, if it has to.
    pub(crate) fn farewell(&self, member: MemberId) -> Option<StopReason> {
        self.member(member)?.farewell.clone()
    }

    /// Reason for which a member leaves, if it may continue later.
    ///
    /// A service may not: its clients would wait, and its check of health would fail.
    fn reason_to_park(&self, member: MemberId) -> Option<StopReason> {
        let is_service = self.entries.get(&member.job)?.spec.service.is_some();
        self.farewell(member).filter(|reason| !is_service && reason.may_continue())
    }

    /// Tests if a member has to leave, and is not parked for it.
    pub(crate) fn has_to_leave(&self, member: MemberId) -> bool {
        let is_parked = self.scheduler.is_parked(member);
        self.farewell(member).is_some_and(|reason| !(is_parked && reason.may_continue()))
    }

    /// Frees the GPUs of a member whose slice is parked.
    fn enter_parked(&mut self, member: MemberId, now: Now) {
        self.scheduler.member_parked(member);
        if let Some(entry) = self.entries.get_mut(&member.job) {
            entry.member_mut(member.index).parked.get_or_insert(now.moment());
            self.dirty.insert(member.job);
        }
        self.record_bindings(now);
    }

    /// Records that a parked member has its GPUs again.
    pub(crate) fn note_return(&mut self, member: MemberId, now: Now) {
        if let Some(entry) = self.entries.get_mut(&member.job) {
            entry.member_mut(member.index).end_parking(now.moment());
            self.dirty.insert(member.job);
        }
    }

    /// Has members start over that have been parked for long, and could start elsewhere at once.
    pub(crate) fn restart_long_parked(&mut self, now: JobTime) {
        let parked: Vec<MemberId> = self.scheduler.parked().collect();
        for member in parked {
            let waits = self
                .member(member)
                .filter(|known| known.farewell.as_ref().is_some_and(StopReason::may_continue));
            let since = waits.and_then(|known| known.parked);
            let is_long = since.is_some_and(|since| now.since(since) >= PATIENCE);
            if is_long && self.scheduler.starts_elsewhere(member) {
                self.request_stop(&[member], &StopReason::Elsewhere);
            }
        }
    }
}

impl StoredMember {
    /// Ends the time in which it was parked, which does not count for its runtime.
    fn end_parking(&mut self, now: JobTime) {
        self.farewell = None;
        if let Some(since) = self.parked.take() {
            self.started = JobTime(self.started.0.saturating_add(now.since(since)));
        }
    }
}
