//! `tranche report`: GPU-hours by project, user, job or GPU.

mod chart;
mod labels;
mod precision;
mod table;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tranche_domain::jobs::{Report, ReportQuery, ReportRow};

use crate::cli::ReportArgs;
use crate::client::Daemon;
use crate::errors::Failure;
use crate::out;
use crate::table::quoted;
use crate::terminal::Canvas;
use crate::users::user;
use crate::when::{self, Clock};
use labels::Labels;
use table::ReportTable;

/// Hours of a day.
const DAY: u32 = 24;
/// Longest time that a chart divides into hours.
const HOURLY: Duration = Duration::from_hours(48);

/// Prints the report in the requested form.
pub fn report(args: &ReportArgs, clock: Clock, socket: &Path) -> Result<(), Failure> {
    let now = when::now_unix_ms();
    let chart_step = if args.since > HOURLY { DAY } else { 1 };
    let step_hours = args.step.unwrap_or(if args.svg { chart_step } else { 0 });
    let query = ReportQuery {
        since_unix_ms: now.saturating_sub(when::millis(args.since)),
        until_unix_ms: now,
        by: args.by,
        step_hours,
    };
    let mut daemon = Daemon::connect(socket)?;
    let mut report = daemon.report(query)?;
    if args.json {
        return out::json(&Named::of(&report));
    }
    let labels = Labels::of(&mut daemon, &report)?;
    if args.svg {
        return out::print(&chart::svg(&report, step_hours.max(1), &labels, clock));
    }
    if args.csv {
        return out::print(&csv(&report, &labels));
    }
    report.rows.sort_by_key(|row| (row.from_unix_ms, std::cmp::Reverse(row.allocated_milligpu_ms)));
    let table = ReportTable { by: args.by, has_periods: step_hours > 0, labels: &labels, clock };
    out::page(&table.page(&report, Canvas::of_stdout()))
}

/// Values in seconds, exact to the millisecond and thousandth of a GPU, with times in UTC.
fn csv(report: &Report, labels: &Labels) -> String {
    let mut text = String::from(
        "from,group,allocated_gpu_s,used_gpu_s,idle_gpu_s,borrowed_gpu_s,starts,preemptions,waits,wait_median_s,wait_p95_s\n",
    );
    let seconds = |ms: Option<u64>| ms.map_or(String::new(), |ms| format!("{:.3}", ms as f64 / 1e3));
    let gpu_seconds =
        |milligpu_ms: u64| format!("{}.{:06}", milligpu_ms / 1_000_000, milligpu_ms % 1_000_000);
    for row in &report.rows {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{}",
            Clock::Utc.seconds(when::at(row.from_unix_ms)),
            quoted(&labels.group(row)),
            gpu_seconds(row.allocated_milligpu_ms),
            gpu_seconds(row.used_us),
            gpu_seconds(row.idle_milligpu_ms),
            gpu_seconds(row.borrowed_milligpu_ms),
            row.starts,
            row.preemptions,
            row.waits,
            seconds(row.wait_median_ms),
            seconds(row.wait_p95_ms),
        );
    }
    text
}

/// A report with names of users, for JSON.
#[derive(Debug, Serialize)]
struct Named<'a> {
    from_unix_ms: u64,
    until_unix_ms: u64,
    rows: Vec<NamedRow<'a>>,
}

#[derive(Debug, Serialize)]
struct NamedRow<'a> {
    #[serde(flatten)]
    row: &'a ReportRow,
    user: Option<String>,
}

impl<'a> Named<'a> {
    fn of(report: &'a Report) -> Self {
        let row = |row: &'a ReportRow| NamedRow { row, user: row.uid.map(user) };
        let rows = report.rows.iter().map(row).collect();
        Self { from_unix_ms: report.from_unix_ms, until_unix_ms: report.until_unix_ms, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::id::GpuUuid;

    fn sample() -> Report {
        let row = |project: &str, hours: u64| ReportRow {
            project: Some(project.parse().unwrap()),
            allocated_milligpu_ms: hours * 3_600_000_000,
            used_us: hours * 1_800_000_000,
            idle_milligpu_ms: 900_000_000,
            starts: 2,
            waits: 1,
            wait_median_ms: Some(61_000),
            wait_p95_ms: Some(3_700_500),
            ..ReportRow::default()
        };
        Report { from_unix_ms: 0, until_unix_ms: 7_200_000, rows: vec![row("vision", 3), row("nlp", 1)] }
    }

    #[test]
    fn csv_is_exact() {
        let mut report = sample();
        report.rows[0].allocated_milligpu_ms = 1_500_001;
        let text = csv(&report, &Labels::default());
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "1970-01-01T00:00:00Z,vision,1.500001,5400.000000,900.000000,0.000000,2,0,1,61.000,3700.500"
        );
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn groups_have_labels() {
        let labels = Labels {
            users: [(7, "ann".to_owned())].into(),
            gpus: [(GpuUuid::from_bytes([1; 16]), 3)].into(),
        };
        let project = Some("a".parse().unwrap());
        let cases = [
            (ReportRow { uid: Some(7), ..ReportRow::default() }, "ann"),
            (ReportRow { uid: Some(8), ..ReportRow::default() }, "8"),
            (ReportRow { gpu: Some(GpuUuid::from_bytes([1; 16])), ..ReportRow::default() }, "GPU 3"),
            (ReportRow { project, name: Some("j".into()), uid: Some(7), ..ReportRow::default() }, "a/j"),
            (ReportRow { name: Some("pod:n/p".into()), uid: Some(0), ..ReportRow::default() }, "pod:n/p"),
            (ReportRow { name: Some(String::new()), uid: Some(0), ..ReportRow::default() }, "(others)"),
            (ReportRow::default(), "(no project)"),
        ];
        for (row, expected) in cases {
            assert_eq!(labels.group(&row), expected);
        }
    }
}
