//! Content of `tranche list --json`, and the laws that hold for it at any time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tranche_domain::jobs::JobKind;

use crate::scenario::{ISLAND, TEAMS, Totals};

/// A job as `tranche list` shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Job {
    /// Project of the job's team.
    pub project: String,
    /// Name, of which the first letter is the team's.
    pub name: String,
    /// State, such as `pending` or `running`.
    pub state: String,
    /// Reason for its state, in words.
    pub reason: String,
    /// Training, or interactive work.
    pub kind: JobKind,
    /// Thousandths of a GPU that its member takes.
    pub gpus_of_member: u32,
    /// Its member, once it was started.
    pub members: Vec<Member>,
}

/// A member of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    /// State of the member, such as `running`.
    pub state: String,
    /// Indexes of its GPUs, while it has some.
    pub gpus: BTreeSet<u32>,
    /// Process id of its job runner, while there is one.
    pub pid: Option<u32>,
}

impl Job {
    /// Indexes of the GPUs of all its members.
    pub fn gpus(&self) -> BTreeSet<u32> {
        self.members.iter().flat_map(|member| member.gpus.iter().copied()).collect()
    }

    fn milligpus_on_each(&self) -> u32 {
        self.gpus_of_member.min(1000)
    }
}

/// All jobs at a moment.
#[derive(Clone, Debug)]
pub struct Seen(pub Vec<Job>);

impl Seen {
    /// Tests if no job is starting or stopping.
    pub fn is_settled(&self) -> bool {
        self.0.iter().all(|job| !["creating", "stopping"].contains(&job.state.as_str()))
    }

    /// The job of that name, if it is listed.
    pub fn find(&self, name: &str) -> Option<&Job> {
        self.0.iter().find(|job| job.name == name)
    }

    /// Jobs in the state `running`.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.0.iter().filter(|job| job.state == "running")
    }

    /// Number of running jobs of a kind.
    pub fn running_of(&self, kind: JobKind) -> usize {
        self.running().filter(|job| job.kind == kind).count()
    }

    /// GPUs of each team in thousandths, and the number of its jobs that wait.
    pub fn totals(&self) -> Totals {
        let of = |team: &str, states: &[&str]| {
            let job = |job: &&Job| job.project == team && states.contains(&job.state.as_str());
            self.0.iter().filter(job).map(|job| job.gpus_of_member).collect::<Vec<_>>()
        };
        Totals {
            milligpus: TEAMS.map(|(team, _)| of(team, &["running"]).iter().sum()),
            queued: TEAMS.map(|(team, _)| of(team, &["pending", "parked"]).len() as u32),
        }
    }

    /// Number of GPUs on which these jobs are.
    pub fn gpus_of(&self, names: &[&str]) -> usize {
        let jobs = names.iter().filter_map(|name| self.find(name));
        jobs.flat_map(Job::gpus).collect::<BTreeSet<_>>().len()
    }

    /// Number of GPUs with a running job.
    pub fn gpus_in_use(&self) -> usize {
        self.running().flat_map(Job::gpus).collect::<BTreeSet<_>>().len()
    }

    /// Names of jobs on GPUs of several islands.
    pub fn straddling(&self) -> Vec<String> {
        let islands = |job: &Job| job.gpus().iter().map(|gpu| gpu / ISLAND).collect::<BTreeSet<_>>().len();
        self.0.iter().filter(|job| islands(job) > 1).map(|job| job.name.clone()).collect()
    }

    /// Violations in words.
    ///
    /// These are a GPU of which more is given than there is, a job on another number of GPUs than it requested, and one
    /// on two islands.
    pub fn wrongs(&self) -> Vec<String> {
        let mut given: BTreeMap<u32, u32> = BTreeMap::new();
        for job in &self.0 {
            job.gpus().into_iter().for_each(|gpu| *given.entry(gpu).or_default() += job.milligpus_on_each());
        }
        let too_much = given.iter().filter(|(_, milli)| **milli > 1000);
        let too_much = too_much.map(|(gpu, milli)| format!("{milli}/1000 of GPU {gpu} are given"));
        let requested = |job: &Job| job.gpus_of_member.div_ceil(1000) as usize;
        let other = self.running().filter(|job| job.gpus().len() != requested(job));
        let other = other.map(|job| format!("{} is on GPUs {:?}", job.name, job.gpus()));
        let straddling = self.straddling().into_iter().map(|name| format!("{name} is on two islands"));
        too_much.chain(other).chain(straddling).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, state: &str, milli: u32, gpus: &[u32]) -> Job {
        let member = Member { state: state.into(), gpus: gpus.iter().copied().collect(), pid: None };
        Job {
            project: "team-a".into(),
            name: name.into(),
            state: state.into(),
            reason: String::new(),
            kind: JobKind::Training,
            gpus_of_member: milli,
            members: vec![member],
        }
    }

    #[test]
    fn what_is_given_twice_is_noticed() {
        let fine = [job("x", "running", 600, &[3]), job("y", "running", 400, &[3])];
        assert_eq!(Seen(fine.to_vec()).wrongs(), Vec::<String>::new());
        let [x, y] = fine;
        let third = job("z", "stopping", 100, &[3]);
        assert_eq!(Seen(vec![x, y, third]).wrongs().len(), 1, "a stopping job still has it");
    }

    #[test]
    fn a_job_on_two_islands_or_too_few_gpus_is_noticed() {
        assert_eq!(Seen(vec![job("x", "running", 2000, &[7, 8])]).wrongs().len(), 1);
        assert_eq!(Seen(vec![job("x", "running", 2000, &[7])]).wrongs().len(), 1);
    }
}
