//! Allocated GPUs over time in a bounded number of columns, from the daemon's history.
//!
//! `tranche history --svg` draws each change as it was. Here a column has the mean over its time, so that a year of
//! short jobs is no larger than an hour of one.

use std::collections::BTreeMap;

use tranche_rpc::v1::HistoryPoint;

use crate::limits::{COLUMNS, MOST_BANDS};
use crate::overview::{Allocation, Band};

/// Longest time that the chart shows: seven days, so that a column is an hour.
const SPAN_MS: u64 = 7 * 24 * 3600 * 1000;
/// Shortest time that the chart shows: ten minutes.
const LEAST_SPAN_MS: u64 = 600_000;
/// Name of the band of all projects that have none of their own.
const OTHERS: &str = "other projects";

/// Allocation by project until now; `None` without a point.
pub(crate) fn allocation(points: &[HistoryPoint], now_unix_ms: u64) -> Option<Allocation> {
    let first = points.iter().map(|point| point.time_unix_ms).min()?;
    let begin = first.clamp(now_unix_ms.saturating_sub(SPAN_MS), now_unix_ms.saturating_sub(LEAST_SPAN_MS));
    let width = now_unix_ms.saturating_sub(begin).div_ceil(COLUMNS as u64).max(1);
    let mut sums: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut had: BTreeMap<(&str, &str), (u64, u32)> = BTreeMap::new();
    for point in points {
        let key = (point.project.as_str(), point.job.as_str());
        if let Some((since, milligpus)) = had.insert(key, (point.time_unix_ms, point.milligpus)) {
            add(&mut sums, point.project.as_str(), (since, point.time_unix_ms), milligpus, (begin, width));
        }
    }
    for ((project, _), (since, milligpus)) in had {
        add(&mut sums, project, (since, now_unix_ms), milligpus, (begin, width));
    }
    let mean = |(at, sum): (usize, &u64)| {
        let from = begin.saturating_add(width.saturating_mul(at as u64));
        let elapsed = now_unix_ms.saturating_sub(from).min(width).max(1);
        u32::try_from((sum + elapsed / 2) / elapsed).unwrap_or(u32::MAX)
    };
    let band = |(project, sums): (&str, Vec<u64>)| Band {
        project: project.to_owned(),
        milligpus: sums.iter().enumerate().map(mean).collect(),
    };
    let bands = sums.into_iter().map(band).filter(|band| band.milligpus.iter().any(|mean| *mean > 0));
    Some(Allocation { begin_unix_ms: begin, end_unix_ms: now_unix_ms, bands: few(bands.collect()) })
}

/// Adds an amount to the columns that its time touches, multiplied by that time.
fn add<'a>(
    sums: &mut BTreeMap<&'a str, Vec<u64>>,
    project: &'a str,
    (since, until): (u64, u64),
    milligpus: u32,
    (begin, width): (u64, u64),
) {
    if milligpus == 0 || until <= begin {
        return;
    }
    let sums = sums.entry(project).or_insert_with(|| vec![0; COLUMNS]);
    let first = usize::try_from(since.saturating_sub(begin) / width).unwrap_or(COLUMNS);
    for (at, sum) in sums.iter_mut().enumerate().skip(first) {
        let from = begin.saturating_add(width.saturating_mul(at as u64));
        if from >= until {
            break;
        }
        let time = until.min(from.saturating_add(width)).saturating_sub(since.max(from));
        *sum = sum.saturating_add(time.saturating_mul(milligpus.into()));
    }
}

/// The largest bands by name, and one with the sum of the others.
fn few(mut bands: Vec<Band>) -> Vec<Band> {
    let size = |band: &Band| band.milligpus.iter().map(|mean| u64::from(*mean)).sum::<u64>();
    bands.sort_by_key(|band| std::cmp::Reverse(size(band)));
    let others = bands.split_off(bands.len().min(MOST_BANDS));
    bands.sort_by(|one, other| one.project.cmp(&other.project));
    if !others.is_empty() {
        let sum = |at| others.iter().map(|band| band.milligpus[at]).fold(0, u32::saturating_add);
        bands.push(Band { project: OTHERS.into(), milligpus: (0..COLUMNS).map(sum).collect() });
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(time_unix_ms: u64, project: &str, job: &str, milligpus: u32) -> HistoryPoint {
        HistoryPoint { time_unix_ms, project: project.into(), job: job.into(), milligpus }
    }

    /// Milliseconds of a column over the longest span.
    const WIDTH: u64 = SPAN_MS / COLUMNS as u64;

    #[test]
    fn columns_have_the_mean_of_their_time() {
        let points = [
            point(0, "a", "x", 1000),
            point(WIDTH / 2, "a", "y", 2000),
            point(3 * WIDTH / 2, "a", "x", 0),
            point(2 * WIDTH, "a", "y", 0),
        ];
        let allocation = allocation(&points, SPAN_MS).unwrap();
        assert_eq!((allocation.begin_unix_ms, allocation.end_unix_ms), (0, SPAN_MS));
        assert_eq!(allocation.bands[0].milligpus[..4], [2000, 2500, 0, 0]);
    }

    #[test]
    fn use_that_began_before_the_span_counts_in_it() {
        let points = [point(5, "a", "x", 500)];
        let allocation = allocation(&points, 5 + 3 * SPAN_MS).unwrap();
        assert_eq!(allocation.bands[0].milligpus, vec![500; COLUMNS]);
        assert_eq!(allocation.begin_unix_ms, 5 + 2 * SPAN_MS);
    }

    #[test]
    fn young_history_has_ten_minutes() {
        let now = 1_000_000_000;
        let allocation = allocation(&[point(now - 1000, "a", "x", 500)], now).unwrap();
        assert_eq!(allocation.begin_unix_ms, now - LEAST_SPAN_MS);
        assert_eq!(allocation.bands[0].milligpus[0], 0);
    }

    #[test]
    fn many_projects_share_a_band() {
        let points: Vec<_> = (0..100).map(|number| point(0, &format!("p{number:03}"), "x", 10)).collect();
        let bands = allocation(&points, SPAN_MS).unwrap().bands;
        assert_eq!(bands.len(), MOST_BANDS + 1);
        let sum = bands.iter().map(|band| band.milligpus[0]).sum::<u32>();
        assert_eq!((sum, bands.last().unwrap().project.as_str()), (1000, OTHERS));
    }

    #[test]
    fn points_of_a_wrong_clock_do_no_harm() {
        let points = [point(u64::MAX, "a", "x", u32::MAX), point(0, "a", "x", u32::MAX)];
        assert!(allocation(&points, 5).is_some());
        assert_eq!(allocation(&[], 5), None);
    }
}
