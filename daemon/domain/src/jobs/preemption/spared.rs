//! Victims whose GPUs nothing takes: they are not stopped.
//!
//! Within one decision a job that stops members may lose its claim again, to a job that is within its quota only since
//! they were to leave. What they would leave is offered to every waiting job before they are spared, so each of them
//! would start again where it was.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::jobs::amount::MilliGpus;
use crate::jobs::decision::Action;
use crate::jobs::job::{JobShape, MemberId};
use crate::jobs::pool::{PoolIndex, When};
use crate::jobs::scheduler::{Phase, QuotaScheduler};

impl QuotaScheduler {
    /// Takes back stops of a decision, of each member once. Returns false if there were none to take back.
    ///
    /// A gang is spared as a whole.
    pub(crate) fn spare_victims(
        &mut self,
        actions: &mut Vec<Action>,
        spared: &mut BTreeSet<MemberId>,
    ) -> bool {
        let stopped = actions.iter().filter_map(|action| match action {
            Action::Stop { member, .. } => Some(*member),
            _ => None,
        });
        let stopped: BTreeSet<MemberId> = stopped.collect();
        let before = spared.len();
        for victim in &stopped {
            let together = self.leaving_with(*victim);
            let takes_back = |member: &MemberId| stopped.contains(member) && !spared.contains(member);
            if together.iter().all(takes_back) && self.can_stay(*victim, &together) {
                together.iter().for_each(|member| self.mark_staying(*member));
                spared.extend(together);
            }
        }
        actions.retain(|action| match action {
            Action::Stop { member, .. } => self.is_stopping(*member),
            _ => true,
        });
        spared.len() > before
    }

    fn is_stopping(&self, member: MemberId) -> bool {
        self.bindings.get(&member).is_some_and(|binding| binding.phase == Phase::Stopping)
    }

    /// A stopping member with the stopping members of its gang.
    fn leaving_with(&self, member: MemberId) -> Vec<MemberId> {
        let mates = self.members(member.job).filter(|(_, binding)| binding.phase == Phase::Stopping);
        let mates = mates.map(|(mate, _)| mate).filter(|_| self.is_gang(member.job));
        mates.chain((!self.is_gang(member.job)).then_some(member)).collect()
    }

    /// Tests if stopping members of a job would start again on their GPUs.
    fn can_stay(&self, first: MemberId, members: &[MemberId]) -> bool {
        let Some(job) = self.jobs.get(&first.job) else { return false };
        let Some(account) = self.accounts.get(&job.spec.project) else { return false };
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let shape = JobShape { members: count, ..job.spec.shape() };
        let may_start = account.is_guaranteed(&shape) || account.project.weight() > MilliGpus::ZERO;
        let mut parts = BTreeMap::<PoolIndex, MilliGpus>::new();
        for index in
            members.iter().filter_map(|member| self.bindings.get(member)).flat_map(|own| &own.indices)
        {
            let part = parts.entry(*index).or_default();
            *part = part.plus(shape.size.of_each());
        }
        let affinity = account.project.affinity(shape.kind);
        let fits = |(index, part): (PoolIndex, MilliGpus)| {
            let entry = self.pool.entry(index);
            affinity.is_none_or(|permitted| permitted.contains(&entry.gpu.index))
                && self.reserved.as_ref().is_none_or(|reserved| !reserved.indices.contains(&index))
                && part <= entry.free(When::Soon)
        };
        may_start && parts.into_iter().all(fits)
    }
}
