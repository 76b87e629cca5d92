//! Claims about the four teams, and their results.

use stress::report::Claim;
use tranche_domain::jobs::JobKind::{Interactive, Training};

use crate::scenario::{GPUS, PREEMPTED, Stage, Step, TEAMS, TOGETHER, lasting, submitted};
use crate::seen::Seen;
use crate::world::World;

/// Claims so far, and the counts from which the last of them are made.
#[derive(Debug, Default)]
pub struct Promises {
    claims: Vec<Claim>,
    steps: u64,
    steps_wrong: u64,
    rounds: u64,
    rounds_moved: u64,
    laws_broken: u64,
}

impl Promises {
    /// Counts a step, and checks the totals that follow from it.
    pub fn step(&mut self, step: &Step, seen: &Seen) {
        self.steps += 1;
        let is_so = step.then.contains(&seen.totals());
        self.steps_wrong += u64::from(!is_so);
        complain_unless(is_so, || format!("after {}: {:?}", step.act.job(), seen.totals()));
        self.laws(seen);
    }

    /// Counts a further round of the scheduler, which has to change nothing.
    pub fn round(&mut self, stage: &Stage, seen: &Seen) {
        self.rounds += 1;
        let stays = seen.is_settled() && seen.totals() == stage.totals();
        self.rounds_moved += u64::from(!stays);
        complain_unless(stays, || format!("{}: a round led to {:?}", stage.name, seen.totals()));
        self.laws(seen);
    }

    fn laws(&mut self, seen: &Seen) {
        let wrongs = seen.wrongs();
        self.laws_broken += wrongs.len() as u64;
        complain_unless(wrongs.is_empty(), || wrongs.join(", "));
    }

    /// Adds claims about the state after a stage.
    pub fn after(&mut self, stage: &Stage, world: &World) {
        let seen = world.look();
        self.teams(stage, &seen);
        let mut exactly = |what: &str, value: usize, unit, goal: usize| {
            self.claims.push(Claim::exactly(
                format!("{}_{what}", stage.name),
                value as u64,
                unit,
                goal as u64,
            ));
        };
        exactly("gpus_in_use", seen.gpus_in_use(), "GPUs", GPUS as usize);
        let (preempted, goal) = (world.preempted(), stage.preempted);
        complain_unless(preempted == goal, || format!("{}: preempted are {preempted:?}", stage.name));
        exactly("preempted", preempted.len(), "jobs", goal.len());
        if let Some((training, interactive)) = stage.kinds {
            exactly("training", seen.running_of(Training), "jobs", training);
            exactly("interactive", seen.running_of(Interactive), "jobs", interactive);
        }
        for (letter, jobs) in TOGETHER {
            exactly(&format!("fractions_of_{letter}_on"), seen.gpus_of(jobs), "GPUs", 1);
        }
        exactly("jobs_on_two_islands", seen.straddling().len(), "jobs", 0);
    }

    fn teams(&mut self, stage: &Stage, seen: &Seen) {
        let (is, goal) = (seen.totals(), stage.totals());
        for (at, (team, _)) in TEAMS.iter().enumerate() {
            let (has, waits) = (goal.milligpus[at], goal.queued[at]);
            self.claims.push(Claim {
                name: format!("{}_{}", stage.name, team.replace('-', "_")),
                value: is.milligpus[at].into(),
                unit: "milligpus",
                goal: format!("= {has}, {waits} queued"),
                holds: (is.milligpus[at], is.queued[at]) == (has, waits),
            });
        }
    }

    /// Adds the claim that preempted jobs continue from their checkpoints.
    pub fn resumed(&mut self, world: &World) {
        let resumed = PREEMPTED.iter().filter(|job| world.runs(job).resumed_from() > Some(0)).count();
        self.exactly("resumed_from_checkpoint", resumed as u64, "jobs", PREEMPTED.len() as u64);
    }

    /// Adds claims about the end: every job has succeeded, none ran twice at once, no slice is left.
    pub fn ended(&mut self, world: &World, seen: &Seen) {
        let succeeded = |name: &&str| seen.find(name).is_some_and(|job| job.state == "succeeded");
        self.exactly("jobs_lost", lasting().filter(|name| !succeeded(name)).count() as u64, "jobs", 0);
        let wrongs: Vec<String> = submitted().flat_map(|job| world.runs(job).wrongs).collect();
        complain_unless(wrongs.is_empty(), || wrongs.join(", "));
        self.exactly("jobs_run_twice_at_once", wrongs.len() as u64, "times", 0);
        self.exactly("slices_left", world.node.smi().slices.len() as u64, "slices", 0);
    }

    fn exactly(&mut self, name: &str, value: u64, unit: &'static str, goal: u64) {
        self.claims.push(Claim::exactly(name, value, unit, goal));
    }

    /// All claims, with those about steps and rounds.
    pub fn into_claims(mut self) -> Vec<Claim> {
        self.claims.push(Claim::at_least("steps", self.steps, "steps", 20));
        self.exactly("steps_with_other_totals", self.steps_wrong, "steps", 0);
        self.claims.push(Claim::at_least("rounds", self.rounds, "rounds", 40));
        self.exactly("rounds_that_moved_anybody", self.rounds_moved, "rounds", 0);
        self.exactly("placement_laws_broken", self.laws_broken, "times", 0);
        self.claims
    }
}

fn complain_unless(is_so: bool, what: impl FnOnce() -> String) {
    if !is_so {
        eprintln!("teams: {}", what());
    }
}
