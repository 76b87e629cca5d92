//! A report as a table, with the sum of all rows below.

use std::time::Duration;

use tranche_domain::jobs::{Report, ReportKey, ReportRow};

use super::labels::Labels;
use super::precision::{GpuMicros, Precision, percent};
use crate::table::{Cell, Column, Page, or_dash};
use crate::terminal::Canvas;
use crate::when::{self, Clock};

const COLUMNS: [Column; 8] = [
    Column::right("Used"),
    Column::right("Idle"),
    Column::right("Borrowed").drop(5),
    Column::right("Use"),
    Column::right("Starts").drop(1),
    Column::right("Preempted").drop(2),
    Column::right("Wait p50").drop(3),
    Column::right("Wait p95").drop(4),
];

/// Form of the table: the groups of its rows, their labels, and the clock of its times.
#[derive(Debug)]
pub(super) struct ReportTable<'a> {
    pub(super) by: ReportKey,
    /// True if the time of the report is divided.
    pub(super) has_periods: bool,
    pub(super) labels: &'a Labels,
    pub(super) clock: Clock,
}

impl ReportTable<'_> {
    /// The report's time and its table; without rows a sentence.
    pub(super) fn page(&self, report: &Report, canvas: Canvas) -> Page {
        let mut page = Page::on(canvas);
        let head = format!("{} to {}", self.time(report.from_unix_ms), self.time(report.until_unix_ms));
        if report.rows.is_empty() {
            page.line(&format!("{head}: no GPU was held"));
            return page;
        }
        page.line(&head);
        let precision = Precision::of(report.rows.iter().flat_map(amounts));
        let row = |row: &ReportRow| {
            let shown = amounts(row).map(|amount| precision.rounded(amount));
            self.cells(self.time(row.from_unix_ms), self.labels.group(row), figures(row, precision, shown))
        };
        let mut rows: Vec<_> = report.rows.iter().map(row).collect();
        let group = if self.has_periods { "" } else { "total" };
        let total = figures(&total(report), precision, sums(report, precision));
        rows.push(self.cells("total".into(), group.into(), total));
        page.table(&self.columns(precision), &rows);
        page
    }

    fn time(&self, unix_ms: u64) -> String {
        self.clock.minutes(when::at(unix_ms))
    }

    fn columns(&self, precision: Precision) -> Vec<Column> {
        let group = Column::left(match self.by {
            ReportKey::Project => "Project",
            ReportKey::User => "User",
            ReportKey::Job => "Job",
            ReportKey::Gpu => "GPU",
        });
        let period = self.has_periods.then(|| Column::left("From"));
        let allocated = Column::right(precision.title());
        period.into_iter().chain([group.cut(12), allocated]).chain(COLUMNS).collect()
    }

    fn cells(&self, from: String, group: String, figures: [String; 9]) -> Vec<Cell> {
        let period = self.has_periods.then_some(from);
        period.into_iter().chain([group]).chain(figures).map(Cell::from).collect()
    }
}

/// Amounts of GPU time: allocated, used, idle and borrowed.
const fn amounts(row: &ReportRow) -> [GpuMicros; 4] {
    [row.allocated_milligpu_ms, row.used_us, row.idle_milligpu_ms, row.borrowed_milligpu_ms]
}

/// Sums of the amounts as the rows show them.
fn sums(report: &Report, precision: Precision) -> [u64; 4] {
    let mut sums = [0_u64; 4];
    for row in &report.rows {
        let shown = amounts(row).map(|amount| precision.rounded(amount));
        sums.iter_mut().zip(shown).for_each(|(sum, amount)| *sum = sum.saturating_add(amount));
    }
    sums
}

/// Sum of all rows, without waits, whose middle is not that of their middles.
fn total(report: &Report) -> ReportRow {
    let sum = |of: fn(&ReportRow) -> u64| report.rows.iter().map(of).fold(0, u64::saturating_add);
    ReportRow {
        allocated_milligpu_ms: sum(|row| row.allocated_milligpu_ms),
        idle_milligpu_ms: sum(|row| row.idle_milligpu_ms),
        borrowed_milligpu_ms: sum(|row| row.borrowed_milligpu_ms),
        used_us: sum(|row| row.used_us),
        starts: sum(|row| row.starts),
        preemptions: sum(|row| row.preemptions),
        ..ReportRow::default()
    }
}

/// Cells of a row whose amounts are shown as these.
fn figures(row: &ReportRow, precision: Precision, shown: [u64; 4]) -> [String; 9] {
    let [allocated, used, idle, borrowed] = shown.map(|amount| precision.text(amount));
    let wait = |ms: Option<u64>| or_dash(ms.map(|ms| span(Duration::from_millis(ms))));
    [
        allocated,
        used,
        idle,
        borrowed,
        or_dash(percent(row.used_us, row.allocated_milligpu_ms)),
        row.starts.to_string(),
        row.preemptions.to_string(),
        wait(row.wait_median_ms),
        wait(row.wait_p95_ms),
    ]
}

/// A wait in its two largest units, rounded up to a second; below one in milliseconds.
fn span(wait: Duration) -> String {
    if wait < Duration::from_secs(1) {
        return format!("{}ms", wait.as_millis());
    }
    when::short(Duration::from_secs(u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// The first hour of 2026 in milliseconds since the Unix epoch.
    const NEW_YEAR: u64 = 1_767_225_600_000;
    const HOUR_MS: u64 = 3_600_000;

    fn row(hour: u64, project: &str, job: Option<&str>, gpus: u64) -> ReportRow {
        ReportRow {
            from_unix_ms: NEW_YEAR + hour * HOUR_MS,
            project: project.parse().ok(),
            name: job.map(Into::into),
            allocated_milligpu_ms: gpus * 1000 * HOUR_MS,
            used_us: gpus * HOUR_MS * 500,
            idle_milligpu_ms: HOUR_MS * 250,
            borrowed_milligpu_ms: HOUR_MS * 1500,
            starts: 2,
            preemptions: 1,
            waits: 1,
            wait_median_ms: Some(61_000),
            wait_p95_ms: Some(3_700_500),
            ..ReportRow::default()
        }
    }

    fn report(rows: Vec<ReportRow>) -> Report {
        Report { from_unix_ms: NEW_YEAR, until_unix_ms: NEW_YEAR + 48 * HOUR_MS, rows }
    }

    fn table(labels: &Labels, has_periods: bool) -> ReportTable<'_> {
        let by = if has_periods { ReportKey::Job } else { ReportKey::Project };
        ReportTable { by, has_periods, labels, clock: Clock::Utc }
    }

    #[test]
    fn reports_fit_the_terminal() {
        let labels = Labels::default();
        let whole = report(vec![row(0, "vision", None, 300), row(0, "speech-recognition", None, 100)]);
        let name = Some("train-resnet50-0199");
        let divided = report(vec![row(0, "vision", name, 24), row(24, "vision", Some("bert"), 9)]);
        for (width, golden) in [
            (80, include_str!("../golden/report-80.txt")),
            (120, include_str!("../golden/report-120.txt")),
            (200, include_str!("../golden/report-200.txt")),
        ] {
            let pages = [
                table(&labels, false).page(&whole, Canvas::of_width(width)),
                table(&labels, true).page(&divided, Canvas::of_width(width)),
            ];
            let text: String = pages.iter().map(Page::text).collect();
            sample::assert_golden(&text, golden, &format!("jobs/golden/report-{width}.txt"));
            assert!(text.lines().all(|line| line.len() <= width));
        }
    }

    #[test]
    fn pipe_has_all_columns_and_their_sum() {
        let whole = report(vec![row(0, "vision", None, 3), row(0, "nlp", None, 1)]);
        let page = table(&Labels::default(), false).page(&whole, Canvas::PLAIN);
        for part in ["vision", "3.00", "1.50", "0.25", "50 %", "1m 1s", "1h 1m", "total", "4.00", "2.00"] {
            assert!(page.text().contains(part), "{part} is missing from\n{}", page.text());
        }
    }

    #[test]
    fn small_amounts_are_shown_and_the_total_is_their_sum() {
        let small = |project: &str, seconds: u64| ReportRow {
            project: project.parse().ok(),
            allocated_milligpu_ms: seconds * 1_000_000,
            used_us: 1_000,
            ..ReportRow::default()
        };
        let few = report(vec![small("a", 4), small("b", 4), small("c", 4)]);
        let text = table(&Labels::default(), false).page(&few, Canvas::PLAIN).text().to_owned();
        for part in ["GPU-seconds", "4.000", "0.001", "12.000", "0.003", "0.03 %"] {
            assert!(text.contains(part), "{part} is missing from\n{text}");
        }
        // The smallest amount has the decimals of all, and each amount is rounded for itself.
        let rows = (0..3).map(|_| small("a", 18)).chain([small("b", 36_000)]).collect();
        let text = table(&Labels::default(), false).page(&report(rows), Canvas::PLAIN).text().to_owned();
        let cell = |line: &str, at: usize| {
            let text = line.split('|').nth(at).unwrap().trim();
            (text.parse::<f64>().unwrap() * 1e4).round() as u64
        };
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" %")).collect();
        for column in 2..6 {
            let rows: u64 = lines[..4].iter().map(|line| cell(line, column)).sum();
            assert_eq!(cell(lines[4], column), rows, "column {column} of\n{text}");
        }
    }

    #[test]
    fn waits_below_a_second_are_in_milliseconds() {
        let texts = [0, 1, 999, 1_000, 1_001, 61_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(texts, ["0ms", "1ms", "999ms", "1s", "2s", "1m 1s"]);
    }

    #[test]
    fn time_without_use_is_a_sentence() {
        let page = table(&Labels::default(), false).page(&report(Vec::new()), Canvas::PLAIN);
        assert_eq!(page.text(), "2026-01-01T00:00Z to 2026-01-03T00:00Z: no GPU was held\n");
    }
}
