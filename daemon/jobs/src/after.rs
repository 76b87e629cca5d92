//! Jobs that start after others: released once those have succeeded, failed once one of them has.

use std::collections::BTreeSet;

use tranche_domain::jobs::{JobId, JobName, JobRefusal, JobSpec, MemberId, ProjectName};

use crate::clock::Now;
use crate::controller::JobController;
use crate::site::{JobSite, What};
use crate::state::ControllerState;

/// Progress of a job that another one starts after.
enum Predecessor {
    Unended,
    Succeeded,
    Failed(String),
}

impl ControllerState {
    /// Ids of the named jobs that have not succeeded yet.
    ///
    /// # Errors
    /// If a job does not exist or has failed, or there are more than [`JobSpec::MOST_BEFORE`].
    pub(crate) fn unended(
        &self,
        project: &ProjectName,
        names: &BTreeSet<JobName>,
    ) -> Result<BTreeSet<JobId>, JobRefusal> {
        if names.len() > JobSpec::MOST_BEFORE {
            return Err(JobRefusal::AfterTooMany(names.len()));
        }
        let mut unended = BTreeSet::new();
        for name in names {
            let unknown = || JobRefusal::AfterUnknown(project.clone(), name.clone());
            let id = self.find(project, name).ok_or_else(unknown)?;
            if self.entries.get(&id).is_some_and(|entry| entry.spec.service.is_some()) {
                return Err(JobRefusal::AfterService(name.clone()));
            }
            match self.predecessor(id) {
                Predecessor::Unended => _ = unended.insert(id),
                Predecessor::Succeeded => {}
                Predecessor::Failed(_) => return Err(JobRefusal::AfterFailed(name.clone())),
            }
        }
        Ok(unended)
    }

    fn predecessor(&self, id: JobId) -> Predecessor {
        match self.entries.get(&id) {
            None => Predecessor::Failed("a job that it was to start after was deleted".into()),
            Some(entry) if entry.ended_unix_ms.is_none() => Predecessor::Unended,
            Some(entry) if entry.ended(false) == 0 => Predecessor::Succeeded,
            Some(entry) => {
                Predecessor::Failed(format!("{}, which it was to start after, failed", entry.spec.name))
            }
        }
    }

    /// Releases jobs whose predecessors have succeeded; returns those that failed with one, and why.
    fn settle_after(&mut self, now: Now) -> Vec<(JobId, String)> {
        let mut failed = Vec::new();
        // Predecessors have lower ids than their successors, so that one pass settles a chain.
        let waiting: Vec<_> = self.scheduler.successors().map(|(id, after)| (id, after.clone())).collect();
        for (id, mut after) in waiting {
            let (before, mut why) = (after.len(), None);
            after.retain(|predecessor| match self.predecessor(*predecessor) {
                Predecessor::Unended => true,
                Predecessor::Succeeded => false,
                Predecessor::Failed(reason) => {
                    why = Some(reason);
                    true
                }
            });
            if let Some(why) = why {
                self.fail_unstarted(id, &why, now);
                failed.push((id, why));
            } else if after.len() < before {
                self.scheduler.set_after(id, after);
                self.dirty.insert(id);
            }
        }
        failed
    }

    fn fail_unstarted(&mut self, id: JobId, why: &str, now: Now) {
        self.scheduler.delete(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.fail_unstarted(why, now);
            self.revoked.extend(entry.ticket.take());
            let uid = entry.owner.uid;
            self.note_end(uid, id);
            self.dirty.insert(id);
        }
    }
}

impl<S: JobSite> JobController<S> {
    /// Settles jobs that start after others.
    pub(crate) fn settle_successors(&self, state: &mut ControllerState, now: Now) {
        for (id, why) in state.settle_after(now) {
            self.record_event_of(state, MemberId { job: id, index: 0 }, What::Failed, &why);
        }
    }
}
