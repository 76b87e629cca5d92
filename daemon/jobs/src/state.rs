//! In-memory state of the job controller: quota scheduler, job records and supervised members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{
    Action, Exit, JobId, JobName, JobRefusal, MemberId, MilliGpus, Phase, Project, ProjectName,
    ProjectRefusal, QuotaScheduler, SavedBinding, TicketId,
};
use tranche_domain::slice::ProcessId;

use crate::account::{EntryId, SavedAccount, UseAccount, UseSum};
use crate::clock::{Clock, Now};
use crate::error::JobsError;
use crate::history::{Allocations, EntryName, slice_entry};
use crate::paused::PausedMember;
use crate::record::{JobRecord, MemberEnd, Run, StopReason, StoredMember};
use crate::site::NodeUse;
use crate::store::{Changes, SavedJob, SavedNode};

/// All state that changes under one lock.
#[derive(Debug, Default)]
pub(crate) struct ControllerState {
    pub(crate) scheduler: QuotaScheduler,
    pub(crate) entries: BTreeMap<JobId, JobRecord>,
    pub(crate) names: BTreeMap<(ProjectName, JobName), JobId>,
    /// Jobs that have not ended, by the uid of their owner.
    pub(crate) unended: BTreeMap<u32, BTreeSet<JobId>>,
    pub(crate) supervised: BTreeMap<MemberId, Arc<Supervised>>,
    /// Members that are started again after a pause, until a start succeeds or they exit.
    pub(crate) paused: BTreeMap<MemberId, PausedMember>,
    /// Changes that are not saved yet.
    pub(crate) unsaved: Changes,
    /// Jobs with unsaved changes.
    pub(crate) dirty: BTreeSet<JobId>,
    /// Jobs that were submitted since the last round.
    pub(crate) fresh: BTreeSet<JobId>,
    /// Tickets of ended jobs, to be revoked once that is saved.
    pub(crate) revoked: Vec<TicketId>,
    /// Actions to carry out once they are saved.
    pub(crate) actions: Vec<Action>,
    /// Bindings at the last decision.
    pub(crate) places: BTreeMap<MemberId, SavedBinding>,
    /// True once the scheduler has the users' slices of this node.
    pub(crate) knows_users: bool,
    /// GPUs of each job and user's slice at the last decision.
    pub(crate) had: Allocations,
    pub(crate) account: UseAccount,
    /// The account as this daemon saved it last.
    pub(crate) saved_account: Option<SavedAccount>,
    /// Use of the node's GPUs at the last round.
    pub(crate) node_use: NodeUse,
    pub(crate) node: SavedNode,
    /// Idle slices for which a note is set.
    pub(crate) alerted: BTreeSet<SliceName>,
    /// Users' slices that are being ended for their idleness, with the times of their creation.
    pub(crate) ending: BTreeSet<(SliceName, u64)>,
    /// Number of preempted members of each project since this daemon started.
    pub(crate) preempted: BTreeMap<ProjectName, u64>,
}

/// Supervision of a bound member.
#[derive(Debug, Default)]
pub(crate) struct Supervised {
    /// Notified when the member has to stop.
    pub(crate) leave: Notify,
    /// Notified when the parked member has its GPUs again.
    pub(crate) back: Notify,
    /// Its job runner, once started.
    pub(crate) shepherd: std::sync::OnceLock<ProcessId>,
    /// True once the service passed its check of health.
    pub(crate) healthy: AtomicBool,
}

impl ControllerState {
    /// The job with this name.
    pub(crate) fn find(&self, project: &ProjectName, name: &JobName) -> Option<JobId> {
        self.names.get(&(project.clone(), name.clone())).copied()
    }

    /// The project of this name, if it takes jobs.
    ///
    /// # Errors
    /// If there is none, or it is the default project and no administrator made it.
    pub(crate) fn project_with_jobs(&self, name: &ProjectName) -> Result<&Project, JobsError> {
        self.scheduler.project(name).map_err(|refusal| match refusal {
            ProjectRefusal::Unknown(_) => JobRefusal::NoProject(name.clone()).into(),
            refusal => refusal.into(),
        })
    }

    /// Number of a user's jobs that have not ended.
    pub(crate) fn unended_of(&self, uid: u32) -> usize {
        self.unended.get(&uid).map_or(0, BTreeSet::len)
    }

    /// Removes a job from those of its owner that have not ended.
    pub(crate) fn note_end(&mut self, uid: u32, id: JobId) {
        if let Some(of_user) = self.unended.get_mut(&uid) {
            of_user.remove(&id);
        }
    }

    pub(crate) fn insert(&mut self, id: JobId, entry: JobRecord) {
        self.names.insert((entry.spec.project.clone(), entry.spec.name.clone()), id);
        if entry.ended_unix_ms.is_none() {
            self.unended.entry(entry.owner.uid).or_default().insert(id);
        }
        self.entries.insert(id, entry);
        self.dirty.insert(id);
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.names.remove(&(entry.spec.project, entry.spec.name));
            self.revoked.extend(entry.ticket);
            self.note_end(entry.owner.uid, id);
        }
        self.dirty.remove(&id);
        self.fresh.remove(&id);
        self.paused.retain(|member, _| member.job != id);
        self.unsaved.jobs_gone.push(id);
    }

    /// The name with the lowest number that is free in the project.
    pub(crate) fn numbered_name(&self, project: &ProjectName, name: &JobName) -> JobName {
        let numbered = (1_u64..).find_map(|number| {
            let end = format!("-{number}");
            let room = JobName::MOST_BYTES.saturating_sub(end.len());
            let begin = name.as_str().get(..room).unwrap_or(name.as_str()).trim_end_matches('-');
            let free = format!("{begin}{end}").parse::<JobName>().ok()?;
            self.find(project, &free).is_none().then_some(free)
        });
        numbered.unwrap_or_else(|| name.clone())
    }

    /// Renames an ended job.
    pub(crate) fn rename(&mut self, id: JobId, name: JobName) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.spec.name, name.clone());
        let project = entry.spec.project.clone();
        self.names.remove(&(project.clone(), before));
        self.names.insert((project, name), id);
        self.dirty.insert(id);
    }

    /// Record of a member that was started at least once.
    pub(crate) fn member(&self, id: MemberId) -> Option<&StoredMember> {
        self.entries.get(&id.job)?.members.get(&id.index)
    }

    /// Has a supervised member stopped, or parked.
    pub(crate) fn notify_leave(&self, member: MemberId) {
        if let Some(supervised) = self.supervised.get(&member) {
            supervised.leave.notify_one();
        }
    }

    /// Requests members to stop for this reason.
    pub(crate) fn request_stop(&mut self, members: &[MemberId], reason: &StopReason) {
        for member in members {
            self.give_reason(*member, reason.clone());
            self.notify_leave(*member);
        }
    }

    /// Sets the reason of a member's stop; a permanent reason is never replaced.
    pub(crate) fn give_reason(&mut self, member: MemberId, reason: StopReason) {
        let Some(entry) = self.entries.get_mut(&member.job) else { return };
        let farewell = &mut entry.member_mut(member.index).farewell;
        if farewell.as_ref().is_none_or(StopReason::is_retryable) {
            *farewell = Some(reason);
            self.dirty.insert(member.job);
        }
    }

    /// Runs the quota scheduler, and records its decisions.
    pub(crate) fn decide(&mut self, now: Now) {
        let actions = self.scheduler.decide();
        self.fresh.clear();
        for one in &actions {
            self.note(one, now);
        }
        self.actions.extend(actions);
        self.record_bindings(now);
    }

    fn note(&mut self, one: &Action, now: Now) {
        match one {
            Action::Start { member, gpus } => {
                let Some(entry) = self.entries.get_mut(&member.job) else { return };
                let submitted = entry.submitted;
                let started = entry.member_mut(member.index);
                started.starts += 1;
                let is_first = started.starts == 1;
                (started.started_unix_ms, started.started) = (now.unix_ms, now.moment());
                (started.farewell, started.end) = (None, None);
                let wait = submitted.filter(|_| is_first).map(|submitted| now.moment().since(submitted));
                if let Some(holder) = gpus.first().map(|gpu| entry.holder(*gpu)) {
                    self.account.started(now, &holder, wait);
                }
            }
            Action::Unpark { member } => self.note_return(*member, now),
            Action::Recall { member, mate, continues } => {
                let reason = match continues {
                    true => StopReason::MateAway(mate.index),
                    false => StopReason::MateLeft(mate.index),
                };
                self.give_reason(*member, reason);
            }
            Action::Stop { member, by } => {
                // A user's request is a job to the scheduler alone.
                let Some(by) = self.scheduler.jobs().get(&by.job).map(|by| by.spec.clone()) else { return };
                self.give_reason(*member, StopReason::Preempted(by.project, by.name));
                if let Some(job) = self.scheduler.jobs().get(&member.job) {
                    *self.preempted.entry(job.spec.project.clone()).or_default() += 1;
                }
                if let Some(holder) = self.preempted_holder(*member) {
                    self.account.preempted(now, &holder);
                }
            }
        }
    }

    /// Marks jobs whose bindings changed as unsaved.
    pub(crate) fn record_bindings(&mut self, now: Now) {
        let bound: BTreeMap<_, _> =
            self.scheduler.all_saved_bindings().into_iter().map(|kept| (kept.member, kept)).collect();
        let changed = |one: &BTreeMap<MemberId, SavedBinding>, other: &BTreeMap<MemberId, SavedBinding>| {
            let differs = one.iter().filter(|(member, kept)| other.get(member) != Some(kept));
            differs.map(|(member, _)| member.job).collect::<Vec<_>>()
        };
        self.dirty.extend(changed(&bound, &self.places));
        self.dirty.extend(changed(&self.places, &bound));
        self.places = bound;
        self.note_history(now);
    }

    /// GPUs that each job and each user's slice has. Slices are part of the history only on nodes with projects.
    fn allocated(&self) -> BTreeMap<EntryName, MilliGpus> {
        let mut allocated: BTreeMap<EntryName, MilliGpus> = BTreeMap::new();
        let mut add = |project: &ProjectName, name: String, gpus: MilliGpus| {
            let sum = allocated.entry((project.clone(), name)).or_default();
            *sum = sum.plus(gpus);
        };
        for kept in self.places.values().filter(|kept| kept.phase == Phase::Running) {
            if let Some(JobRecord { spec, .. }) = self.entries.get(&kept.member.job) {
                add(&spec.project, spec.name.to_string(), spec.size.total());
            }
        }
        if !self.knows_users {
            self.had.slices().into_iter().for_each(|(project, name, gpus)| add(&project, name, gpus));
        } else if self.scheduler.projects().next().is_some() {
            for (project, slice) in self.scheduler.user_slices() {
                add(project, slice_entry(&slice.name), slice.size.total());
            }
        }
        allocated
    }

    fn note_history(&mut self, now: Now) {
        let points = self.had.change_to(self.allocated(), now);
        self.unsaved.points.extend(points);
        self.observe(now);
    }

    /// Enters the use of GPUs up to now in the account.
    pub(crate) fn observe(&mut self, now: Now) {
        let (parts, live, ended) = (self.parts(), self.meters(), std::mem::take(&mut self.node_use.ended));
        let quota = |project: &ProjectName| self.scheduler.quota(project);
        self.account.observe(now, parts, &live, &ended, quota);
    }

    /// Entries of the account that are not in the store.
    pub(crate) fn unentered(&self) -> impl Iterator<Item = (&EntryId, &UseSum)> {
        self.account.unsaved.iter().chain(&self.unsaved.uses)
    }

    /// Records the exit of a member; returns its final outcome, if it is final.
    pub(crate) fn left(&mut self, member: MemberId, run: Run, now: Now) -> Option<MemberEnd> {
        self.supervised.remove(&member);
        let entry = self.entries.get_mut(&member.job)?;
        let (retries, is_service) = (entry.terms.retries, entry.spec.service.is_some());
        if !matches!(run, Run::Refused(_)) {
            self.paused.remove(&member);
        }
        let left = entry.member_mut(member.index);
        let end = left.judge(run, retries, is_service);
        left.ran = end.as_ref().filter(|end| end.success).map(|_| now.moment().since(left.started));
        let forgotten = self.scheduler.jobs().get(&member.job).is_none_or(|job| job.deleted);
        let over = self
            .scheduler
            .member_exited(member, if end.is_some() { Exit::Completed } else { Exit::Requeued });
        self.dirty.insert(member.job);
        // The job's use has to end in the history before the job itself does.
        self.record_bindings(now);
        if over && forgotten {
            self.remove(member.job);
        } else if let Some(entry) = self.entries.get_mut(&member.job).filter(|_| over) {
            (entry.ended_unix_ms, entry.ended) = (Some(now.unix_ms), now.moment());
            self.revoked.extend(entry.ticket.take());
            let uid = entry.owner.uid;
            self.note_end(uid, member.job);
        }
        end
    }

    /// All changes to save now.
    pub(crate) fn changes(&mut self, boot: &str, clock: Clock) -> Changes {
        let node = SavedNode {
            next_job: self.scheduler.next_job_id(),
            hold: self.scheduler.reservation(),
            boot: boot.into(),
            marked: true,
            clock: Some(clock),
            slices: self.had.slices(),
            account: None,
        };
        let jobs = self.dirty.iter().filter_map(|id| Some((*id, self.kept(*id)?))).collect();
        let mut changes = std::mem::take(&mut self.unsaved);
        changes.jobs = jobs;
        // The account is the larger part of what a busy node saves, and seldom changes with a job.
        if changes.account.is_some() || self.account.is_due(self.saved_account.as_ref(), clock.showed) {
            changes.account = self.account.saved();
            for (entry, sum) in std::mem::take(&mut self.account.unsaved) {
                changes.uses.entry(entry).or_default().add(&sum);
            }
        }
        changes.node = (node != self.node).then_some(node);
        changes
    }

    fn kept(&self, id: JobId) -> Option<SavedJob> {
        let entry = self.entries.get(&id)?.clone();
        Some(SavedJob {
            entry,
            job: self.scheduler.jobs().get(&id).cloned(),
            places: self.scheduler.saved_bindings(id),
        })
    }

    /// Clears the marks of changes that were saved.
    pub(crate) fn clear_saved(&mut self, changes: Changes) {
        self.dirty.clear();
        self.saved_account = changes.account.or_else(|| self.saved_account.take());
        self.node = changes.node.unwrap_or_else(|| std::mem::take(&mut self.node));
    }

    /// Restores unsaved changes after a failed commit.
    pub(crate) fn restore_unsaved(&mut self, mut changes: Changes) {
        changes.jobs.clear();
        self.unsaved = changes;
    }
}
