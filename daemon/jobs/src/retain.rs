//! What came of a job can be looked up for a while, and not for ever: neither the store nor the logs grow without end.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::jobs::{JobId, ProjectName};

use crate::clock::Moment;
use crate::entry::Entry;

/// Which ended jobs are kept. The others are forgotten, with what they printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So many of each project, those that ended last.
    pub most: usize,
    /// For so long, while the machine is on.
    pub age: Duration,
}

impl Retention {
    /// As it is where nobody says otherwise.
    pub const DEFAULT: Self = Self { most: 500, age: Duration::from_hours(30 * 24) };

    /// Those that are forgotten now.
    pub(crate) fn expired(self, entries: &BTreeMap<JobId, Entry>, now: Moment) -> Vec<JobId> {
        let mut ended: BTreeMap<&ProjectName, Vec<Ended>> = BTreeMap::new();
        for (id, entry) in entries {
            if let Some(unix_ms) = entry.ended_unix_ms {
                ended.entry(&entry.spec.project).or_default().push((entry.ended, unix_ms, *id));
            }
        }
        ended.into_values().flat_map(|jobs| self.expired_of_project(jobs, now)).collect()
    }

    fn expired_of_project(self, mut jobs: Vec<Ended>, now: Moment) -> impl Iterator<Item = JobId> {
        jobs.sort_unstable();
        let too_many = jobs.len().saturating_sub(self.most);
        let is_over = move |at: usize, ended: Moment| at < too_many || now.since(ended) > self.age;
        let ranked = jobs.into_iter().enumerate();
        ranked.filter(move |(at, (ended, ..))| is_over(*at, *ended)).map(|(_, (.., id))| id)
    }
}

/// When a job ended, by the desk's clock; those that ended before there was one, by what people read.
type Ended = (Moment, u64, JobId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_ended_first_are_forgotten_where_they_are_too_many_or_too_old() {
        let retention = Retention { most: 2, age: Duration::from_secs(1) };
        let moment = |ms| Moment(Duration::from_millis(ms));
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
    fn those_that_ended_before_there_was_a_clock_are_forgotten_in_their_order() {
        let retention = Retention { most: 1, ..Retention::DEFAULT };
        let jobs = vec![(Moment::default(), 7, JobId(0)), (Moment::default(), 5, JobId(1))];
        let expired: Vec<_> = retention.expired_of_project(jobs, Moment::default()).collect();
        assert_eq!(expired, [JobId(1)]);
    }
}
