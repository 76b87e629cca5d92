//! A board as it was, from what was kept of it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::board::{Board, Hold, Phase, Seat};
use super::floor::Spot;
use super::job::{Job, JobId, MemberId};
use crate::id::GpuUuid;

/// A member that has a place, or was promised one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Who.
    pub member: MemberId,
    /// Where.
    pub gpus: Vec<GpuUuid>,
    /// How far it is there.
    pub phase: Phase,
    /// In which order places were given.
    pub order: u64,
}

impl Board {
    /// The places of a job's members, as they are to be kept.
    pub fn places(&self, job: JobId) -> Vec<Kept> {
        self.members(job).map(|(member, seat)| self.keep(member, seat)).collect()
    }

    /// The places of everybody.
    pub fn all_places(&self) -> Vec<Kept> {
        self.seats.iter().map(|(member, seat)| self.keep(*member, seat)).collect()
    }

    fn keep(&self, member: MemberId, seat: &Seat) -> Kept {
        Kept { member, gpus: self.gpus_of(seat), phase: seat.phase, order: seat.order }
    }

    /// The GPUs that are kept free for a job as they empty.
    pub fn kept_free(&self) -> Option<(JobId, Vec<GpuUuid>)> {
        self.hold.as_ref().map(|hold| (hold.job, self.floor.uuids(&hold.spots)))
    }

    /// Takes a job back as it was, with nobody at a place. Its project is there already.
    pub fn take_back(&mut self, id: JobId, job: Job) {
        let job = Job { placed: 0, ..job };
        let account = self.account_mut(&job.spec.project);
        account.names.insert(job.spec.name.clone(), id);
        self.jobs.insert(id, job);
        self.number_from(JobId(id.0 + 1));
        self.queue_or_not(id);
    }

    /// Gives members of all jobs their places back. Those who were at a GPU that is not seen now are returned: whoever runs
    /// may go on there, nobody else comes there, and whoever does not has to say that it has left.
    pub fn seat_again(&mut self, mut kept: Vec<Kept>) -> Vec<MemberId> {
        kept.sort_by_key(|kept| kept.order);
        kept.into_iter().filter_map(|kept| self.seat_one_again(kept)).collect()
    }

    fn seat_one_again(&mut self, Kept { member, gpus, phase, .. }: Kept) -> Option<MemberId> {
        let (seen, unseen): (Vec<_>, Vec<_>) =
            gpus.into_iter().partition(|gpu| self.floor.spot_of(*gpu).is_some());
        let lost = !unseen.is_empty();
        let first = if phase == Phase::Stopping { Phase::Running } else { phase };
        self.seat_at(member, self.spots(&seen).unwrap_or_default(), first);
        if let Some(seat) = self.seats.get_mut(&member) {
            seat.unseen = unseen;
        }
        match phase {
            Phase::Claimed if lost => self.give_up(member),
            Phase::Stopping => self.see_off(member),
            Phase::Claimed | Phase::Running => {}
        }
        (lost && phase != Phase::Claimed).then_some(member)
    }

    /// Keeps GPUs free for a job again.
    pub fn keep_free_again(&mut self, job: JobId, gpus: &[GpuUuid]) {
        self.hold = self.spots(gpus).map(|spots| Hold { job, spots });
    }

    fn spots(&self, gpus: &[GpuUuid]) -> Option<Vec<Spot>> {
        gpus.iter().map(|gpu| self.floor.spot_of(*gpu)).collect()
    }

    /// The number of the next job.
    pub const fn next_number(&self) -> u64 {
        self.next_job
    }

    /// Jobs that come from now on have this number or a higher one: numbers are not used again.
    pub fn number_from(&mut self, next: JobId) {
        self.next_job = self.next_job.max(next.0);
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::super::decide::Move;
    use super::super::floor::Gpu;
    use super::super::job::Kind;
    use super::super::tests::{World, islands, spec};
    use super::*;

    fn restored(of: &Board) -> Board {
        let (board, unseen) = restored_on(of.floor.gpus().cloned().collect(), of);
        assert_eq!(unseen, [], "a GPU is missing");
        board
    }

    /// With those who were at a GPU that is not among these.
    fn restored_on(gpus: Vec<Gpu>, of: &Board) -> (Board, Vec<MemberId>) {
        let mut board = Board::new(gpus);
        for project in of.projects() {
            board.set_project(project.clone(), true).unwrap();
        }
        of.jobs().iter().for_each(|(id, job)| board.take_back(*id, job.clone()));
        let unseen = board.seat_again(of.all_places());
        if let Some((job, gpus)) = of.kept_free() {
            board.keep_free_again(job, &gpus);
        }
        (board, unseen)
    }

    /// All that can be seen of a board.
    fn picture(board: &Board) -> impl PartialEq + core::fmt::Debug {
        let seats: Vec<_> = board.jobs().keys().flat_map(|id| board.places(*id)).collect();
        let seats: Vec<_> = seats.into_iter().map(|kept| Kept { order: 0, ..kept }).collect();
        let used: Vec<_> = board.projects().map(|project| board.used(&project.name)).collect();
        let waits: Vec<_> = board.jobs().keys().map(|id| board.wait(*id)).collect();
        (board.jobs().clone(), seats, used, waits, board.floor.clone(), board.kept_free())
    }

    proptest! {
        #[test]
        fn a_board_that_is_taken_back_is_as_it_was_and_goes_on_alike(
            jobs in proptest::collection::vec((0..3usize, 0..4usize, any::<bool>()), 1..14),
            slow: bool,
        ) {
            let mut world = World::new(islands(2, 2), &[("a", "2"), ("b", "1"), ("c", "1")]);
            world.slow = slow;
            for (at, (project, gpus, lasting)) in jobs.into_iter().enumerate() {
                let kind = if lasting { Kind::Interactive } else { Kind::Training };
                let (project, gpus) = (["a", "b", "c"][project], ["0.3", "0.5", "1", "2"][gpus]);
                // One that is refused is not what this is about.
                let _ = world.board.submit(spec(project, &std::format!("j{at}"), gpus, kind));
                world.settle();
            }
            let mut again = restored(&world.board);
            prop_assert_eq!(picture(&again), picture(&world.board));
            let leaving: Vec<_> = world.board.seats.iter()
                .filter(|(_, seat)| seat.phase == Phase::Stopping).map(|(member, _)| *member).collect();
            for member in leaving {
                again.left(member, super::super::Left::Again);
                world.board.left(member, super::super::Left::Again);
            }
            prop_assert_eq!(again.decide(), world.board.decide());
            prop_assert_eq!(picture(&again), picture(&world.board));
        }
    }

    /// Who has what of which GPUs.
    fn places(board: &Board) -> impl PartialEq + core::fmt::Debug {
        let mut kept = board.all_places();
        kept.iter_mut().for_each(|kept| kept.gpus.sort_unstable());
        let used: Vec<_> = board.projects().map(|project| board.used(&project.name)).collect();
        (
            board.jobs().clone(),
            kept.into_iter().map(|kept| Kept { order: 0, ..kept }).collect::<Vec<_>>(),
            used,
        )
    }

    proptest! {
        #[test]
        fn whoever_runs_on_a_gpu_that_is_not_seen_for_a_while_is_where_they_were(
            jobs in proptest::collection::vec((0..2usize, 0..4usize), 1..10),
            seen: [bool; 4],
        ) {
            let mut world = World::new(islands(2, 2), &[("a", "2"), ("b", "1")]);
            for (at, (project, gpus)) in jobs.into_iter().enumerate() {
                let (project, gpus) = (["a", "b"][project], ["0.3", "0.5", "1", "2"][gpus]);
                world.submit(project, &std::format!("j{at}"), gpus, Kind::Training);
            }
            let here = world.board.floor.gpus().filter(|gpu| seen[gpu.index as usize]);
            let (mut half, unseen) = restored_on(here.cloned().collect(), &world.board);
            prop_assert_eq!(places(&half), places(&world.board));
            let (again, nobody) = restored_on(islands(2, 2), &half);
            prop_assert_eq!((places(&again), nobody.len()), (places(&world.board), 0));
            for member in unseen {
                half.left(member, super::super::Left::Again);
            }
            let missing = |kept: &Kept| kept.gpus.iter().any(|gpu| half.floor.spot_of(*gpu).is_none());
            prop_assert!(!half.all_places().iter().any(missing));
        }
    }

    #[test]
    fn a_member_whose_gpu_is_not_seen_keeps_its_place_until_it_leaves() {
        let mut world = World::new(islands(1, 2), &[("a", "2")]);
        let id = world.submit("a", "j", "2", Kind::Training);
        let member = MemberId { job: id, index: 0 };
        let (mut board, unseen) = restored_on(islands(1, 1), &world.board);
        assert_eq!((unseen, board.seat(member)), (vec![member], world.board.seat(member)));
        board.submit(spec("a", "other", "0.5", Kind::Training)).unwrap();
        assert_eq!(board.decide(), [], "the half that is seen is taken");
        board.left(member, super::super::Left::Again);
        let started = board.decide();
        assert!(matches!(&started[..], [Move::Start { member, .. }] if member.job != id), "{started:?}");
        assert!(board.wait(id).is_some(), "it needs two GPUs, and there is one");
    }

    #[test]
    fn a_place_that_was_only_promised_on_a_gpu_that_is_not_seen_is_given_up() {
        let mut world = World::new(islands(1, 2), &[("a", "1"), ("b", "1")]);
        world.slow = true;
        world.submit("b", "takes", "2", Kind::Training);
        let id = world.submit("a", "waits", "1", Kind::Training);
        let member = MemberId { job: id, index: 0 };
        assert_eq!(world.board.seat(member).unwrap().0, Phase::Claimed);
        let (board, unseen) = restored_on(Vec::new(), &world.board);
        assert!(!unseen.contains(&member), "it has never run");
        assert_eq!(board.seat(member), None);
        assert!(board.wait(id).is_some());
    }
}
