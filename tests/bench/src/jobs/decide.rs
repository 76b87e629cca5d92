//! Decisions of the quota scheduler: one each time that a job ends, is submitted or makes room.

use std::time::Instant;

use bench::Result;
use bench::report::Report;
use bench::stats::{mean, quantile, sorted};
use tranche_domain::jobs::{Action, Exit, MemberId, QuotaScheduler};

use crate::crowd::{Crowd, gpus};
use crate::scale::Scale;

/// Jobs for each project on the curve where the number of projects grows with the jobs.
const JOBS_OF_EACH: u32 = 50;
/// Numbers of queued jobs at the points of a curve. With fewer than a hundred projects the quotas are larger than most
/// jobs, and the search is short, so that such a point is no start for growth.
const POINTS: [usize; 5] = [5000, 10_000, 20_000, 40_000, 80_000];
/// Number of lots, the median of whose means is a point.
const LOTS: usize = 15;

/// Cost of a decision in milliseconds, by the number of queued jobs.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(usize, f64)>,
}

/// A quota scheduler with jobs that never run out.
struct Game {
    scheduler: QuotaScheduler,
    crowd: Crowd,
    running: Vec<MemberId>,
    leaving: Vec<MemberId>,
}

impl Game {
    fn begin(projects: u32, jobs: usize) -> Result<Self> {
        let crowd = Crowd::of(projects);
        let mut scheduler = QuotaScheduler::new(gpus());
        for project in crowd.projects() {
            scheduler.set_project(project.clone(), false).map_err(|refusal| refusal.to_string())?;
        }
        let mut game = Self { scheduler, crowd, running: Vec::new(), leaving: Vec::new() };
        (0..jobs).try_for_each(|_| game.submit())?;
        Ok(game)
    }

    fn submit(&mut self) -> Result<()> {
        self.scheduler.submit(self.crowd.job()).map(drop).map_err(|refusal| refusal.to_string())
    }

    /// Makes a decision; returns its length in milliseconds.
    fn decide(&mut self) -> f64 {
        let begun = Instant::now();
        let moves = self.scheduler.decide();
        let took = begun.elapsed().as_secs_f64() * 1e3;
        for one in moves {
            match one {
                Action::Start { member, .. } | Action::Unpark { member } => self.running.push(member),
                Action::Stop { member, .. } | Action::Recall { member, .. } => {
                    self.running.retain(|running| *running != member);
                    self.leaving.push(member);
                }
            }
        }
        took
    }

    /// Ends a member that was to stop; if there is none, completes a running one and submits another job.
    fn change(&mut self) -> Result<()> {
        if let Some(member) = self.leaving.pop() {
            self.scheduler.member_exited(member, Exit::Requeued);
            return Ok(());
        }
        if !self.running.is_empty() {
            let at = self.crowd.below(self.running.len() as u64) as usize;
            self.scheduler.member_exited(self.running.swap_remove(at), Exit::Completed);
        }
        self.submit()
    }

    /// Length of each of `count` decisions, in milliseconds.
    fn decisions(&mut self, count: usize) -> Result<Vec<f64>> {
        (0..count).map(|_| self.change().map(|()| self.decide())).collect()
    }
}

pub(crate) fn all(scale: Scale, report: &mut Report) -> Result<Vec<Curve>> {
    let mut game = Game::begin(scale.projects, scale.jobs)?;
    let first = game.decide();
    report.figure("decision_first_ms", "board", "ms", &[first]);
    let took = sorted(&game.decisions(scale.decisions)?);
    report.figure("decision_ms", "board", "ms", &took);
    report.at_most("decision_p99_ms", quantile(&took, 0.99), "ms", 10.0);
    let few = |jobs: usize| jobs * scale.jobs / 10_000;
    let points: Vec<usize> = POINTS.into_iter().map(few).collect();
    let same = curve("the same projects", &points, scale, |_| scale.projects)?;
    let more = curve("50 jobs to each project", &points, scale, |jobs| jobs as u32 / JOBS_OF_EACH)?;
    for (name, curve) in [("same_projects", &same), ("more_projects", &more)] {
        for (jobs, cost) in &curve.points {
            report.figure(&format!("decision_ms_of_{jobs}_{name}"), "board", "ms", &[*cost]);
        }
        report.at_most(&format!("growth_beyond_n_log_n_{name}"), beyond(&curve.points), "", 1.0);
    }
    Ok(vec![same, more])
}

fn curve(
    name: &'static str,
    points: &[usize],
    scale: Scale,
    projects: impl Fn(usize) -> u32,
) -> Result<Curve> {
    let point = |jobs: &usize| {
        let mut game = Game::begin(projects(*jobs).max(1), *jobs)?;
        game.decide();
        let took = game.decisions(scale.decisions / 3)?;
        let lots: Vec<f64> = took.chunks(took.len().div_ceil(LOTS)).map(mean).collect();
        Ok((*jobs, quantile(&sorted(&lots), 0.5)))
    };
    Ok(Curve { name, points: points.iter().map(point).collect::<Result<_>>()? })
}

/// Growth of the cost from the first point to the last, divided by that of n log n.
fn beyond(points: &[(usize, f64)]) -> f64 {
    let n_log_n = |jobs: usize| jobs as f64 * (jobs as f64).ln();
    match (points.first(), points.last()) {
        (Some(first), Some(last)) => last.1 / first.1 / (n_log_n(last.0) / n_log_n(first.0)),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_compared_with_n_log_n() {
        let grows = |cost: fn(f64) -> f64| [10, 1000].map(|jobs| (jobs, cost(jobs as f64)));
        assert!((beyond(&grows(|n| n * n.ln())) - 1.0).abs() < 1e-9);
        assert!(beyond(&grows(|n| n * n)) > 10.0 && beyond(&grows(|n| n)) < 1.0);
        assert!(beyond(&[]).is_nan());
    }

    #[test]
    fn decisions_leave_about_as_many_jobs_queued() {
        let mut game = Game::begin(20, 200).expect("it begins");
        game.decide();
        assert_eq!(game.decisions(300).expect("jobs never run out").len(), 300);
        let waiting = game.scheduler.jobs().values().filter(|job| job.placed == 0).count();
        assert!((100..=300).contains(&waiting), "{waiting}");
    }
}
