//! Order in which projects are served, and the plan for each job.
//!
//! Jobs within their project's quota come first, starting with the project that uses the least of its quota.
//! The surplus goes to the project that has borrowed the least for its weight. Where no GPU is free,
//! preemption makes room if the claim is strong enough.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::amount::MilliGpus;
use super::job::{JobId, JobShape, MemberId};
use super::pool::{GpuConstraints, PoolIndex, When};
use super::preemption::{Borrowers, Preemptor};
use super::project::{Level, ProjectAccount, QueueKey};
use super::scheduler::{GpuReservation, Phase, QuotaScheduler};
use crate::id::GpuUuid;

/// One effect of a decision, to be carried out by the job controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a member; its GPUs are empty.
    Start {
        /// The member to start.
        member: MemberId,
        /// UUIDs of the GPUs bound to it.
        gpus: Vec<GpuUuid>,
    },
    /// Bring a parked member back to its GPUs, which are empty.
    Unpark {
        /// Member with its GPUs.
        member: MemberId,
    },
    /// Stop or park a running member; it goes back to its queue.
    Stop {
        /// Member that is stopped.
        member: MemberId,
        /// The member that gets the GPU, or a part of it.
        by: MemberId,
    },
}

/// First job of its shape in a project's queue.
#[derive(Clone, Copy)]
pub(super) struct JobCandidate<'a> {
    pub(super) account: &'a ProjectAccount,
    pub(super) shape: JobShape,
    pub(super) key: QueueKey,
}

/// GPUs for a member, and the members to be preempted from them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) member: MemberId,
    pub(super) indices: Vec<PoolIndex>,
    pub(super) victims: Vec<MemberId>,
}

impl JobCandidate<'_> {
    const fn job(&self) -> JobId {
        self.key.1
    }

    fn after(&self) -> Level {
        self.account.level_with(self.account.used.plus(self.shape.size.total()))
    }
}

impl QuotaScheduler {
    /// Makes all decisions that are possible now. A second call without a change in between returns none.
    pub fn decide(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.drop_displaced_claims();
        self.start_claimed(&mut actions);
        while self.bind_next(&mut actions) {}
        self.reserve_for_blocked();
        actions
    }

    /// Plans and applies one binding; false if there is none to make.
    pub(super) fn bind_next(&mut self, actions: &mut Vec<Action>) -> bool {
        self.drop_stale_reservation();
        let plan = self.plan();
        let is_planned = plan.is_some();
        plan.into_iter().for_each(|plan| self.apply(plan, actions));
        is_planned
    }

    pub(super) fn plan(&self) -> Option<Plan> {
        let borrowers = self.borrowers();
        let mut unplaceable = BTreeSet::new();
        let mut plan = |candidates: Vec<JobCandidate<'_>>| {
            candidates.into_iter().find_map(|candidate| {
                let preemptor = Preemptor { account: candidate.account, shape: candidate.shape };
                let reach = self.reach(&candidate);
                let needs = (candidate.shape.size, reach.memory, reach.latency, candidate.shape.parked);
                let kind = (needs, reach.affinity.cloned(), reach.reserved.len());
                if unplaceable.contains(&kind) && !preemptor.displaces_its_own() {
                    return None;
                }
                let plan = self.plan_for(&candidate, &preemptor, &reach, &borrowers);
                // Later candidates have weaker claims, so a failed size, affinity and reservation is not
                // tried again.
                if plan.is_none() && !preemptor.displaces_its_own() {
                    unplaceable.insert(kind);
                }
                plan
            })
        };
        plan(self.guaranteed()).or_else(|| plan(self.surplus()))
    }

    /// Candidates that stay within their project's quota.
    pub(super) fn guaranteed(&self) -> Vec<JobCandidate<'_>> {
        self.candidates(
            |account, shape| account.is_guaranteed(shape),
            |first| {
                let account = first.account;
                (Level::of(account.used, MilliGpus::ZERO, account.project.quota), first.job())
            },
        )
    }

    /// Candidates that would borrow.
    pub(super) fn surplus(&self) -> Vec<JobCandidate<'_>> {
        let may = |account: &ProjectAccount, shape: &JobShape| {
            !shape.non_preemptible
                && !shape.request
                && !account.is_guaranteed(shape)
                && account.project.weight() > MilliGpus::ZERO
        };
        self.candidates(may, |first| (first.account.level(), first.after(), first.job()))
    }

    /// Queue heads that satisfy `passes`, grouped by project.
    ///
    /// Projects are in the order of their first candidate's rank.
    fn candidates<'a, K: Ord>(
        &'a self,
        passes: impl Fn(&ProjectAccount, &JobShape) -> bool,
        rank: impl Fn(&JobCandidate<'a>) -> K,
    ) -> Vec<JobCandidate<'a>> {
        let of_project = |account: &'a ProjectAccount| {
            let heads = account.heads().into_iter().filter(|(shape, _)| passes(account, shape));
            heads.map(|(shape, key)| JobCandidate { account, shape, key }).collect::<Vec<_>>()
        };
        let mut projects: Vec<_> = self.accounts.values().map(of_project).collect();
        projects.retain(|candidates| !candidates.is_empty());
        projects.sort_by_cached_key(|candidates| rank(&candidates[0]));
        projects.into_iter().flatten().collect()
    }

    fn plan_for(
        &self,
        candidate: &JobCandidate<'_>,
        preemptor: &Preemptor<'_>,
        reach: &GpuConstraints<'_>,
        borrowers: &Borrowers<'_>,
    ) -> Option<Plan> {
        let member = match candidate.shape.parked {
            Some(parked) => parked,
            None => MemberId { job: candidate.job(), index: self.jobs.get(&candidate.job())?.next()? },
        };
        let room = |when| self.pool.room(candidate.shape.size, reach, when);
        let (indices, victims) = match room(When::Now).or_else(|| room(When::Soon)) {
            Some(indices) => (indices, Vec::new()),
            None => self.preempt(preemptor, reach, borrowers)?,
        };
        Some(Plan { member, indices, victims })
    }

    fn reach<'a>(&'a self, candidate: &JobCandidate<'a>) -> GpuConstraints<'a> {
        let reserved = self.reserved.as_ref().filter(|reserved| reserved.job != candidate.job());
        GpuConstraints {
            affinity: candidate.account.project.affinity(candidate.shape.kind),
            reserved: reserved.map_or(&[], |reserved| &reserved.indices),
            latency: candidate.shape.latency,
            memory: candidate.shape.memory,
            only: candidate.shape.parked.and_then(|parked| self.home(parked)),
        }
    }

    fn apply(&mut self, plan: Plan, actions: &mut Vec<Action>) {
        let Plan { member, indices, victims } = plan;
        for victim in victims {
            match self.bindings.get(&victim).map(|binding| binding.phase) {
                Some(Phase::Claimed) => self.requeue(victim),
                _ => {
                    self.mark_stopping(victim);
                    actions.push(Action::Stop { member: victim, by: member });
                }
            }
        }
        self.bind(member, indices, Phase::Claimed);
        self.start_if_room(member, actions);
    }

    /// Starts claimed members whose GPUs have become empty, oldest claim first.
    fn start_claimed(&mut self, actions: &mut Vec<Action>) {
        for (_, member) in self.claims() {
            self.start_if_room(member, actions);
        }
    }

    fn start_if_room(&mut self, member: MemberId, actions: &mut Vec<Action>) {
        let (Some(binding), Some(job)) = (self.bindings.get(&member), self.jobs.get(&member.job)) else {
            return;
        };
        let part = job.spec.size.of_each();
        if binding.indices.iter().all(|index| self.pool.entry(*index).can_hold(part)) {
            let gpus = self.pool.uuids(&binding.indices);
            self.mark_running(member);
            let returns = self.forget_parked(member);
            actions.push(if returns { Action::Unpark { member } } else { Action::Start { member, gpus } });
        }
    }

    fn claims(&self) -> Vec<(u64, MemberId)> {
        let claimed = self.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Claimed);
        let mut claims: Vec<_> = claimed.map(|(member, binding)| (binding.order, *member)).collect();
        claims.sort_unstable();
        claims
    }

    /// Requeues claims on GPUs that have since been taken for other use, latest claims first.
    fn drop_displaced_claims(&mut self) {
        for (_, member) in self.claims().into_iter().rev() {
            let Some(binding) = self.bindings.get(&member) else { continue };
            let is_taken = |index: &PoolIndex| {
                let entry = self.pool.entry(*index);
                entry.gpu.outside.plus(entry.running).plus(entry.claimed) > MilliGpus::ONE
            };
            if binding.indices.iter().any(is_taken) {
                self.requeue(member);
            }
        }
    }

    // GPUs that empty

    pub(super) fn drop_stale_reservation(&mut self) {
        let Some(GpuReservation { job, indices }) = &self.reserved else { return };
        let latency = self.jobs.get(job).and_then(|job| job.spec.latency);
        let apt = indices.iter().all(|index| self.pool.entry(*index).can_target(latency));
        if !apt || !self.guaranteed().iter().any(|candidate| candidate.job() == *job) {
            self.reserved = None;
        }
    }

    /// Reserves GPUs for the first candidate within its quota that finds no room.
    ///
    /// Others within their quotas are spread over the GPUs then. The GPUs chosen are those that empty with the least delay.
    fn reserve_for_blocked(&mut self) {
        if self.reserved.is_some() {
            return;
        }
        // One whose latency target no GPU can hold now reserves none, as emptying would not help it.
        let reserved = self.guaranteed().iter().find_map(|candidate| {
            let indices = self.soonest_empty(candidate)?;
            Some(GpuReservation { job: candidate.job(), indices })
        });
        self.reserved = reserved;
    }

    fn soonest_empty(&self, candidate: &JobCandidate<'_>) -> Option<Vec<PoolIndex>> {
        let count = candidate.shape.size.gpus() as usize;
        let islands = self.pool.islands(&self.reach(candidate)).into_values();
        let best = islands.filter(|indices| indices.len() >= count).map(|mut indices| {
            indices.sort_by_cached_key(|index| (self.burden(*index), *index));
            indices.truncate(count);
            let burden = indices.iter().fold((0, 0), |(non_preemptible, all), index| {
                let (more, rest) = self.burden(*index);
                (non_preemptible + more, all + rest)
            });
            (burden, indices)
        });
        best.min().map(|(_, indices)| indices)
    }

    /// Use of a GPU in thousandths: the part that no preemption frees, and all of it.
    fn burden(&self, index: PoolIndex) -> (u32, u32) {
        let entry = self.pool.entry(index);
        let non_preemptible = self.bindings.iter().filter(|(_, binding)| binding.indices.contains(&index));
        let non_preemptible = non_preemptible.filter_map(|(member, _)| self.jobs.get(&member.job));
        let non_preemptible =
            non_preemptible.filter(|job| job.spec.is_non_preemptible()).map(|job| job.spec.size.of_each());
        let stays = non_preemptible.sum::<MilliGpus>().plus(entry.gpu.outside);
        (stays.get(), MilliGpus::ONE.less(entry.free(When::Now)).get())
    }
}
