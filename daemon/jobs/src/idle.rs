//! Consequences of idleness, by the policy of each project.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tranche_domain::id::SliceName;
use tranche_domain::jobs::{IdlePolicy, MemberId, MilliGpus, Phase, ProjectName, Size, UserSlice};

use crate::controller::JobController;
use crate::site::{JobCondition, JobSite};
use crate::state::ControllerState;

/// A member or a user's slice that counts as idle.
struct IdleHolder {
    member: MemberId,
    project: ProjectName,
    slice: SliceName,
    gpus: MilliGpus,
}

impl<S: JobSite> JobController<S> {
    /// Applies the policies to what is idle now. Returns the users' slices that have to end; limits end members of jobs.
    pub(crate) fn apply_idle_policies(&self, state: &mut ControllerState) -> Vec<UserSlice> {
        let (mut first, mut alerted, mut ending) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for holder in self.idle_holders(state) {
            match state.scheduler.idle_policy(&holder.project) {
                IdlePolicy::Report => {}
                IdlePolicy::PreemptFirst => {
                    first.insert(holder.member);
                }
                IdlePolicy::End => ending.extend(state.scheduler.user_slice(holder.member).cloned()),
                IdlePolicy::Alert => {
                    let IdleHolder { project, slice, .. } = holder;
                    let known = state.node_use.slices.iter().find(|known| known.name == slice);
                    let user = known.map_or("its user", |known| &known.user);
                    // Without a time, which would make it another note each minute.
                    let message = format!("slice {slice} of {user}, project {project}, does not use its GPU");
                    self.site.set_condition(JobCondition::Idle(slice.clone()), message);
                    alerted.insert(slice);
                }
            }
        }
        for slice in state.alerted.difference(&alerted) {
            self.site.clear_condition(JobCondition::Idle(slice.clone()));
        }
        state.alerted = alerted;
        state.scheduler.set_idle(first);
        // A slice takes a while to end, and is still idle in the next rounds.
        ending.retain(|slice| !state.ending.contains(&(slice.name.clone(), slice.created_unix_ms)));
        ending
    }

    /// GPUs of each project that are held by what counts as idle.
    pub(crate) fn idle_gpus(&self, state: &ControllerState) -> BTreeMap<ProjectName, MilliGpus> {
        let mut idle: BTreeMap<ProjectName, MilliGpus> = BTreeMap::new();
        for holder in self.idle_holders(state) {
            let sum = idle.entry(holder.project).or_default();
            *sum = sum.plus(holder.gpus);
        }
        idle
    }

    fn idle_holders(&self, state: &ControllerState) -> Vec<IdleHolder> {
        let holder = |member: MemberId, project: &ProjectName, slice: SliceName, size: Size| {
            self.site.idle(&slice)?;
            Some(IdleHolder { member, project: project.clone(), slice, gpus: size.total() })
        };
        let bound = state.places.values().filter(|bound| bound.phase == Phase::Running);
        let members = bound.filter_map(|bound| {
            let entry = state.entries.get(&bound.member.job)?;
            let (spec, slice) = (&entry.spec, entry.slice(bound.member));
            holder(bound.member, &spec.project, slice, spec.size)
        });
        let slices = state.scheduler.user_slices().filter_map(|(project, slice)| {
            let member = state.scheduler.member_of_slice(&slice.name)?;
            holder(member, project, slice.name.clone(), slice.size)
        });
        members.chain(slices).collect()
    }

    /// Ends users' slices for their idleness.
    pub(crate) fn end_idle(self: &Arc<Self>, slices: Vec<UserSlice>) {
        for slice in slices {
            let key = (slice.name.clone(), slice.created_unix_ms);
            self.state().ending.insert(key.clone());
            let controller = Arc::clone(self);
            tokio::spawn(async move {
                let reason = "it did not use its GPU, and its project ends what is idle".into();
                controller.site.end_user_slice(&slice, reason).await;
                controller.state().ending.remove(&key);
            });
        }
    }
}
