//! Projects and jobs that share the GPUs, the same in every run.

use std::num::NonZeroU32;

use tranche_domain::compute::Priority;
use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{
    HostLimits, JobKind, JobSpec, JobTerms, LaunchSpec, MilliGpus, PoolGpu, Project, Size, Submission,
    TerminationPolicy,
};
use tranche_domain::request::Share;
use tranche_domain::units::Bytes;

/// Numbers of GPUs that jobs request.
const SIZES: [&str; 8] = ["0.1", "0.2", "0.3", "0.5", "0.5", "1", "2", "4"];
/// Number of jobs of which one is interactive, if its project's quota permits it.
const INTERACTIVE: u64 = 5;
/// GPUs, in two islands.
const GPUS: u32 = 16;

/// Projects, and a source of jobs.
#[derive(Debug)]
pub(crate) struct Crowd {
    projects: Vec<Project>,
    dice: u64,
    jobs: u64,
}

impl Crowd {
    /// Projects of which every tenth shares a quota of half of the GPUs; the others have the rest.
    pub(crate) fn of(projects: u32) -> Self {
        let quota = |number: u32| {
            let like = if number.is_multiple_of(10) { projects.div_ceil(10) } else { projects };
            MilliGpus::new(GPUS * 500 / like)
        };
        let project = |number| {
            let name = format!("project-{number:04}").parse().expect("it is a name");
            Project::new(name, quota(number))
        };
        Self { projects: (0..projects).map(project).collect(), dice: 1, jobs: 0 }
    }

    pub(crate) fn projects(&self) -> &[Project] {
        &self.projects
    }

    /// The next random number below `bound`, the same in every run (splitmix64).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.dice ^ (self.dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Draws the next job.
    pub(crate) fn job(&mut self) -> JobSpec {
        let project = self.below(self.projects.len() as u64) as usize;
        let size = size(SIZES[self.below(SIZES.len() as u64) as usize]);
        let sits = self.below(INTERACTIVE) == 0 && size.total() <= self.projects[project].quota;
        let kind = if sits { JobKind::Interactive } else { JobKind::Training };
        self.jobs += 1;
        JobSpec {
            project: self.projects[project].name.clone(),
            name: format!("job-{}", self.jobs).parse().expect("it is a name"),
            size,
            part: None,
            kind,
            preemptible: kind == JobKind::Training,
            priority: Priority::DEFAULT,
            parallelism: NonZeroU32::MIN,
            completions: NonZeroU32::MIN,
            latency: None,
            gang: false,
            service: None,
        }
    }

    /// Draws the next job, with an environment of a usual size.
    pub(crate) fn submission(&mut self) -> Submission {
        let variable = |number| (format!("VARIABLE_{number:02}"), "x".repeat(64));
        let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
        let launch = LaunchSpec {
            command: ["sleep", "1000000"].map(String::from).to_vec(),
            environment: std::iter::once(path).chain((0..30).map(variable)).collect(),
            workdir: "/".into(),
            container: None,
        };
        let (farewell, host) = (TerminationPolicy::DEFAULT, HostLimits::default());
        let terms = JobTerms { max_runtime: None, retries: 0, farewell, host };
        Submission { spec: self.job(), launch, terms, after: [].into(), ticket: None }
    }
}

fn size(text: &str) -> Size {
    match text.parse() {
        Ok(Share::Fraction(fraction)) => Size::Part(fraction),
        Ok(Share::Whole(count)) => Size::Whole(count),
        other => unreachable!("{text} is a number of GPUs, not {other:?}"),
    }
}

/// The GPUs, without use outside of jobs.
pub(crate) fn gpus() -> Vec<PoolGpu> {
    let gpu = |index: u32| PoolGpu {
        index,
        uuid: GpuUuid::from_bytes([index as u8; 16]),
        island: index / (GPUS / 2),
        capacity: Bytes::mib(16 << 10),
        outside: MilliGpus::ZERO,
        cordon: None,
        targets: Vec::new(),
    };
    (0..GPUS).map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_crowd_comes_every_time_and_its_quotas_are_those_of_the_node() {
        let (mut one, mut other) = (Crowd::of(200), Crowd::of(200));
        assert!((0..100).all(|_| one.job() == other.job()));
        let sum: MilliGpus = one.projects().iter().map(|project| project.quota).sum();
        assert!(sum <= MilliGpus::whole(GPUS) && sum > MilliGpus::whole(GPUS - 2), "{sum}");
        let kinds: Vec<JobKind> = (0..500).map(|_| one.job().kind).collect();
        assert!(kinds.contains(&JobKind::Interactive) && kinds.contains(&JobKind::Training));
    }
}
