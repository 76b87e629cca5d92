//! Chart of a report: a stacked bar of GPU-hours for each period.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tranche_domain::jobs::Report;

use super::labels::Labels;
use super::precision::{GpuMicros, Precision};
use crate::jobs::svg::{COLOURS, Chart, HEIGHT};
use crate::when::{self, Clock};

/// Number of groups with a colour of their own; the others are one.
const NAMED: usize = COLOURS.len() - 1;

/// SVG of the report in periods of this many hours.
pub(super) fn svg(report: &Report, step_hours: u32, labels: &Labels, clock: Clock) -> String {
    let step = u64::from(step_hours) * 3_600_000;
    let periods = periods(report, step);
    let groups = largest(report, labels);
    let mut bars: BTreeMap<u64, BTreeMap<usize, GpuMicros>> = BTreeMap::new();
    for row in &report.rows {
        let group = labels.group(row);
        let at = groups.iter().position(|known| *known == group).unwrap_or(NAMED);
        let bar = bars.entry(row.from_unix_ms).or_default();
        *bar.entry(at).or_default() += row.allocated_milligpu_ms;
    }
    let precision = Precision::of(bars.values().flat_map(BTreeMap::values).copied());
    let most = bars.values().map(|bar| bar.values().sum::<GpuMicros>()).max().unwrap_or_default().max(1);
    let mut chart = Chart { text: String::new(), left: 56.0, top: 28.0, key: 170.0 };
    let (left, top, width) = (chart.left, chart.top, chart.width() / periods as f64);
    let x = |from: u64| left + (from.saturating_sub(report.from_unix_ms) / step) as f64 * width;
    let y = |amount: GpuMicros| top + HEIGHT * (1.0 - amount as f64 / most as f64);
    let amount = |amount: GpuMicros| precision.text(precision.rounded(amount));
    let period = if step_hours == 1 { "hour" } else { "day" };
    let zone = if clock == Clock::Utc { " (UTC)" } else { "" };
    chart.begin(34.0, &format!("{} held in each {period}{zone}", precision.title()), 16);
    (0..=4).map(|part| most / 4 * part).for_each(|level| chart.level(y(level), &amount(level)));
    dates(&mut chart, report, step, clock, x);
    for (from, bar) in &bars {
        let mut below = 0;
        for (at, part) in bar {
            let name = escaped(groups.get(*at).map_or("others", String::as_str));
            let title = format!("{} {name}: {}", clock.minutes(when::at(*from)), amount(*part));
            let size = (width * 0.9, y(below) - y(below + part));
            chart.bar((x(*from) + width * 0.05, y(below + part)), size, COLOURS[*at], &title);
            below += part;
        }
    }
    let others = bars.values().any(|bar| bar.contains_key(&NAMED)).then_some("others");
    for (at, name) in groups.iter().map(String::as_str).chain(others).enumerate() {
        chart.entry(at, COLOURS[if at < groups.len() { at } else { NAMED }], &escaped(name));
    }
    chart.text + "</svg>\n"
}

/// Number of periods of `step` milliseconds, at least one.
fn periods(report: &Report, step: u64) -> u64 {
    report.until_unix_ms.saturating_sub(report.from_unix_ms).div_ceil(step).max(1)
}

/// The groups with the most GPU-hours, by name; their places determine their colours.
fn largest(report: &Report, labels: &Labels) -> Vec<String> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for row in &report.rows {
        *sums.entry(labels.group(row)).or_default() += row.allocated_milligpu_ms;
    }
    let mut by_sum: Vec<_> = sums.into_iter().collect();
    by_sum.sort_by_key(|(name, sum)| (std::cmp::Reverse(*sum), name.clone()));
    by_sum.into_iter().take(NAMED).map(|(name, _)| name).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Dates below at most eight of the bars.
fn dates(chart: &mut Chart, report: &Report, step: u64, clock: Clock, x: impl Fn(u64) -> f64) {
    let periods = periods(report, step);
    let every = periods.div_ceil(8).max(1);
    for period in (0..periods).step_by(usize::try_from(every).unwrap_or(1)) {
        let from = report.from_unix_ms + period * step;
        let text = clock.minutes(when::at(from)).replace('T', " ");
        let text = if step > 3_600_000 { text.get(..10) } else { text.get(5..16) }.unwrap_or_default();
        let _ = writeln!(
            chart.text,
            "<text x=\"{:.1}\" y=\"{:.0}\">{text}</text>",
            x(from),
            chart.top + HEIGHT + 18.0
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::jobs::ReportRow;

    #[test]
    fn bars_are_stacked_and_dated() {
        let row = |day: u64, project: &str, hours: u64| ReportRow {
            from_unix_ms: day * 86_400_000,
            project: Some(project.parse().unwrap()),
            allocated_milligpu_ms: hours * 3_600_000_000,
            ..ReportRow::default()
        };
        let rows = vec![row(0, "a", 10), row(0, "b", 20), row(1, "a", 30)];
        let report = Report { from_unix_ms: 0, until_unix_ms: 2 * 86_400_000, rows };
        let page = svg(&report, 24, &Labels::default(), Clock::Utc);
        for part in
            ["1970-01-01T00:00Z a: 10.00", "b: 20.00", "1970-01-02", ">30.00<", ">0.00<", "each day (UTC)"]
        {
            assert!(page.contains(part), "{part} is missing from\n{page}");
        }
        assert_eq!(page.matches("<title>").count(), 3);
    }

    #[test]
    fn many_groups_share_the_last_colour() {
        let row = |number: u32| ReportRow {
            uid: Some(number),
            allocated_milligpu_ms: u64::from(number) * 3_600_000_000,
            ..ReportRow::default()
        };
        let report = Report { from_unix_ms: 0, until_unix_ms: 1, rows: (1..=30).map(row).collect() };
        let page = svg(&report, 1, &Labels::default(), Clock::Utc);
        assert!(page.contains(">others<") && page.contains(">30<") && !page.contains(">20<"), "{page}");
        assert_eq!(escaped("<a&\"b\">"), "&lt;a&amp;&quot;b&quot;&gt;");
    }
}
