//! History of GPU use by jobs and users' slices.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{MilliGpus, ProjectName};

use crate::clock::Now;

/// A change of the GPU use of a job or a user's slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Time in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// Project of the job or slice.
    pub project: ProjectName,
    /// Name of the job, or `slice:NAME` of a slice.
    pub job: String,
    /// GPUs of all its members from this time on.
    pub gpus: MilliGpus,
    /// The same time on the job clock, in milliseconds; earlier daemons did not enter it.
    #[serde(default)]
    pub clock_ms: Option<u64>,
}

/// Project and name of an entry of the history.
pub(crate) type EntryName = (ProjectName, String);

/// Name of a user's slice among those of jobs, which have no colon.
pub(crate) fn slice_entry(name: &SliceName) -> String {
    format!("slice:{name}")
}

/// Number of points after which the history has the use of every entry again. The store keeps ten times as many, so that
/// what began before the oldest point is not missing.
const BETWEEN_WHOLE: usize = 10_000;

/// GPUs of each job and user's slice, as the history has them.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    had: BTreeMap<EntryName, MilliGpus>,
    /// Number of points since the last that had every entry.
    since_whole: usize,
}

impl Allocations {
    /// Allocations under an earlier daemon; several amounts of one job are summed.
    pub(crate) fn of_earlier(amounts: impl IntoIterator<Item = (ProjectName, String, MilliGpus)>) -> Self {
        let mut had: BTreeMap<EntryName, MilliGpus> = BTreeMap::new();
        for (project, name, gpus) in amounts {
            let sum = had.entry((project, name)).or_default();
            *sum = sum.plus(gpus);
        }
        Self { had, since_whole: 0 }
    }

    /// Users' slices with their GPUs.
    pub(crate) fn slices(&self) -> Vec<(ProjectName, String, MilliGpus)> {
        let slices = self.had.iter().filter(|((_, name), _)| name.contains(':'));
        slices.map(|((project, name), gpus)| (project.clone(), name.clone(), *gpus)).collect()
    }

    /// Points for what has changed, and now and then for all that there is.
    pub(crate) fn change_to(&mut self, has: BTreeMap<EntryName, MilliGpus>, now: Now) -> Vec<Point> {
        let of = |amounts: &BTreeMap<EntryName, MilliGpus>, name: &EntryName| {
            amounts.get(name).copied().unwrap_or_default()
        };
        let names: BTreeSet<&EntryName> = self.had.keys().chain(has.keys()).collect();
        let is_whole = self.since_whole >= BETWEEN_WHOLE;
        let told = names.into_iter().filter(|name| is_whole || of(&self.had, name) != of(&has, name));
        let point = |name: &EntryName| {
            let (project, job) = name.clone();
            let clock_ms = Some(now.moment().millis());
            Point { time_unix_ms: now.unix_ms, project, job, gpus: of(&has, name), clock_ms }
        };
        let points: Vec<Point> = told.map(point).collect();
        self.since_whole = if is_whole { 0 } else { self.since_whole.saturating_add(points.len()) };
        self.had = has;
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ClockReading};

    fn at(unix_ms: u64) -> Now {
        Clock::default().at(ClockReading { unix_ms, uptime: Default::default() })
    }

    #[test]
    fn long_use_is_entered_again_among_many_short_ones() {
        let entry = |name: &str| ("a".parse::<ProjectName>().unwrap(), name.to_owned());
        let long = (entry("long"), MilliGpus::ONE);
        let mut allocations = Allocations::default();
        let mut points = Vec::new();
        for run in 0..BETWEEN_WHOLE as u64 {
            let short = (entry(&format!("slice:{run}")), MilliGpus::new(1));
            points.extend(allocations.change_to([long.clone(), short].into(), at(run)));
        }
        let of_long: Vec<_> = points.iter().filter(|point| point.job == "long").collect();
        assert!(
            of_long.len() >= 2 && of_long.iter().all(|point| point.gpus == MilliGpus::ONE),
            "{of_long:?}"
        );
        let ended =
            allocations.change_to(BTreeMap::new(), at(9)).into_iter().find(|point| point.job == "long");
        assert_eq!(ended.unwrap().gpus, MilliGpus::ZERO);
        assert_eq!(allocations.change_to(BTreeMap::new(), at(10)), []);
    }

    #[test]
    fn slices_of_an_earlier_daemon_end_in_the_history() {
        let slice = ("a".parse::<ProjectName>().unwrap(), slice_entry(&"s".parse().unwrap()), MilliGpus::ONE);
        let mut allocations = Allocations::of_earlier([slice.clone()]);
        assert_eq!(allocations.slices(), [slice]);
        let points = allocations.change_to(BTreeMap::new(), at(1));
        assert_eq!((points.len(), points[0].gpus), (1, MilliGpus::ZERO));
    }
}
