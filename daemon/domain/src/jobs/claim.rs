//! Taking places and leaving them: the books of the floor and of the projects follow each other here.

use alloc::vec::Vec;

use super::amount::MilliGpus;
use super::board::{Board, Phase, Seat};
use super::floor::{Spot, Tile};
use super::job::MemberId;

impl Board {
    /// Gives a member a place, to be taken at once or when it is empty.
    pub(super) fn seat_at(&mut self, member: MemberId, spots: Vec<Spot>, phase: Phase) {
        let order = self.next_place();
        self.change_tiles(member, &spots, |tile, part| *sum(tile, phase) = sum(tile, phase).plus(part));
        self.seats.insert(member, Seat { spots, unseen: Vec::new(), phase, order });
        self.charge(member, MilliGpus::plus);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.take(member.index);
        }
        self.queue_or_not(member.job);
        if self.hold.as_ref().is_some_and(|hold| hold.job == member.job) {
            self.hold = None;
        }
    }

    /// A place that was waited for is taken.
    pub(super) fn sit_down(&mut self, member: MemberId) {
        self.enter_phase(member, Phase::Running);
    }

    /// A member is on its way out: its place is others' from now on, as soon as it is empty.
    pub(super) fn see_off(&mut self, member: MemberId) {
        self.enter_phase(member, Phase::Stopping);
        self.charge(member, MilliGpus::less);
    }

    /// A member that waited for its place waits for another.
    pub(super) fn give_up(&mut self, member: MemberId) {
        self.rise(member);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.again.insert(member.index);
        }
        self.queue_or_not(member.job);
    }

    /// A member is not there any more.
    pub(super) fn rise(&mut self, member: MemberId) {
        let Some(seat) = self.seats.get(&member).cloned() else { return };
        if seat.phase != Phase::Stopping {
            self.charge(member, MilliGpus::less);
        }
        let phase = seat.phase;
        self.change_tiles(member, &seat.spots, |tile, part| *sum(tile, phase) = sum(tile, phase).less(part));
        self.seats.remove(&member);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.placed -= 1;
        }
    }

    fn enter_phase(&mut self, member: MemberId, phase: Phase) {
        let Some(seat) = self.seats.get_mut(&member) else { return };
        let (before, spots) = (core::mem::replace(&mut seat.phase, phase), seat.spots.clone());
        self.change_tiles(member, &spots, |tile, part| {
            *sum(tile, before) = sum(tile, before).less(part);
            *sum(tile, phase) = sum(tile, phase).plus(part);
        });
    }

    fn change_tiles(&mut self, member: MemberId, spots: &[Spot], change: impl Fn(&mut Tile, MilliGpus)) {
        let Some(job) = self.jobs.get(&member.job) else { return };
        let part = job.spec.size.of_each();
        for spot in spots {
            change(self.floor.tile_mut(*spot), part);
        }
    }

    /// Counts a member to its project, or no more.
    fn charge(&mut self, member: MemberId, change: impl Fn(MilliGpus, MilliGpus) -> MilliGpus) {
        let Some(job) = self.jobs.get(&member.job) else { return };
        let (project, size, lasting) =
            (job.spec.project.clone(), job.spec.size.total(), job.spec.is_lasting());
        let account = self.account_mut(&project);
        account.used = change(account.used, size);
        if lasting {
            account.lasting = change(account.lasting, size);
        }
    }
}

fn sum(tile: &mut Tile, phase: Phase) -> &mut MilliGpus {
    match phase {
        Phase::Claimed => &mut tile.claimed,
        Phase::Running => &mut tile.running,
        Phase::Stopping => &mut tile.stopping,
    }
}
