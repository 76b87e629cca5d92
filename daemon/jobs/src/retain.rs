//! What came of a job can be looked up for a while, and not for ever: neither the store nor the logs grow without end.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::jobs::{JobId, ProjectName};

use crate::entry::Entry;

/// Which ended jobs are kept. The others are forgotten, with what they printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So many of each project, those that ended last.
    pub most: usize,
    /// For so long.
    pub age: Duration,
}

impl Retention {
    /// As it is where nobody says otherwise.
    pub const DEFAULT: Self = Self { most: 500, age: Duration::from_hours(30 * 24) };

    /// Those that are forgotten now.
    pub(crate) fn expired(self, entries: &BTreeMap<JobId, Entry>, now_unix_ms: u64) -> Vec<JobId> {
        let mut ended: BTreeMap<&ProjectName, Vec<(u64, JobId)>> = BTreeMap::new();
        for (id, entry) in entries {
            if let Some(at) = entry.ended_unix_ms {
                ended.entry(&entry.spec.project).or_default().push((at, *id));
            }
        }
        ended.into_values().flat_map(|jobs| self.expired_of_project(jobs, now_unix_ms)).collect()
    }

    fn expired_of_project(
        self,
        mut jobs: Vec<(u64, JobId)>,
        now_unix_ms: u64,
    ) -> impl Iterator<Item = JobId> {
        jobs.sort_unstable();
        let too_many = jobs.len().saturating_sub(self.most);
        let since = now_unix_ms.saturating_sub(u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX));
        let is_over = move |at: usize, ended: u64| at < too_many || ended < since;
        let ranked = jobs.into_iter().enumerate();
        ranked.filter(move |(at, (ended, _))| is_over(*at, *ended)).map(|(_, (_, id))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_ended_first_are_forgotten_where_they_are_too_many_or_too_old() {
        let retention = Retention { most: 2, age: Duration::from_secs(1) };
        let expired = |ended: &[u64], now| {
            let jobs = ended.iter().zip(0..).map(|(at, id)| (*at, JobId(id))).collect();
            retention.expired_of_project(jobs, now).map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(expired(&[30, 10, 20], 500), [1]);
        assert_eq!(expired(&[30, 10], 500), [0u64; 0]);
        assert_eq!(expired(&[30, 1100], 1200), [0]);
        assert_eq!(expired(&[30, 1100, 31], 5000), [0, 2, 1]);
    }
}
