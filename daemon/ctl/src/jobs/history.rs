//! `tranche history`: use of GPUs over time.

mod drawing;
mod step;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use tranche_domain::jobs::MilliGpus;
use tranche_rpc::v1::HistoryPoint;

use crate::cli::{By, HistoryArgs};
use crate::client::Daemon;
use crate::errors::Failure;
use crate::out;
use crate::table::Page;
use crate::terminal::Canvas;
use crate::when::{self, Clock};
use step::Step;

/// Prints the history in the requested form.
pub fn history(args: &HistoryArgs, clock: Clock, socket: &Path) -> Result<(), Failure> {
    let now = when::now_unix_ms();
    let since = args.since.map_or(0, |since| now.saturating_sub(when::millis(since)));
    let all = steps(Daemon::connect(socket)?.history(0)?, args.by);
    let steps = from(all, since);
    match () {
        () if args.json => out::json(&steps),
        () if args.svg => out::print(&drawing::svg(&steps, now)),
        () if args.csv => out::print(&csv(&steps)),
        () if steps.is_empty() => out::print("no project had a GPU in that time"),
        () => {
            let mut page = Page::on(Canvas::of_stdout());
            steps.iter().for_each(|step| page.line(&line(step, clock)));
            out::page(&page)
        }
    }
}

/// Sums of the jobs' points by group.
fn steps(points: Vec<HistoryPoint>, by: By) -> Vec<Step> {
    let mut jobs: BTreeMap<(String, String), MilliGpus> = BTreeMap::new();
    let step = |point: HistoryPoint| {
        jobs.insert((point.project.clone(), point.job.clone()), MilliGpus::new(point.milligpus));
        let (who, gpus) = match by {
            By::Job => (format!("{}/{}", point.project, point.job), MilliGpus::new(point.milligpus)),
            By::Project => {
                let of = jobs.iter().filter(|((project, _), _)| *project == point.project);
                let sum = of.map(|(_, gpus)| *gpus).sum();
                (point.project, sum)
            }
        };
        Step { time_unix_ms: point.time_unix_ms, who, gpus }
    };
    points.into_iter().map(step).collect()
}

/// Steps since a time; groups with use at that time get an initial step.
fn from(steps: Vec<Step>, since: u64) -> Vec<Step> {
    let (before, after): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.time_unix_ms < since);
    let last: BTreeMap<String, Step> = before.into_iter().map(|step| (step.who.clone(), step)).collect();
    let had = last.into_values().filter(|step| step.gpus > MilliGpus::ZERO);
    had.map(|step| Step { time_unix_ms: since, ..step }).chain(after).collect()
}

fn csv(steps: &[Step]) -> String {
    let mut text = String::from("time_unix_ms,who,gpus\n");
    for Step { time_unix_ms, who, gpus } in steps {
        let _ = writeln!(text, "{time_unix_ms},{who},{gpus}");
    }
    text
}

fn line(Step { time_unix_ms, who, gpus }: &Step, clock: Clock) -> String {
    let time = clock.seconds(when::at(*time_unix_ms));
    format!("{time} {who}: {gpus} GPUs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(time_unix_ms: u64, project: &str, job: &str, milligpus: u32) -> HistoryPoint {
        HistoryPoint { time_unix_ms, project: project.into(), job: job.into(), milligpus }
    }

    fn told(steps: &[Step]) -> Vec<(u64, &str, String)> {
        steps.iter().map(|step| (step.time_unix_ms, step.who.as_str(), step.gpus.to_string())).collect()
    }

    #[test]
    fn jobs_of_a_project_are_summed() {
        let points = || {
            vec![
                point(1, "a", "x", 1000),
                point(2, "a", "y", 500),
                point(3, "b", "x", 300),
                point(4, "a", "x", 0),
            ]
        };
        let by_project = steps(points(), By::Project);
        let expected = [(1, "a", "1"), (2, "a", "1.5"), (3, "b", "0.3"), (4, "a", "0.5")];
        assert_eq!(told(&by_project), expected.map(|(time, who, gpus)| (time, who, gpus.to_owned())));
        assert_eq!(told(&steps(points(), By::Job))[3], (4, "a/x", "0".to_owned()));
    }

    #[test]
    fn use_at_the_start_is_included() {
        let all =
            steps(vec![point(1, "a", "x", 1000), point(1, "b", "x", 0), point(9, "a", "x", 0)], By::Project);
        assert_eq!(told(&from(all, 5)), [(5, "a", "1".to_owned()), (9, "a", "0".to_owned())]);
    }
}
