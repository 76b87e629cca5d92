//! The scenario as data: four teams on sixteen GPUs.
//!
//! It is the one that NetApp published (TR-4858, sections 4.8 to 4.10).

use tranche_domain::jobs::JobKind::{self, Interactive, Training};

/// Preset of the simulated node.
pub const PRESET: &str = "v100x16";
/// Number of its GPUs that are linked to each other.
pub const ISLAND: u32 = 8;
/// Number of its GPUs.
pub const GPUS: u32 = 16;

/// The teams, in order of their names, and their quotas in GPUs.
pub const TEAMS: [(&str, u32); 4] = [("team-a", 4), ("team-b", 2), ("team-c", 2), ("team-d", 8)];

/// GPUs of each team in thousandths, and the number of its jobs that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Thousandths of a GPU in running jobs, by team.
    pub milligpus: [u32; 4],
    /// Number of jobs that wait, by team.
    pub queued: [u32; 4],
}

/// A job as it is submitted.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Name, of which the first letter is the team's.
    pub name: &'static str,
    /// Argument of `-g`.
    pub gpus: &'static str,
    /// Training, or interactive work.
    pub kind: JobKind,
}

impl Job {
    /// Team to which the job belongs.
    pub fn team(&self) -> &'static str {
        team(self.name)
    }
}

/// Team of a job with that name.
pub fn team(job: &str) -> &'static str {
    let mut teams = TEAMS.iter().map(|(team, _)| *team);
    teams.find(|team| team.ends_with(&job[..1])).expect("a job's name begins with its team's letter")
}

/// Request of a user.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Submits a job for its team.
    Submit(Job),
    /// Deletes the job of this name.
    Delete(&'static str),
}

impl Act {
    /// Name of the job that is submitted or deleted.
    pub const fn job(&self) -> &'static str {
        match self {
            Self::Submit(job) => job.name,
            Self::Delete(name) => name,
        }
    }
}

/// A request, and the totals that follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Request with which the step begins.
    pub act: Act,
    /// One of these totals is reached once all jobs are settled. Empty: the next step does not wait for that.
    pub then: &'static [Totals],
}

/// Steps that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Name in one word, the first part of its claims' names.
    pub name: &'static str,
    /// Description in a sentence, which is printed.
    pub title: &'static str,
    /// Steps in order of execution.
    pub steps: &'static [Step],
    /// Names of the jobs preempted by its end, sorted.
    pub preempted: &'static [&'static str],
    /// Number of training and interactive jobs that run then, where given.
    pub kinds: Option<(usize, usize)>,
}

impl Stage {
    /// The totals after it.
    pub fn totals(&self) -> Totals {
        *self.steps.last().and_then(|step| step.then.last()).expect("a stage ends with totals")
    }
}

const fn totals(milligpus: [u32; 4], queued: [u32; 4]) -> Totals {
    Totals { milligpus, queued }
}

const fn submit(name: &'static str, gpus: &'static str, kind: JobKind, then: &'static [Totals]) -> Step {
    Step { act: Act::Submit(Job { name, gpus, kind }), then }
}

const fn delete(name: &'static str, then: &'static [Totals]) -> Step {
    Step { act: Act::Delete(name), then }
}

const NONE: [u32; 4] = [0; 4];
const QUOTAS: [u32; 4] = [4000, 2000, 2000, 8000];

/// Stages of the scenario, in order.
pub const STAGES: [Stage; 4] = [
    Stage {
        name: "borrowed",
        title: "What d does not use, b and c borrow",
        steps: &[
            submit("a-1-1-jupyter", "1", Interactive, &[totals([1000, 0, 0, 0], NONE)]),
            submit("a-1-g", "1", Training, &[totals([2000, 0, 0, 0], NONE)]),
            submit("a-2-gg", "2", Training, &[totals([4000, 0, 0, 0], NONE)]),
            submit("b-1-g06", "0.6", Interactive, &[totals([4000, 600, 0, 0], NONE)]),
            submit("b-2-g04", "0.4", Interactive, &[totals([4000, 1000, 0, 0], NONE)]),
            submit("b-3-g", "1", Training, &[totals([4000, 2000, 0, 0], NONE)]),
            submit("b-4-gg", "2", Training, &[totals([4000, 4000, 0, 0], NONE)]),
            submit("c-1-g05", "0.5", Interactive, &[totals([4000, 4000, 500, 0], NONE)]),
            submit("c-2-g03", "0.3", Interactive, &[totals([4000, 4000, 800, 0], NONE)]),
            submit("c-3-g02", "0.2", Interactive, &[totals([4000, 4000, 1000, 0], NONE)]),
            submit("c-4-gg", "2", Training, &[totals([4000, 4000, 3000, 0], NONE)]),
            submit("c-5-g", "1", Training, &[totals([4000, 4000, 4000, 0], NONE)]),
            submit("d-1-gggg", "4", Training, &[totals([4000; 4], NONE)]),
        ],
        preempted: &[],
        kinds: Some((7, 6)),
    },
    Stage {
        name: "returned",
        title: "d wants its quota: b and c give back what they borrowed",
        steps: &[
            submit(
                "d-2-gg",
                "2",
                Training,
                &[
                    totals([4000, 2000, 4000, 6000], [0, 1, 0, 0]),
                    totals([4000, 4000, 2000, 6000], [0, 0, 1, 0]),
                ],
            ),
            submit("d-3-gg", "2", Training, &[totals(QUOTAS, [0, 1, 1, 0])]),
        ],
        preempted: &PREEMPTED,
        kinds: None,
    },
    Stage {
        name: "queued",
        title: "Each team has its quota: jobs beyond it wait",
        steps: &[
            submit("a-3-gg", "2", Training, &[totals(QUOTAS, [1, 1, 1, 0])]),
            submit("a-4-gg", "2", Training, &[totals(QUOTAS, [2, 1, 1, 0])]),
            submit("b-5-gg", "2", Training, &[totals(QUOTAS, [2, 2, 1, 0])]),
            submit("c-6-gg", "2", Training, &[totals(QUOTAS, [2, 2, 2, 0])]),
        ],
        preempted: &PREEMPTED,
        kinds: None,
    },
    Stage {
        name: "divided",
        title: "d ends its jobs: the others divide what it leaves, by weight",
        steps: &[
            delete("d-1-gggg", &[]),
            delete("d-2-gg", &[]),
            delete("d-3-gg", &[totals([8000, 4000, 4000, 0], [0, 1, 1, 0])]),
        ],
        preempted: &PREEMPTED,
        kinds: None,
    },
];

/// Names of the jobs that are preempted, each once.
pub const PREEMPTED: [&str; 2] = ["b-4-gg", "c-4-gg"];

/// Jobs that fit on one GPU together, and are on one.
pub const TOGETHER: [(&str, &[&str]); 2] =
    [("b", &["b-1-g06", "b-2-g04"]), ("c", &["c-1-g05", "c-2-g03", "c-3-g02"])];

/// Names of the jobs that are not deleted, and so come to their end.
pub fn lasting() -> impl Iterator<Item = &'static str> {
    submitted().filter(|name| !deleted().any(|gone| gone == *name))
}

/// Names of all jobs, in order of submission.
pub fn submitted() -> impl Iterator<Item = &'static str> {
    steps().filter(|step| matches!(step.act, Act::Submit(_))).map(|step| step.act.job())
}

/// Names of the jobs that are deleted while they run.
pub fn deleted() -> impl Iterator<Item = &'static str> {
    steps().filter(|step| matches!(step.act, Act::Delete(_))).map(|step| step.act.job())
}

/// Steps of all stages, in order.
pub fn steps() -> impl Iterator<Item = &'static Step> {
    STAGES.iter().flat_map(|stage| stage.steps)
}
