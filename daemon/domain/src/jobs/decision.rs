//! Order in which projects are served, and the plan for each job.
//!
//! Jobs within their project's quota come first, starting with the project that uses the least of its quota.
//! The surplus goes to the project that has borrowed the least for its weight. Where no GPU is free,
//! preemption makes room if the claim is strong enough.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::amount::MilliGpus;
use super::job::{JobId, JobShape, MemberId};
use super::pool::{GpuConstraints, GpuPool, PoolIndex, When};
use super::preemption::{Borrowers, Preemptor, Victim};
use super::project::{Level, ProjectAccount, QueueKey};
use super::scheduler::{Phase, QuotaScheduler};
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
        /// The member that gets the GPU, or a part of it; the first of a gang.
        by: MemberId,
    },
    /// Stop or park a running member of a gang, or end a parked one: a mate is not there. It goes back to its queue.
    Recall {
        /// Member that is stopped, parked or ended.
        member: MemberId,
        /// The mate that is not there.
        mate: MemberId,
        /// True if the member may be parked, as its mate is; else it starts over.
        continues: bool,
    },
}

/// First job of its shape in a project's queue.
#[derive(Clone, Copy)]
pub(super) struct JobCandidate<'a> {
    pub(super) account: &'a ProjectAccount,
    pub(super) shape: JobShape,
    pub(super) key: QueueKey,
}

/// GPUs for a member or for all members of a gang, and the members to be preempted from them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The members with their GPUs, at least one.
    pub(super) members: Vec<(MemberId, Vec<PoolIndex>)>,
    pub(super) victims: Vec<MemberId>,
}

impl JobCandidate<'_> {
    pub(super) const fn job(&self) -> JobId {
        self.key.1
    }

    fn after(&self) -> Level {
        self.account.level_with(self.account.used.plus(self.shape.total()))
    }
}

impl QuotaScheduler {
    /// Makes all decisions that are possible now. A second call without a change in between returns none.
    pub fn decide(&mut self) -> Vec<Action> {
        let (mut actions, mut spared) = (Vec::new(), BTreeSet::new());
        self.drop_displaced_claims();
        self.recall_mates(&mut actions);
        self.start_claimed(&mut actions);
        loop {
            while self.bind_next(&mut actions) {}
            // A gang that found no victims may find others beside reserved GPUs.
            if !self.reserve_for_blocked() && !self.spare_victims(&mut actions, &mut spared) {
                return actions;
            }
        }
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
                let JobShape { size, members, parked, .. } = candidate.shape;
                let reach = self.reach(&candidate, None);
                let needs = (size, members, reach.memory, reach.latency, parked);
                let kind = (needs, reach.affinity.cloned(), reach.reserved.len());
                if unplaceable.contains(&kind) && !preemptor.displaces_its_own() {
                    return None;
                }
                let plan = self.plan_for(&candidate, &preemptor, &borrowers, &self.pool);
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
            let heads = account.heads(|shape| passes(account, shape)).into_iter();
            heads.map(|(shape, key)| JobCandidate { account, shape, key }).collect::<Vec<_>>()
        };
        let mut projects: Vec<_> = self.accounts.values().map(of_project).collect();
        projects.retain(|candidates| !candidates.is_empty());
        projects.sort_by_cached_key(|candidates| rank(&candidates[0]));
        projects.into_iter().flatten().collect()
    }

    /// Plans the members of a candidate on the GPUs of this pool.
    ///
    /// They are placed one after the other, as if those before had theirs.
    pub(super) fn plan_for<'a>(
        &'a self,
        candidate: &JobCandidate<'a>,
        preemptor: &Preemptor<'a>,
        borrowers: &Borrowers<'a>,
        pool: &GpuPool,
    ) -> Option<Plan> {
        let (size, latency) = (candidate.shape.size, candidate.shape.latency);
        let (mut pool, all) = (Cow::Borrowed(pool), self.members_of(candidate));
        let (mut members, mut taken) = (Vec::with_capacity(all.len()), Vec::<Victim<'a>>::new());
        for member in &all {
            let reach = self.reach(candidate, Some(*member));
            let room = |when| pool.room(size, &reach, when);
            let (indices, victims) = match room(When::Now).or_else(|| room(When::Soon)) {
                Some(indices) => (indices, Vec::new()),
                None => self.preempt(&pool, preemptor, &reach, borrowers, &taken)?,
            };
            if all.len() > 1 {
                let pool = pool.to_mut();
                victims.iter().for_each(|victim| victim.leave(pool));
                pool.claim(&indices, size.of_each(), latency);
            }
            taken.extend(victims);
            members.push((*member, indices));
        }
        let victims = taken.iter().flat_map(|victim| victim.members().map(|(member, _)| member)).collect();
        (!members.is_empty()).then_some(Plan { members, victims })
    }

    /// Constraints on the GPUs of a candidate, or on those of one of its members if it is parked.
    pub(super) fn reach<'a>(
        &'a self,
        candidate: &JobCandidate<'a>,
        member: Option<MemberId>,
    ) -> GpuConstraints<'a> {
        let reserved = self.reserved.as_ref().filter(|reserved| reserved.job != candidate.job());
        GpuConstraints {
            affinity: candidate.account.project.affinity(candidate.shape.kind),
            reserved: reserved.map_or(&[], |reserved| &reserved.indices),
            latency: candidate.shape.latency,
            memory: candidate.shape.memory,
            only: candidate.shape.parked.and_then(|first| self.home(member.unwrap_or(first))),
        }
    }

    fn apply(&mut self, plan: Plan, actions: &mut Vec<Action>) {
        let Plan { members, victims } = plan;
        let Some((first, _)) = members.first().cloned() else { return };
        for victim in victims {
            match self.bindings.get(&victim).map(|binding| binding.phase) {
                Some(Phase::Claimed) => self.requeue(victim),
                _ => {
                    self.mark_stopping(victim);
                    actions.push(Action::Stop { member: victim, by: first });
                }
            }
        }
        for (member, indices) in members {
            self.bind(member, indices, Phase::Claimed);
        }
        self.start_if_room(first, actions);
    }

    /// Starts claimed members whose GPUs have become empty, oldest claim first.
    fn start_claimed(&mut self, actions: &mut Vec<Action>) {
        for (_, member) in self.claims() {
            self.start_if_room(member, actions);
        }
    }

    /// Starts a claimed member with its mates, if the GPUs of all are empty.
    fn start_if_room(&mut self, member: MemberId, actions: &mut Vec<Action>) {
        let together = self.claimed_with(member);
        if !self.have_room(&together) {
            return;
        }
        for member in together {
            let gpus = self.bindings.get(&member).map(|binding| self.pool.uuids(&binding.indices));
            self.mark_running(member);
            let returns = self.forget_parked(member);
            let gpus = gpus.unwrap_or_default();
            actions.push(if returns { Action::Unpark { member } } else { Action::Start { member, gpus } });
        }
    }

    /// Tests if claims of the same job can start now, all of them.
    fn have_room(&self, claimed: &[MemberId]) -> bool {
        let mut parts: BTreeMap<PoolIndex, MilliGpus> = BTreeMap::new();
        for member in claimed {
            let Some(binding) = self.bindings.get(member) else { return false };
            let Some(job) = self.jobs.get(&member.job) else { return false };
            for index in &binding.indices {
                let part = parts.entry(*index).or_default();
                *part = part.plus(job.spec.size.of_each());
            }
        }
        parts.into_iter().all(|(index, part)| self.pool.entry(index).can_hold(part))
    }

    fn claims(&self) -> Vec<(u64, MemberId)> {
        let claimed = self.bindings.iter().filter(|(_, binding)| binding.phase == Phase::Claimed);
        let mut claims: Vec<_> = claimed.map(|(member, binding)| (binding.order, *member)).collect();
        claims.sort_unstable();
        claims
    }

    /// Requeues claims on GPUs that have since been taken, each with its mates, latest claims first.
    fn drop_displaced_claims(&mut self) {
        for (_, member) in self.claims().into_iter().rev() {
            let Some(binding) = self.bindings.get(&member) else { continue };
            let is_taken = |index: &PoolIndex| {
                let entry = self.pool.entry(*index);
                entry.gpu.unavailable().plus(entry.running).plus(entry.claimed) > MilliGpus::ONE
            };
            if binding.indices.iter().any(is_taken) {
                self.claimed_with(member).into_iter().for_each(|member| self.requeue(member));
            }
        }
    }
}
