//! Retention of ended jobs, which bounds the store and the logs.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::jobs::{JobId, ProjectName};

use crate::clock::JobTime;
use crate::record::JobRecord;

/// Limits on ended jobs; others are deleted with their logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number kept of each project, latest end first.
    pub most: usize,
    /// Maximum age, counted while the machine is on.
    pub age: Duration,
}

impl Retention {
    /// 500 jobs of each project, 30 days.
    pub const DEFAULT: Self = Self { most: 500, age: Duration::from_hours(30 * 24) };

    /// Jobs to delete now.
    pub(crate) fn expired(self, entries: &BTreeMap<JobId, JobRecord>, now: JobTime) -> Vec<JobId> {
        let mut ended: BTreeMap<&ProjectName, Vec<Ended>> = BTreeMap::new();
        for (id, entry) in entries {
            if let Some(unix_ms) = entry.ended_unix_ms {
                ended.entry(&entry.spec.project).or_default().push((entry.ended, unix_ms, *id));
            }
        }
        ended.into_values().flat_map(|jobs| self.expired_of_project(jobs, now)).collect()
    }

    fn expired_of_project(self, mut jobs: Vec<Ended>, now: JobTime) -> impl Iterator<Item = JobId> {
        jobs.sort_unstable();
        let too_many = jobs.len().saturating_sub(self.most);
        let is_over = move |at: usize, ended: JobTime| at < too_many || now.since(ended) > self.age;
        let ranked = jobs.into_iter().enumerate();
        ranked.filter(move |(at, (ended, ..))| is_over(*at, *ended)).map(|(_, (.., id))| id)
    }
}

/// End on the job clock, then wall-clock end for jobs from before that clock.
type Ended = (JobTime, u64, JobId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_ended_jobs_expire_by_count_and_age() {
        let retention = Retention { most: 2, age: Duration::from_secs(1) };
        let moment = |ms| JobTime(Duration::from_millis(ms));
        let expired = |ended: &[u64], now| {
            let jobs = ended.iter().zip(0..).map(|(at, id)| (moment(*at), 0, JobId(id))).collect();
            retention.expired_of_project(jobs, moment(now)).map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(expired(&[30, 10, 20], 500), [1]);
        assert_eq!(expired(&[30, 10], 500), [0u64; 0]);
        assert_eq!(expired(&[30, 1100], 1200), [0]);
        assert_eq!(expired(&[30, 1100, 31], 5000), [0, 2, 1]);
    }

    #[test]
    fn jobs_from_before_the_clock_expire_in_order() {
        let retention = Retention { most: 1, ..Retention::DEFAULT };
        let jobs = vec![(JobTime::default(), 7, JobId(0)), (JobTime::default(), 5, JobId(1))];
        let expired: Vec<_> = retention.expired_of_project(jobs, JobTime::default()).collect();
        assert_eq!(expired, [JobId(1)]);
    }
}
