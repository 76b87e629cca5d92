//! Reconcile loop: reads the node, decides, saves, and carries out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tranche_domain::jobs::{Action, MemberActivity, MemberId, MilliGpus, UserSlice};
use tranche_shm::crash::point;

use crate::claims::JobClaims;
use crate::clock::{JobTime, Now};
use crate::controller::JobController;
use crate::lifecycle::{self, Begin};
use crate::log_budget::{Budget, LogUse, cut, on_disk};
use crate::record::StopReason;
use crate::site::{Happened, JobCondition, JobSite, NodeUse, What};
use crate::state::ControllerState;

/// Interval of checking limits and other state that changes without a notification.
const TURN: Duration = Duration::from_secs(1);

/// Interval of checking the size of logs.
const LOGS: Duration = Duration::from_secs(10);

/// Interval of saving the clock when nothing else is saved; a reboot loses at most this much.
const TICK: Duration = Duration::from_hours(1);

/// Tests if the clock or the account has to be saved again.
fn is_old(state: &ControllerState, now: Now) -> bool {
    state.account.is_due(state.saved_account.as_ref(), now.moment())
        || state.node.clock.is_none_or(|kept| now.moment().since(kept.showed) >= TICK)
}

impl<S: JobSite> JobController<S> {
    /// Continues running jobs, decides whenever something has changed, and keeps logs within their budgets.
    /// Never returns.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(Arc::clone(&self).rounds(), self.logs());
    }

    async fn logs(self: Arc<Self>) {
        loop {
            sleep(LOGS).await;
            let controller = Arc::clone(&self);
            let cut = tokio::task::spawn_blocking(move || controller.bound_logs()).await.unwrap_or_default();
            match cut {
                Some(message) => self.site.set_condition(JobCondition::LogsNotCut, message),
                None => self.site.clear_condition(JobCondition::LogsNotCut),
            }
        }
    }

    /// Cuts logs to their budgets; returns a message for the operator if that failed.
    fn bound_logs(&self) -> Option<String> {
        let state = self.state();
        let members = state.entries.iter().flat_map(|(id, entry)| {
            entry.members.keys().map(|index| {
                let ended = entry.ended_unix_ms.map(|_| entry.ended);
                (MemberId { job: *id, index: *index }, entry.owner.uid, ended)
            })
        });
        let members: Vec<_> = members.collect();
        drop(state);
        let log = |(member, uid, ended)| {
            let path = self.folders.log(member);
            LogUse { bytes: on_disk(&path), path, uid, ended }
        };
        let logs = members.into_iter().map(log).filter(|log| log.bytes > 0).collect();
        let cuts = Budget::on_disk(self.folders.disk_size().ok()?).cuts(logs);
        let uids: BTreeSet<u32> = cuts.iter().map(|cut| cut.uid).collect();
        for one in &cuts {
            if let Err(error) = cut(one) {
                tracing::warn!(path = %one.path.display(), %error, "cannot give back what a log takes");
            }
        }
        let uids: Vec<String> = uids.iter().map(u32::to_string).collect();
        (!uids.is_empty()).then(|| {
            format!(
                "logs of jobs of user {} took more than there is room for: their beginnings are cut",
                uids.join(", ")
            )
        })
    }

    async fn rounds(self: Arc<Self>) {
        let running: Vec<MemberId> = self.state().supervised.keys().copied().collect();
        for member in running {
            tokio::spawn(lifecycle::supervise(Arc::clone(&self), member, Begin::Again));
        }
        let mut turn = Instant::now();
        loop {
            let (controller, begun) = (Arc::clone(&self), Instant::now());
            let late = begun >= turn;
            if late {
                turn = Instant::now() + TURN;
            }
            let (actions, idle) =
                tokio::task::spawn_blocking(move || controller.round(late)).await.unwrap_or_default();
            actions.into_iter().for_each(|one| self.carry_out(one));
            self.end_idle(idle);
            // Requests find the state free for as long as a round took, however many follow each other.
            sleep(begun.elapsed().min(TURN)).await;
            tokio::select! {
                () = self.bell.notified() => {}
                () = sleep_until(turn) => {}
            }
        }
    }

    /// Requests another round after a change of the node.
    pub fn look_again(&self) {
        self.bell.notify_one();
    }

    /// One round: decides and saves; returns the actions to carry out, and the users' slices to end.
    fn round(&self, late: bool) -> (Vec<Action>, Vec<UserSlice>) {
        let members = self.state().supervised.keys().copied().collect();
        let (gpus, users) = (self.site.gpus(&members), self.site.user_demand());
        let NodeUse { slices, ended } = self.site.node_use();
        let mut state = self.state();
        // An absent GPU takes no new members.
        let known: Vec<_> = state.scheduler.pool().gpus().map(|gpu| gpu.uuid).collect();
        for uuid in known {
            let here = gpus.iter().find(|gpu| gpu.uuid == uuid);
            let (outside, targets) =
                here.map_or((MilliGpus::ONE, Vec::new()), |gpu| (gpu.outside, gpu.targets.clone()));
            state.scheduler.set_outside(uuid, outside, targets);
            state.scheduler.set_cordon(uuid, here.and_then(|gpu| gpu.cordon.clone()));
        }
        state.scheduler.set_user_requests(users.requests);
        state.scheduler.set_user_slices(users.slices);
        state.knows_users = true;
        state.node_use.slices = slices;
        // What was not entered yet is entered with it.
        ended.into_iter().for_each(|(of, used)| *state.node_use.ended.entry(of).or_default() += used);
        let (now, mut forgotten, mut idle) = (self.now(), Vec::new(), Vec::new());
        if late {
            idle = self.apply_idle_policies(&mut state);
            self.stop_overdue(&mut state, now.moment());
            state.restart_long_parked(now.moment());
            forgotten = self.retention.expired(&state.entries, now.moment());
            forgotten.iter().for_each(|id| state.remove(*id));
        }
        self.settle_successors(&mut state, now);
        state.decide(now);
        self.site.set_claims(JobClaims::of(&state.scheduler));
        if state.dirty.is_empty()
            && state.actions.is_empty()
            && state.unsaved.is_empty()
            && !is_old(&state, now)
        {
            return (Vec::new(), idle);
        }
        let actions = self.save_actions(&mut state);
        drop(state);
        forgotten.into_iter().for_each(|id| self.folders.remove(id));
        (actions, idle)
    }

    /// Saves all changes; returns the actions that are now saved.
    fn save_actions(&self, state: &mut ControllerState) -> Vec<Action> {
        match self.save(state) {
            Ok(()) => {
                self.site.clear_condition(JobCondition::NotSaved);
                let actions = std::mem::take(&mut state.actions);
                for one in &actions {
                    if let Action::Start { member, .. } = one
                        && state.entries.contains_key(&member.job)
                    {
                        state.supervised.insert(*member, Arc::default());
                    }
                }
                actions
            }
            Err(error) => {
                // Unsaved actions wait for the next round.
                self.site.set_condition(JobCondition::NotSaved, format!("jobs stay as they are: {error}"));
                Vec::new()
            }
        }
    }

    fn carry_out(self: &Arc<Self>, one: Action) {
        match one {
            Action::Start { member, gpus } => {
                let request = self.state().scheduler.user_request(member);
                if let Some(request) = request {
                    return self.site.grant(request, gpus);
                }
                tokio::spawn(lifecycle::supervise(Arc::clone(self), member, Begin::Fresh(gpus)));
            }
            Action::Unpark { member } => {
                if let Some(supervised) = self.state().supervised.get(&member) {
                    supervised.back.notify_one();
                }
            }
            Action::Recall { member, .. } => self.state().notify_leave(member),
            Action::Stop { member, by } => {
                let slice = self.state().scheduler.user_slice(member).cloned();
                if let Some(slice) = slice {
                    let (controller, reason) = (Arc::clone(self), self.reason_to_end(by));
                    tokio::spawn(async move { controller.site.end_user_slice(&slice, reason).await });
                    return;
                }
                point("jobs: leaving");
                self.record_event(member, What::Preempted);
                self.state().notify_leave(member);
            }
        }
    }

    /// Reason for ending a user's slice for this member, for the slice's owner.
    fn reason_to_end(&self, by: MemberId) -> String {
        let state = self.state();
        let spec = state.scheduler.jobs().get(&by.job).map(|job| &job.spec);
        let other = match spec {
            Some(spec) if state.scheduler.user_request(by).is_some() => {
                format!("a slice that project {} waits for", spec.project)
            }
            Some(spec) => format!("job {}/{}", spec.project, spec.name),
            None => "a job".into(),
        };
        format!("it was beyond its project's quota, and {other} is within its own")
    }

    /// Stops members that exceed a limit.
    fn stop_overdue(&self, state: &mut ControllerState, now: JobTime) {
        let supervised =
            state.supervised.iter().filter(|(_, supervised)| supervised.shepherd.get().is_some());
        let supervised = supervised.filter(|(member, _)| !state.scheduler.is_parked(**member));
        let overdue: Vec<(MemberId, String)> = supervised
            .filter_map(|(member, _)| Some((*member, self.overdue(state, *member, now)?)))
            .collect();
        for (member, why) in overdue {
            if state.farewell(member).is_none() {
                self.record_event_of(state, member, What::Overdue, &why);
                state.request_stop(&[member], &StopReason::Overdue(why));
            }
        }
    }

    fn overdue(&self, state: &ControllerState, member: MemberId, now: JobTime) -> Option<String> {
        let entry = state.entries.get(&member.job)?;
        let project = state.scheduler.project(&entry.spec.project).ok()?;
        let running = now.since(entry.members.get(&member.index)?.started);
        let slice = entry.slice(member);
        let counts_as_idle = self.site.idle(&slice).is_some_and(|idle| idle <= running);
        let did = MemberActivity { running, idle: self.site.unused(&slice).min(running), counts_as_idle };
        project.overdue(&entry.spec, entry.terms.max_runtime, did).map(|overdue| overdue.to_string())
    }

    /// Records an event about a member, with default evidence.
    pub(crate) fn record_event(&self, member: MemberId, what: What) {
        let state = self.state();
        let evidence = state.farewell(member).map(|reason| reason.to_string()).unwrap_or_default();
        self.record_event_of(&state, member, what, &evidence);
    }

    pub(crate) fn record_event_of(
        &self,
        state: &ControllerState,
        member: MemberId,
        what: What,
        evidence: &str,
    ) {
        if let Some(entry) = state.entries.get(&member.job) {
            let slice = entry.slice(member);
            self.site.record(Happened { what, slice, evidence: evidence.into() });
        }
    }
}
