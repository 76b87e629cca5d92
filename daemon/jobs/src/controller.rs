//! The job controller's interface: submission of jobs and operations on jobs and projects.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;
use tranche_domain::jobs::{
    JobId, JobName, JobRefusal, Project, ProjectChange, ProjectName, QuotaScheduler, Submission, TicketId,
    permit_another,
};
use tranche_shm::crash::point;

use crate::claims::JobClaims;
use crate::clock::{Clock, Now};
use crate::error::{JobsError, OpenError};
use crate::folder::Folders;
use crate::history::Point;
use crate::launch::Launcher;
use crate::record::{JobOwner, JobRecord, StopReason};
use crate::requester::Requester;
use crate::reserve;
use crate::restore;
use crate::retain::Retention;
use crate::site::{JobCondition, JobSite};
use crate::state::ControllerState;
use crate::store::Store;

/// Keeps the jobs of a node running as the quota scheduler decides.
#[derive(Debug)]
pub struct JobController<S> {
    pub(crate) site: S,
    pub(crate) launcher: Launcher,
    pub(crate) folders: Folders,
    pub(crate) store: Store,
    pub(crate) boot: String,
    clock: Clock,
    pub(crate) retention: Retention,
    pub(crate) bell: Notify,
    /// Name of the node in addresses of jobs.
    pub(crate) hostname: String,
    state: Mutex<ControllerState>,
}

impl<S: JobSite> JobController<S> {
    /// Restores the state saved in `folder`; nothing starts before [`JobController::run`].
    ///
    /// # Errors
    /// If the state cannot be read or written.
    pub fn open(folder: &Path, site: S, launcher: Launcher) -> Result<Self, OpenError> {
        let path = folder.join("jobs");
        let (store, all, complaint) = restore::store(&folder.join("jobs.redb"), &path)?;
        let folders = Folders::open(path.clone()).map_err(|cause| OpenError::Folder { path, cause })?;
        for (number, complaint) in complaint.into_iter().chain(all.complaints.iter().cloned()).enumerate() {
            site.set_condition(JobCondition::NotRestored(number), complaint);
        }
        let boot = restore::boot();
        restore::sweep(&folders, &all.numbers);
        let clock = Clock::again(all.node.clock, all.node.boot != boot, site.clocks());
        let state = restore::state(QuotaScheduler::new(site.gpus(&BTreeSet::new())), all, &boot, &folders);
        for project in state.scheduler.projects() {
            note_unknown_gpus(&site, &state.scheduler, project);
        }
        restore::unmarked(&state).iter().for_each(|slice| site.claim(slice));
        if let Err(error) = reserve::hold(folder) {
            tracing::debug!(%error, "no room is held for what is kept of jobs");
        }
        let (retention, bell) = (Retention::DEFAULT, Notify::new());
        site.set_claims(JobClaims::of(&state.scheduler));
        let state = Mutex::new(state);
        let hostname =
            std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Ok(Self { site, launcher, folders, store, boot, clock, retention, bell, hostname, state })
    }

    /// Sets the retention of ended jobs.
    #[must_use]
    pub fn keeping(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.at(self.site.clocks())
    }

    // Projects

    /// Creates a project.
    ///
    /// # Errors
    /// If the name is taken, or the quotas would exceed the node's capacity.
    pub fn create_project(&self, project: Project, beyond_capacity: bool) -> Result<(), JobsError> {
        let mut state = self.state();
        if state.scheduler.project(&project.name).is_ok() {
            return Err(JobsError::ProjectExists(project.name));
        }
        self.set_project(&mut state, project, beyond_capacity)
    }

    /// Changes a project.
    ///
    /// # Errors
    /// If the project does not exist, or the quotas would exceed the node's capacity.
    pub fn update_project(
        &self,
        name: &ProjectName,
        change: ProjectChange,
        beyond_capacity: bool,
    ) -> Result<(), JobsError> {
        let mut state = self.state();
        let mut project = state.scheduler.project(name)?.clone();
        change.apply(&mut project);
        self.set_project(&mut state, project, beyond_capacity)
    }

    fn set_project(
        &self,
        state: &mut ControllerState,
        project: Project,
        beyond_capacity: bool,
    ) -> Result<(), JobsError> {
        let before = state.scheduler.project(&project.name).ok().cloned();
        state.scheduler.check_gpus(&project, before.as_ref())?;
        state.scheduler.set_project(project.clone(), beyond_capacity)?;
        state.unsaved.projects.push(project.clone());
        self.save(state).inspect_err(|_| {
            // A change that cannot be saved is undone.
            state.unsaved.projects.retain(|unsaved| unsaved.name != project.name);
            let undone = match before {
                Some(before) => state.scheduler.set_project(before, true),
                None => state.scheduler.remove_project(&project.name),
            };
            let _ = undone;
        })?;
        note_unknown_gpus(&self.site, &state.scheduler, &project);
        self.site.set_claims(JobClaims::of(&state.scheduler));
        self.bell.notify_one();
        Ok(())
    }

    /// Deletes a project.
    ///
    /// # Errors
    /// If the project does not exist or has jobs, ended ones included.
    pub fn delete_project(&self, name: &ProjectName) -> Result<(), JobsError> {
        let mut state = self.state();
        let project = state.scheduler.project(name)?.clone();
        let jobs = state.names.keys().filter(|(project, _)| project == name).count();
        if jobs > 0 {
            return Err(tranche_domain::jobs::ProjectRefusal::InUse { name: name.clone(), jobs }.into());
        }
        state.scheduler.remove_project(name)?;
        state.unsaved.projects_gone.push(name.to_string());
        self.save(&mut state).inspect_err(|_| {
            state.unsaved.projects_gone.retain(|gone| gone != name.as_str());
            let _ = state.scheduler.set_project(project, true);
        })?;
        self.site.clear_condition(JobCondition::UnknownGpus(name.clone()));
        self.site.set_claims(JobClaims::of(&state.scheduler));
        Ok(())
    }

    // Jobs

    /// Submits a job, which starts when the quota scheduler selects it.
    ///
    /// # Errors
    /// If the job could never run, its name is taken, or its owner is no member of the project.
    pub fn submit(
        &self,
        submission: Submission,
        owner: JobOwner,
        requester: Requester,
    ) -> Result<(), JobsError> {
        let mut state = self.state();
        let Submission { spec, launch, .. } = &submission;
        let project = state.project_with_jobs(&spec.project)?;
        permit(requester, project, None)?;
        permit_another(state.unended_of(owner.uid), requester.admin)?;
        let earlier = state.find(&spec.project, &spec.name);
        if earlier.and_then(|id| state.entries.get(&id)).is_some_and(|job| job.ended_unix_ms.is_none()) {
            return Err(JobRefusal::Exists(spec.name.clone()).into());
        }
        self.check_ticket(submission.ticket.as_ref(), owner)?;
        self.launcher.check_limits(owner, submission.terms.host)?;
        let after = state.unended(&spec.project, &submission.after)?;
        let id = state.scheduler.submit(spec.clone())?;
        state.scheduler.set_after(id, after);
        // With the size that counts for each member.
        let sized = state.scheduler.jobs().get(&id).map_or_else(|| spec.clone(), |job| job.spec.clone());
        if let Some(earlier) = earlier {
            let name = state.numbered_name(&spec.project, &spec.name);
            state.rename(earlier, name);
        }
        state.insert(id, JobRecord::new(&submission, sized, owner, self.now()));
        state.fresh.insert(id);
        state.unsaved.launches.push((id, launch.clone()));
        self.save(&mut state).inspect_err(|_| {
            state.scheduler.delete(id);
            state.unsaved.launches.retain(|(unsaved, _)| *unsaved != id);
            state.remove(id);
            if let Some(earlier) = earlier {
                state.rename(earlier, spec.name.clone());
            }
        })?;
        self.bell.notify_one();
        Ok(())
    }

    /// Rejects a job that no launcher would start.
    fn check_ticket(&self, ticket: Option<&TicketId>, owner: JobOwner) -> Result<(), JobsError> {
        let JobOwner { uid, .. } = owner;
        match ticket {
            Some(ticket) if !ticket.is_of(uid) => Err(JobsError::OthersTicket { uid }),
            None if self.launcher.needs_ticket(owner) => Err(JobsError::NoTicket { uid }),
            _ => Ok(()),
        }
    }

    /// Deletes a job, and stops its members.
    ///
    /// # Errors
    /// If the job does not exist, or the requester has no right to it.
    pub fn delete(
        &self,
        project: &ProjectName,
        name: &JobName,
        requester: Requester,
    ) -> Result<(), JobsError> {
        self.change(project, name, requester, |state, id| {
            let leaving = state.scheduler.delete(id);
            if state.scheduler.jobs().contains_key(&id) {
                let all: Vec<_> =
                    state.supervised.keys().filter(|member| member.job == id).copied().collect();
                state.request_stop(&leaving, &StopReason::Deleted);
                // Members that were stopping with a restart in view now stop for good.
                state.request_stop(&all, &StopReason::Deleted);
                return Ok(());
            }
            state.remove(id);
            self.folders.remove(id);
            Ok(())
        })
    }

    /// Suspends a job, stopping its members, or resumes it.
    ///
    /// # Errors
    /// If the job does not exist, has ended or is not suspended, or the requester has no right to it.
    pub fn suspend(
        &self,
        project: &ProjectName,
        name: &JobName,
        suspended: bool,
        requester: Requester,
    ) -> Result<(), JobsError> {
        self.change(project, name, requester, |state, id| {
            let (project, name) = (project.clone(), name.clone());
            match state.scheduler.jobs().get(&id) {
                None => return Err(JobsError::Over(project, name)),
                Some(job) if job.deleted => return Err(JobsError::Leaving(project, name)),
                Some(job) if !suspended && !job.suspended => {
                    return Err(JobsError::NotSuspended(project, name));
                }
                Some(_) => {}
            }
            let leaving = state.scheduler.suspend(id, suspended);
            state.request_stop(&leaving, &StopReason::Suspended);
            state.dirty.insert(id);
            Ok(())
        })
    }

    fn change(
        &self,
        project: &ProjectName,
        name: &JobName,
        requester: Requester,
        change: impl FnOnce(&mut ControllerState, JobId) -> Result<(), JobsError>,
    ) -> Result<(), JobsError> {
        let mut state = self.state();
        let id = self.permitted(&state, project, name, requester)?;
        change(&mut state, id)?;
        // A change that cannot be saved now is saved by a later round.
        let kept = self.save(&mut state);
        self.bell.notify_one();
        kept
    }

    /// The job of this name, if the requester has full rights to it.
    pub(crate) fn permitted(
        &self,
        state: &ControllerState,
        project: &ProjectName,
        name: &JobName,
        requester: Requester,
    ) -> Result<JobId, JobsError> {
        let of = state.project_with_jobs(project)?;
        let id = state.find(project, name);
        let id = id.ok_or_else(|| JobRefusal::Unknown(project.clone(), name.clone()))?;
        permit(requester, of, state.entries.get(&id).map(|entry| entry.owner))?;
        Ok(id)
    }

    /// Use of GPUs by all jobs since a time in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// If the history cannot be read.
    pub fn history(&self, since_unix_ms: u64) -> Result<Vec<Point>, JobsError> {
        Ok(self.store.history(since_unix_ms)?)
    }

    /// Revokes tickets of ended jobs in a thread of its own.
    fn revoke(&self, tickets: Vec<TicketId>) {
        if tickets.is_empty() {
            return;
        }
        let launcher = self.launcher.clone();
        let revoking =
            std::thread::Builder::new().name("revoke".into()).spawn(move || launcher.revoke(tickets));
        // If no thread can be started, the tickets stay valid until they expire.
        drop(revoking);
    }

    /// Saves all unsaved changes.
    pub(crate) fn save(&self, state: &mut ControllerState) -> Result<(), JobsError> {
        let changes = state.changes(&self.boot, self.now().clock);
        point("jobs: keeping");
        match self.store.save(&changes) {
            Ok(()) => {
                point("jobs: kept");
                state.clear_saved(changes);
                self.revoke(std::mem::take(&mut state.revoked));
                Ok(())
            }
            Err(error) => {
                state.restore_unsaved(changes);
                Err(error.into())
            }
        }
    }
}

/// Sets the condition of a project that names GPUs that the node does not have, or clears it.
fn note_unknown_gpus(site: &impl JobSite, scheduler: &QuotaScheduler, project: &Project) {
    let condition = JobCondition::UnknownGpus(project.name.clone());
    match scheduler.check_gpus(project, None) {
        Ok(()) => site.clear_condition(condition),
        Err(refusal) => site.set_condition(condition, format!("project {}: {refusal}", project.name)),
    }
}

/// Permits members of the project, the owner of the job, and administrators.
pub(crate) fn permit(
    requester: Requester,
    project: &Project,
    owner: Option<JobOwner>,
) -> Result<(), JobsError> {
    let owns = owner.is_some_and(|owner| owner.uid == requester.uid);
    if requester.admin || owns || project.members.contains(&requester.uid) {
        return Ok(());
    }
    Err(JobsError::NotAMember { uid: requester.uid, project: project.name.clone() })
}
