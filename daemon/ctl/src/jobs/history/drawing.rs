//! Allocated GPUs over time, stacked.

use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::jobs::MilliGpus;

use super::step::Step;
use crate::jobs::svg::{COLOURS, Chart, HEIGHT};

/// Use of all groups between two moments.
struct Slab {
    from: u64,
    to: u64,
    had: BTreeMap<String, MilliGpus>,
}

/// SVG chart of the steps up to now.
pub(super) fn svg(steps: &[Step], now_unix_ms: u64) -> String {
    let slabs = slabs(steps, now_unix_ms);
    let begin = slabs.first().map_or(now_unix_ms, |slab| slab.from);
    let span = now_unix_ms.saturating_sub(begin).max(1) as f64;
    let most =
        slabs.iter().map(|slab| slab.had.values().copied().sum::<MilliGpus>()).max().unwrap_or_default();
    let most = most.get().div_ceil(1000).max(1);
    let mut chart = Chart { text: String::new(), left: 48.0, top: 24.0, key: 140.0 };
    let (left, top, width) = (chart.left, chart.top, chart.width());
    let x = |time: u64| left + (time - begin) as f64 / span * width;
    let y = |milli: u32| top + HEIGHT * (1.0 - f64::from(milli) / 1000.0 / f64::from(most));
    chart.begin(28.0, "Allocated GPUs", 15);
    for gpus in (0..=most).step_by(most.div_ceil(8).max(1) as usize) {
        chart.level(y(gpus * 1000), &gpus.to_string());
    }
    let who: BTreeSet<&String> = slabs.iter().flat_map(|slab| slab.had.keys()).collect();
    for slab in &slabs {
        let mut below = 0;
        for (name, gpus) in &slab.had {
            let (left, top) = (x(slab.from), y(below + gpus.get()));
            let size = (x(slab.to) - left, y(below) - top);
            let at = who.iter().position(|known| *known == name).unwrap_or(0);
            chart.bar((left, top), size, colour(at), &format!("{name} {gpus}"));
            below += gpus.get();
        }
    }
    who.iter().enumerate().for_each(|(at, name)| chart.entry(at, colour(at), name));
    let (right, bottom, seconds) = (left + width, top + HEIGHT + 18.0, span / 1000.0);
    let end = format!("<text x=\"{right:.0}\" y=\"{bottom:.0}\" text-anchor=\"end\">{seconds:.0} s</text>");
    chart.text + &end + "\n</svg>\n"
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn slabs(steps: &[Step], now: u64) -> Vec<Slab> {
    let mut had = BTreeMap::new();
    let mut slabs: Vec<Slab> = Vec::new();
    for step in steps {
        had.insert(step.who.clone(), step.gpus);
        match slabs.last_mut() {
            Some(last) if last.from == step.time_unix_ms => last.had.clone_from(&had),
            last => {
                last.into_iter().for_each(|last| last.to = step.time_unix_ms);
                slabs.push(Slab {
                    from: step.time_unix_ms,
                    to: now.max(step.time_unix_ms),
                    had: had.clone(),
                });
            }
        }
    }
    slabs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(time_unix_ms: u64, who: &str, milli: u32) -> Step {
        Step { time_unix_ms, who: who.into(), gpus: MilliGpus::new(milli) }
    }

    #[test]
    fn uses_are_stacked_until_they_change() {
        let steps = [step(0, "a", 2000), step(0, "b", 1000), step(500, "a", 0)];
        let slabs = slabs(&steps, 1000);
        assert_eq!(
            slabs.iter().map(|slab| (slab.from, slab.to)).collect::<Vec<_>>(),
            [(0, 500), (500, 1000)]
        );
        let page = svg(&steps, 1000);
        assert!(
            page.contains("<title>a 2</title>")
                && page.contains("<title>b 1</title>")
                && page.ends_with("</svg>\n")
        );
        // b is stacked on a while a is in use.
        let tops: Vec<&str> = page.lines().filter(|line| line.contains("<title>b 1<")).collect();
        assert_eq!(tops.len(), 2);
        assert_ne!(tops[0].split("y=\"").nth(1), tops[1].split("y=\"").nth(1));
    }

    #[test]
    fn empty_history_draws_nothing() {
        assert!(svg(&[], 7).ends_with("</svg>\n"));
    }
}
