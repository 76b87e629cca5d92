//! What a desk has in memory: the board, what else is known of each job, and who is being looked after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tranche_domain::jobs::{
    Action, Exit, JobId, JobName, MemberId, MilliGpus, Phase, ProjectName, QuotaScheduler, SavedBinding,
    TicketId,
};
use tranche_domain::slice::ProcessId;

use crate::clock::{Clock, Now};
use crate::entry::{End, Entry, Reason, Run};
use crate::history::Point;
use crate::store::{Changes, KeptJob, KeptNode};

/// Everything that changes together.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) scheduler: QuotaScheduler,
    pub(crate) entries: BTreeMap<JobId, Entry>,
    pub(crate) names: BTreeMap<(ProjectName, JobName), JobId>,
    pub(crate) tended: BTreeMap<MemberId, Arc<Tended>>,
    /// Members that could not be started, until they are, or have left.
    pub(crate) refused: BTreeMap<MemberId, Refused>,
    /// What has changed and is not kept yet.
    pub(crate) unkept: Changes,
    /// Jobs of which something has.
    pub(crate) dirty: BTreeSet<JobId>,
    /// Jobs that nobody has looked at yet.
    pub(crate) fresh: BTreeSet<JobId>,
    /// Tickets of jobs that are over, to be voided once that is kept.
    pub(crate) revoked: Vec<TicketId>,
    /// What was noted because the last changes could not be kept.
    pub(crate) trouble: Option<String>,
    /// Moves that are made once they are kept.
    pub(crate) moves: Vec<Action>,
    /// Places, as they were when moves were made last.
    pub(crate) places: BTreeMap<MemberId, SavedBinding>,
    /// What each job had then.
    pub(crate) had: BTreeMap<JobId, MilliGpus>,
    pub(crate) node: KeptNode,
    /// How often members of each project were told to leave for others, since this daemon began.
    pub(crate) preempted: BTreeMap<ProjectName, u64>,
}

/// A member that is being looked after.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    /// Told when it is to leave.
    pub(crate) leave: Notify,
    /// The process that looks after it, once it runs.
    pub(crate) shepherd: std::sync::OnceLock<ProcessId>,
}

/// A member that could not be started when it was tried last.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// How often in a row.
    times: u32,
    why: String,
}

impl Refused {
    /// Until the first and the last time that it is tried again.
    const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

    /// Until it is tried again: twice as long each time.
    fn pause(&self) -> Duration {
        let [first, last] = Self::PAUSES;
        last.min(first * (1 << self.times.saturating_sub(1).min(8)))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.times == 1 { "once".into() } else { format!("{} times", self.times) };
        write!(f, "it could not be started, {times} so far, and is tried again: {}", self.why)
    }
}

impl State {
    /// A job that a caller names.
    pub(crate) fn find(&self, project: &ProjectName, name: &JobName) -> Option<JobId> {
        self.names.get(&(project.clone(), name.clone())).copied()
    }

    /// How many jobs of a user have not ended.
    pub(crate) fn unended_of(&self, uid: u32) -> usize {
        let has_not = |entry: &&Entry| entry.owner.uid == uid && entry.ended_unix_ms.is_none();
        self.entries.values().filter(has_not).count()
    }

    pub(crate) fn insert(&mut self, id: JobId, entry: Entry) {
        self.names.insert((entry.spec.project.clone(), entry.spec.name.clone()), id);
        self.entries.insert(id, entry);
        self.dirty.insert(id);
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.names.remove(&(entry.spec.project, entry.spec.name));
            self.revoked.extend(entry.ticket);
        }
        self.dirty.remove(&id);
        self.fresh.remove(&id);
        self.refused.retain(|member, _| member.job != id);
        self.unkept.jobs_gone.push(id);
    }

    /// Tells members to leave, and why.
    pub(crate) fn send_off(&mut self, members: &[MemberId], reason: &Reason) {
        for member in members {
            self.give_reason(*member, reason.clone());
            if let Some(tended) = self.tended.get(member) {
                tended.leave.notify_one();
            }
        }
    }

    /// Why a member has to leave; who has to leave for good does so, whatever comes after.
    fn give_reason(&mut self, member: MemberId, reason: Reason) {
        let Some(entry) = self.entries.get_mut(&member.job) else { return };
        let farewell = &mut entry.member_mut(member.index).farewell;
        if farewell.as_ref().is_none_or(Reason::is_for_now) {
            *farewell = Some(reason);
            self.dirty.insert(member.job);
        }
    }

    /// Decides who moves, and writes down who does.
    pub(crate) fn decide(&mut self, now: Now) {
        let moves = self.scheduler.decide();
        self.fresh.clear();
        for one in &moves {
            self.note(one, now);
        }
        self.moves.extend(moves);
        self.note_places(now.unix_ms);
    }

    fn note(&mut self, one: &Action, now: Now) {
        match one {
            Action::Start { member, .. } => {
                let Some(entry) = self.entries.get_mut(&member.job) else { return };
                let started = entry.member_mut(member.index);
                started.starts += 1;
                (started.started_unix_ms, started.started) = (now.unix_ms, now.moment());
                (started.farewell, started.end) = (None, None);
            }
            Action::Stop { member, by } => {
                let Some(by) = self.entries.get(&by.job).map(|by| by.spec.clone()) else { return };
                self.give_reason(*member, Reason::Preempted(by.project, by.name));
                if let Some(entry) = self.entries.get(&member.job) {
                    *self.preempted.entry(entry.spec.project.clone()).or_default() += 1;
                }
            }
        }
    }

    /// Jobs whose places are others than before have to be kept.
    fn note_places(&mut self, now_unix_ms: u64) {
        let now: BTreeMap<_, _> =
            self.scheduler.all_saved_bindings().into_iter().map(|kept| (kept.member, kept)).collect();
        let changed = |one: &BTreeMap<MemberId, SavedBinding>, other: &BTreeMap<MemberId, SavedBinding>| {
            let differs = one.iter().filter(|(member, kept)| other.get(member) != Some(kept));
            differs.map(|(member, _)| member.job).collect::<Vec<_>>()
        };
        self.dirty.extend(changed(&now, &self.places));
        self.dirty.extend(changed(&self.places, &now));
        self.places = now;
        self.note_history(now_unix_ms);
    }

    fn note_history(&mut self, time_unix_ms: u64) {
        let mut has: BTreeMap<JobId, MilliGpus> = BTreeMap::new();
        for kept in self.places.values().filter(|kept| kept.phase == Phase::Running) {
            if let Some(entry) = self.entries.get(&kept.member.job) {
                let sum = has.entry(kept.member.job).or_default();
                *sum = sum.plus(entry.spec.size.total());
            }
        }
        let of =
            |amounts: &BTreeMap<JobId, MilliGpus>, id: &JobId| amounts.get(id).copied().unwrap_or_default();
        let ids: BTreeSet<JobId> = self.had.keys().chain(has.keys()).copied().collect();
        for id in ids.iter().filter(|id| of(&self.had, id) != of(&has, id)) {
            let Some(entry) = self.entries.get(id) else { continue };
            let (project, job) = (entry.spec.project.clone(), entry.spec.name.clone());
            self.unkept.points.push(Point { time_unix_ms, project, job, gpus: of(&has, id) });
        }
        self.had = has;
    }

    /// A member could not be started; says until when it is tried again.
    pub(crate) fn refuse(&mut self, member: MemberId, why: String) -> Duration {
        let refused = self.refused.entry(member).or_default();
        *refused = Refused { times: refused.times.saturating_add(1), why };
        refused.pause()
    }

    /// A member has left; says how that was judged, and whether its job is over.
    pub(crate) fn left(&mut self, member: MemberId, run: Run, now: Now) -> Option<End> {
        self.tended.remove(&member);
        let entry = self.entries.get_mut(&member.job)?;
        let retries = entry.terms.retries;
        if !matches!(run, Run::Refused(_)) {
            self.refused.remove(&member);
        }
        let end = entry.member_mut(member.index).judge(run, retries);
        let forgotten = self.scheduler.jobs().get(&member.job).is_none_or(|job| job.deleted);
        let over = self
            .scheduler
            .member_exited(member, if end.is_some() { Exit::Completed } else { Exit::Requeued });
        self.dirty.insert(member.job);
        // So that what it had ends in the history before the job does.
        self.note_places(now.unix_ms);
        if over && forgotten {
            self.remove(member.job);
        } else if let Some(entry) = self.entries.get_mut(&member.job).filter(|_| over) {
            (entry.ended_unix_ms, entry.ended) = (Some(now.unix_ms), now.moment());
            self.revoked.extend(entry.ticket.take());
        }
        end
    }

    /// All that is to be kept now.
    pub(crate) fn changes(&mut self, boot: &str, clock: Clock) -> Changes {
        let node = KeptNode {
            next_job: self.scheduler.next_job_id(),
            hold: self.scheduler.reservation(),
            boot: boot.into(),
            marked: true,
            clock: Some(clock),
        };
        let jobs = self.dirty.iter().filter_map(|id| Some((*id, self.kept(*id)?))).collect();
        let mut changes = std::mem::take(&mut self.unkept);
        changes.jobs = jobs;
        changes.node = (node != self.node).then_some(node);
        changes
    }

    fn kept(&self, id: JobId) -> Option<KeptJob> {
        let entry = self.entries.get(&id)?.clone();
        Some(KeptJob {
            entry,
            job: self.scheduler.jobs().get(&id).cloned(),
            places: self.scheduler.saved_bindings(id),
        })
    }

    /// They are.
    pub(crate) fn kept_now(&mut self, changes: Changes) {
        self.dirty.clear();
        self.node = changes.node.unwrap_or_else(|| std::mem::take(&mut self.node));
    }

    /// They are not: they have to be tried again.
    pub(crate) fn not_kept(&mut self, mut changes: Changes) {
        changes.jobs.clear();
        self.unkept = changes;
    }
}
