//! The rounds of the desk: what has changed outside is looked at, moves are decided, kept, and made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tranche_domain::jobs::{Action, Activity, MemberId, MilliGpus};
use tranche_shm::crash::point;

use crate::budget::{Budget, LogUse, cut, on_disk};
use crate::clock::{Moment, Now};
use crate::desk::Desk;
use crate::entry::Reason;
use crate::life::{self, Begin};
use crate::site::{Happened, Site, What};
use crate::state::State;

/// How often limits are looked at, and what else nobody tells us of.
const TURN: Duration = Duration::from_secs(1);

/// How often it is looked how much logs take.
const LOGS: Duration = Duration::from_secs(10);

/// How often the clock is kept where nothing else is: so much of the age of ended jobs is lost by a reboot.
const TICK: Duration = Duration::from_hours(1);

/// Whether the clock has to be kept again.
fn is_old(state: &State, now: Now) -> bool {
    state.node.clock.is_none_or(|kept| now.moment().since(kept.showed) >= TICK)
}

impl<S: Site> Desk<S> {
    /// Continues running jobs, decides whenever something has changed, and keeps logs within their budgets.
    /// Never returns.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(Arc::clone(&self).rounds(), self.logs());
    }

    async fn logs(self: Arc<Self>) {
        let mut noted = None;
        loop {
            sleep(LOGS).await;
            let desk = Arc::clone(&self);
            let cut = tokio::task::spawn_blocking(move || desk.bound_logs()).await.unwrap_or_default();
            if cut == noted {
                continue;
            }
            noted.iter().for_each(|note: &String| self.site.withdraw(note));
            cut.iter().for_each(|note| self.site.note(note.clone()));
            noted = cut;
        }
    }

    /// Cuts logs that take more than there is room for; returns what an operator should know of it.
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
        let running: Vec<MemberId> = self.state().tended.keys().copied().collect();
        for member in running {
            tokio::spawn(life::live(Arc::clone(&self), member, Begin::Again));
        }
        let mut turn = Instant::now();
        loop {
            let (desk, late) = (Arc::clone(&self), Instant::now() >= turn);
            if late {
                turn = Instant::now() + TURN;
            }
            let moves = tokio::task::spawn_blocking(move || desk.round(late)).await.unwrap_or_default();
            moves.into_iter().for_each(|one| self.make(one));
            tokio::select! {
                () = self.bell.notified() => {}
                () = sleep_until(turn) => {}
            }
        }
    }

    /// Something of the node has changed that matters to jobs.
    pub fn look_again(&self) {
        self.bell.notify_one();
    }

    /// Decides and keeps that; what is kept is returned, to be done.
    fn round(&self, late: bool) -> Vec<Action> {
        let members = self.state().tended.keys().copied().collect();
        let gpus = self.site.gpus(&members);
        let mut state = self.state();
        // A GPU that is not here any more takes nobody.
        let known: Vec<_> = state.scheduler.pool().gpus().map(|gpu| gpu.uuid).collect();
        for uuid in known {
            let here = gpus.iter().find(|gpu| gpu.uuid == uuid);
            state.scheduler.set_outside(uuid, here.map_or(MilliGpus::ONE, |gpu| gpu.outside));
        }
        let (now, mut forgotten) = (self.now(), Vec::new());
        if late {
            self.send_home(&mut state, now.moment());
            forgotten = self.retention.expired(&state.entries, now.moment());
            forgotten.iter().for_each(|id| state.remove(*id));
        }
        state.decide(now);
        if state.dirty.is_empty() && state.moves.is_empty() && state.unkept.is_empty() && !is_old(&state, now)
        {
            return Vec::new();
        }
        let moves = self.keep_moves(&mut state);
        drop(state);
        forgotten.into_iter().for_each(|id| self.folders.remove(id));
        moves
    }

    /// Keeps all that has changed; the moves that are kept are to be made.
    fn keep_moves(&self, state: &mut State) -> Vec<Action> {
        match self.keep(state) {
            Ok(()) => {
                state.trouble.take().iter().for_each(|note| self.site.withdraw(note));
                let moves = std::mem::take(&mut state.moves);
                for one in &moves {
                    if let Action::Start { member, .. } = one {
                        state.tended.insert(*member, Arc::default());
                    }
                }
                moves
            }
            Err(error) => {
                // They are made when they can be kept; it is tried again with the next round.
                let note = format!("jobs stay as they are: {error}");
                if state.trouble.as_ref() != Some(&note) {
                    state.trouble.replace(note.clone()).iter().for_each(|note| self.site.withdraw(note));
                    self.site.note(note);
                }
                Vec::new()
            }
        }
    }

    fn make(self: &Arc<Self>, one: Action) {
        match one {
            Action::Start { member, gpus } => {
                tokio::spawn(life::live(Arc::clone(self), member, Begin::Fresh(gpus)));
            }
            Action::Stop { member, .. } => {
                point("jobs: leaving");
                self.tell(member, What::Preempted);
                if let Some(tended) = self.state().tended.get(&member) {
                    tended.leave.notify_one();
                }
            }
        }
    }

    /// Those who ran, or were idle, for longer than they may.
    fn send_home(&self, state: &mut State, now: Moment) {
        let tended = state.tended.iter().filter(|(_, tended)| tended.shepherd.get().is_some());
        let overdue: Vec<(MemberId, String)> =
            tended.filter_map(|(member, _)| Some((*member, self.overdue(state, *member, now)?))).collect();
        for (member, why) in overdue {
            let already = state
                .entries
                .get(&member.job)
                .and_then(|entry| entry.members.get(&member.index)?.farewell.as_ref());
            if already.is_none() {
                self.tell_of(state, member, What::Overdue, &why);
                state.send_off(&[member], &Reason::Overdue(why));
            }
        }
    }

    fn overdue(&self, state: &State, member: MemberId, now: Moment) -> Option<String> {
        let entry = state.entries.get(&member.job)?;
        let project = state.scheduler.project(&entry.spec.project).ok()?;
        let running = now.since(entry.members.get(&member.index)?.started);
        let idle = match project.idle_limit {
            Some(_) => self.site.idle(&entry.slice(member)),
            None => Duration::ZERO,
        };
        let did = Activity { running, idle: idle.min(running) };
        project.overdue(entry.spec.kind, entry.terms.max_runtime, did).map(|overdue| overdue.to_string())
    }

    /// Tells of a member what there is to say.
    pub(crate) fn tell(&self, member: MemberId, what: What) {
        let state = self.state();
        let reason = state
            .entries
            .get(&member.job)
            .and_then(|entry| entry.members.get(&member.index)?.farewell.clone());
        let evidence = reason.map(|reason| reason.to_string()).unwrap_or_default();
        self.tell_of(&state, member, what, &evidence);
    }

    pub(crate) fn tell_of(&self, state: &State, member: MemberId, what: What, evidence: &str) {
        if let Some(entry) = state.entries.get(&member.job) {
            let slice = entry.slice(member);
            self.site.record(Happened { what, slice, evidence: evidence.into() });
        }
    }
}
