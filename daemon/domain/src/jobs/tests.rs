//! A small world to try the board in, and what is tried.

mod laws;
mod oracle;
mod rules;
mod scenario;

use core::num::NonZeroU32;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::board::{Board, Left, Phase};
use super::{Gpu, JobId, JobSpec, Kind, MemberId, MilliGpus, Move, Project, ProjectName, Size};
use crate::compute::Priority;
use crate::id::GpuUuid;
use crate::request::Share;

/// Islands of eight GPUs.
pub(super) fn islands(count: u32, size: u32) -> Vec<Gpu> {
    let gpu = |index: u32| Gpu {
        index,
        uuid: GpuUuid::from_bytes([index as u8; 16]),
        island: index / size,
        outside: MilliGpus::ZERO,
    };
    (0..count * size).map(gpu).collect()
}

pub(super) fn size(text: &str) -> Size {
    match text.parse().unwrap() {
        Share::Fraction(fraction) => Size::Part(fraction),
        Share::Whole(count) => Size::Whole(count),
        Share::Memory(_) => panic!("{text} is no size of a job"),
    }
}

pub(super) fn project(name: &str, quota: &str) -> Project {
    Project::new(name.parse().unwrap(), quota.parse().unwrap())
}

pub(super) fn spec(project: &str, name: &str, gpus: &str, kind: Kind) -> JobSpec {
    JobSpec {
        project: project.parse().unwrap(),
        name: name.parse().unwrap(),
        size: size(gpus),
        kind,
        preemptible: kind == Kind::Training,
        priority: Priority::DEFAULT,
        parallelism: NonZeroU32::MIN,
        completions: NonZeroU32::MIN,
    }
}

/// A board whose jobs do as they are told at once, unless it is told otherwise.
pub(super) struct World {
    pub(super) board: Board,
    /// Whether those who are told to leave take their time.
    pub(super) slow: bool,
    pub(super) stopped: Vec<String>,
}

impl core::fmt::Debug for World {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let gpus = self.board.floor().gpus().map(|gpu| (gpu.index, gpu.island, gpu.outside.to_string()));
        writeln!(f, "GPUs {:?}", gpus.collect::<Vec<_>>())?;
        for account in self.board.accounts.values() {
            let Project { name, quota, weight, .. } = &account.project;
            writeln!(f, "{name}: {} of {quota}, weight {weight:?}", account.used)?;
        }
        for (member, seat) in &self.board.seats {
            let spec = &self.board.jobs()[&member.job].spec;
            let JobSpec { project, name, size, .. } = spec;
            writeln!(f, "{project}/{name} {size} {seat:?} lasting {}", spec.is_lasting())?;
        }
        for (id, job) in self.board.jobs().iter().filter(|(_, job)| job.pending().is_some()) {
            let JobSpec { project, name, size, .. } = &job.spec;
            writeln!(f, "{project}/{name} {size} waits: {:?}", self.board.wait(*id))?;
        }
        write!(f, "hold {:?}", self.board.hold)
    }
}

impl World {
    pub(super) fn new(gpus: Vec<Gpu>, projects: &[(&str, &str)]) -> Self {
        let mut board = Board::new(gpus);
        for (name, quota) in projects {
            board.set_project(project(name, quota), false).unwrap();
        }
        Self { board, slow: false, stopped: Vec::new() }
    }

    pub(super) fn submit(&mut self, project: &str, name: &str, gpus: &str, kind: Kind) -> JobId {
        self.take_on(spec(project, name, gpus, kind))
    }

    pub(super) fn take_on(&mut self, spec: JobSpec) -> JobId {
        let id = self.board.submit(spec).unwrap();
        self.settle();
        id
    }

    /// Decides until nothing moves any more; says how many rounds something did.
    pub(super) fn settle(&mut self) -> usize {
        for round in 0..1000 {
            let moves = self.board.decide();
            assert_eq!(self.board.decide(), [], "a decision was not the last one: {self:?}");
            if moves.is_empty() {
                return round;
            }
            self.follow(&moves);
        }
        panic!("the board never comes to rest");
    }

    fn follow(&mut self, moves: &[Move]) {
        for one in moves {
            if let Move::Stop { member, .. } = one {
                self.stopped.push(self.name(*member));
                if !self.slow {
                    self.board.left(*member, Left::Again);
                }
            }
        }
    }

    pub(super) fn name(&self, member: MemberId) -> String {
        self.board.jobs()[&member.job].spec.name.to_string()
    }

    pub(super) fn delete(&mut self, project: &str, names: &[&str]) {
        for name in names {
            let id = self.board.find(&project.parse().unwrap(), &name.parse().unwrap()).unwrap();
            for member in self.board.delete(id) {
                self.board.left(member, Left::Done);
            }
        }
        self.settle();
    }

    pub(super) fn used(&self, project: &str) -> String {
        self.board.used(&project.parse().unwrap()).to_string()
    }

    /// The jobs of a project that wait, none of whose members has a place.
    pub(super) fn queued(&self, project: &str) -> BTreeSet<String> {
        let project: ProjectName = project.parse().unwrap();
        let jobs = self.board.jobs().iter().filter(|(_, job)| job.spec.project == project);
        let waits = |id: JobId| self.board.members(id).next().is_none();
        jobs.filter(|(id, _)| waits(**id)).map(|(_, job)| job.spec.name.to_string()).collect()
    }

    pub(super) fn running(&self) -> Vec<(MemberId, Vec<u32>)> {
        let seats = self.board.seats.iter().filter(|(_, seat)| seat.phase == Phase::Running);
        let gpus =
            |spots: &[usize]| spots.iter().map(|spot| self.board.floor.tile(*spot).gpu.index).collect();
        seats.map(|(member, seat)| (*member, gpus(&seat.spots))).collect()
    }

    pub(super) fn gpus_of(&self, project: &str, names: &[&str]) -> BTreeSet<u32> {
        let ids: Vec<JobId> = names
            .iter()
            .map(|name| self.board.find(&project.parse().unwrap(), &name.parse().unwrap()).unwrap())
            .collect();
        let of_these = self.running().into_iter().filter(|(member, _)| ids.contains(&member.job));
        of_these.flat_map(|(_, gpus)| gpus).collect()
    }
}
