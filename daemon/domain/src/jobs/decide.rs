//! Whose turn it is, and what is done about it.
//!
//! Those within their quota come first, whoever has the least of it before the others. What is left goes to whoever has
//! borrowed the least for its weight. Where there is no room it is made, if somebody has to give something back.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::amount::MilliGpus;
use super::board::{Board, Hold, Phase};
use super::floor::{Reach, Spot, When};
use super::job::{JobId, MemberId};
use super::project::{Account, Level, Shape, Turn};
use super::reclaim::{Borrowers, Claimant};
use crate::id::GpuUuid;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// A member starts on these GPUs, which are free.
    Start {
        /// Who.
        member: MemberId,
        /// Where.
        gpus: Vec<GpuUuid>,
    },
    /// A running member is told to leave, and goes back to its queue.
    Stop {
        /// Who.
        member: MemberId,
        /// Who gets its place, or a part of it.
        by: MemberId,
    },
}

/// The first job of its kind in a project's queue.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) account: &'a Account,
    pub(super) shape: Shape,
    pub(super) turn: Turn,
}

/// A place for a member, and who has to leave it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) member: MemberId,
    pub(super) spots: Vec<Spot>,
    pub(super) victims: Vec<MemberId>,
}

impl Candidate<'_> {
    const fn job(&self) -> JobId {
        self.turn.1
    }

    fn after(&self) -> Level {
        self.account.level_with(self.account.used.plus(self.shape.size.total()))
    }
}

impl Board {
    /// Makes every move that can be made now. Until something changes, there are no more.
    pub fn decide(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        self.drop_lost_claims();
        self.start_claimed(&mut moves);
        while self.step(&mut moves) {}
        self.hold_for_the_blocked();
        moves
    }

    /// Gives one member a place, if one can have one.
    pub(super) fn step(&mut self, moves: &mut Vec<Move>) -> bool {
        self.drop_stale_hold();
        let plan = self.plan();
        let is_move = plan.is_some();
        plan.into_iter().for_each(|plan| self.carry_out(plan, moves));
        is_move
    }

    pub(super) fn plan(&self) -> Option<Plan> {
        let borrowers = self.borrowers();
        let mut hopeless = BTreeSet::new();
        let mut plan = |candidates: Vec<Candidate<'_>>| {
            candidates.into_iter().find_map(|candidate| {
                let claim = Claimant { account: candidate.account, shape: candidate.shape };
                let reach = self.reach(&candidate);
                let kind = (candidate.shape.size, reach.affinity.cloned(), reach.kept.len());
                if hopeless.contains(&kind) && !claim.displaces_its_own() {
                    return None;
                }
                let plan = self.plan_for(&candidate, &claim, &reach, &borrowers);
                // Whoever comes later has no better claim, and so needs not be tried with the same.
                if plan.is_none() && !claim.displaces_its_own() {
                    hopeless.insert(kind);
                }
                plan
            })
        };
        plan(self.guaranteed()).or_else(|| plan(self.surplus()))
    }

    /// Those who would be within their quota.
    pub(super) fn guaranteed(&self) -> Vec<Candidate<'_>> {
        self.candidates(
            |account, shape| account.is_guaranteed(shape),
            |first| {
                let account = first.account;
                (Level::of(account.used, MilliGpus::ZERO, account.project.quota), first.job())
            },
        )
    }

    /// Those who would borrow.
    pub(super) fn surplus(&self) -> Vec<Candidate<'_>> {
        let may = |account: &Account, shape: &Shape| {
            !shape.lasting && !account.is_guaranteed(shape) && account.project.weight() > MilliGpus::ZERO
        };
        self.candidates(may, |first| (first.account.level(), first.after(), first.job()))
    }

    /// The heads of all queues that pass, project by project.
    fn candidates<'a, K: Ord>(
        &'a self,
        passes: impl Fn(&Account, &Shape) -> bool,
        rank: impl Fn(&Candidate<'a>) -> K,
    ) -> Vec<Candidate<'a>> {
        let of_project = |account: &'a Account| {
            let heads = account.heads().into_iter().filter(|(shape, _)| passes(account, shape));
            heads.map(|(shape, turn)| Candidate { account, shape, turn }).collect::<Vec<_>>()
        };
        let mut projects: Vec<_> = self.accounts.values().map(of_project).collect();
        projects.retain(|candidates| !candidates.is_empty());
        projects.sort_by_cached_key(|candidates| rank(&candidates[0]));
        projects.into_iter().flatten().collect()
    }

    fn plan_for(
        &self,
        candidate: &Candidate<'_>,
        claim: &Claimant<'_>,
        reach: &Reach<'_>,
        borrowers: &Borrowers<'_>,
    ) -> Option<Plan> {
        let member = MemberId { job: candidate.job(), index: self.jobs.get(&candidate.job())?.next()? };
        let room = |when| self.floor.room(candidate.shape.size, reach, when);
        let (spots, victims) = match room(When::Now).or_else(|| room(When::Soon)) {
            Some(spots) => (spots, Vec::new()),
            None => self.reclaim(claim, reach, borrowers)?,
        };
        Some(Plan { member, spots, victims })
    }

    fn reach<'a>(&'a self, candidate: &Candidate<'a>) -> Reach<'a> {
        let kept = self.hold.as_ref().filter(|hold| hold.job != candidate.job());
        Reach {
            affinity: candidate.account.project.affinity(candidate.shape.kind),
            kept: kept.map_or(&[], |hold| &hold.spots),
        }
    }

    fn carry_out(&mut self, plan: Plan, moves: &mut Vec<Move>) {
        let Plan { member, spots, victims } = plan;
        for victim in victims {
            match self.seats.get(&victim).map(|seat| seat.phase) {
                Some(Phase::Claimed) => self.give_up(victim),
                _ => {
                    self.see_off(victim);
                    moves.push(Move::Stop { member: victim, by: member });
                }
            }
        }
        self.seat_at(member, spots, Phase::Claimed);
        self.start_if_empty(member, moves);
    }

    /// Starts those whose places have become empty, in the order in which they were promised.
    fn start_claimed(&mut self, moves: &mut Vec<Move>) {
        for (_, member) in self.claims() {
            self.start_if_empty(member, moves);
        }
    }

    fn start_if_empty(&mut self, member: MemberId, moves: &mut Vec<Move>) {
        let (Some(seat), Some(job)) = (self.seats.get(&member), self.jobs.get(&member.job)) else { return };
        let part = job.spec.size.of_each();
        if seat.spots.iter().all(|spot| self.floor.tile(*spot).can_hold(part)) {
            let gpus = self.floor.uuids(&seat.spots);
            self.sit_down(member);
            moves.push(Move::Start { member, gpus });
        }
    }

    fn claims(&self) -> Vec<(u64, MemberId)> {
        let claimed = self.seats.iter().filter(|(_, seat)| seat.phase == Phase::Claimed);
        let mut claims: Vec<_> = claimed.map(|(member, seat)| (seat.order, *member)).collect();
        claims.sort_unstable();
        claims
    }

    /// Places were promised on GPUs that somebody else has taken since: the latest promises go first.
    fn drop_lost_claims(&mut self) {
        for (_, member) in self.claims().into_iter().rev() {
            let Some(seat) = self.seats.get(&member) else { continue };
            let is_lost = |spot: &Spot| {
                let tile = self.floor.tile(*spot);
                tile.gpu.outside.plus(tile.running).plus(tile.claimed) > MilliGpus::ONE
            };
            if seat.spots.iter().any(is_lost) {
                self.give_up(member);
            }
        }
    }

    // GPUs that empty

    pub(super) fn drop_stale_hold(&mut self) {
        let Some(job) = self.hold.as_ref().map(|hold| hold.job) else { return };
        if !self.guaranteed().iter().any(|candidate| candidate.job() == job) {
            self.hold = None;
        }
    }

    /// The first who is within its quota and finds no room, because others within theirs are spread over the GPUs, gets
    /// the GPUs that empty the soonest: nobody else comes to them.
    fn hold_for_the_blocked(&mut self) {
        if self.hold.is_some() {
            return;
        }
        let hold = self.guaranteed().first().and_then(|candidate| {
            let spots = self.emptiest(candidate)?;
            Some(Hold { job: candidate.job(), spots })
        });
        self.hold = hold;
    }

    fn emptiest(&self, candidate: &Candidate<'_>) -> Option<Vec<Spot>> {
        let count = candidate.shape.size.gpus() as usize;
        let islands = self.floor.islands(&self.reach(candidate)).into_values();
        let best = islands.filter(|spots| spots.len() >= count).map(|mut spots| {
            spots.sort_by_cached_key(|spot| (self.burden(*spot), *spot));
            spots.truncate(count);
            let burden = spots.iter().fold((0, 0), |(lasting, all), spot| {
                let (more, rest) = self.burden(*spot);
                (lasting + more, all + rest)
            });
            (burden, spots)
        });
        best.min().map(|(_, spots)| spots)
    }

    /// What has to leave a GPU until it is empty: what leaves of its own accord only, and everything.
    fn burden(&self, spot: Spot) -> (u32, u32) {
        let tile = self.floor.tile(spot);
        let lasting = self.seats.iter().filter(|(_, seat)| seat.spots.contains(&spot));
        let lasting = lasting.filter_map(|(member, _)| self.jobs.get(&member.job));
        let lasting = lasting.filter(|job| job.spec.is_lasting()).map(|job| job.spec.size.of_each());
        let stays = lasting.sum::<MilliGpus>().plus(tile.gpu.outside);
        (stays.get(), MilliGpus::ONE.less(tile.free(When::Now)).get())
    }
}
