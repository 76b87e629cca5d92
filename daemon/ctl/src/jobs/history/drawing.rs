//! Allocated GPUs over time, stacked.

use std::collections::BTreeMap;
use std::fmt::Write;

use tranche_domain::jobs::MilliGpus;

use super::step::Step;
use crate::jobs::palette::COLOURS;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 24.0;
const KEY: f64 = 140.0;

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
    let x = |time: u64| LEFT + (time - begin) as f64 / span * (WIDTH - LEFT - KEY);
    let y = |milli: u32| TOP + HEIGHT * (1.0 - f64::from(milli) / 1000.0 / f64::from(most));
    let mut page = head();
    axis(&mut page, most, y);
    let who: Vec<&String> = slabs
        .iter()
        .flat_map(|slab| slab.had.keys())
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    for slab in &slabs {
        let mut below = 0;
        for (name, gpus) in &slab.had {
            let colour = colour(who.iter().position(|known| *known == name).unwrap_or(0));
            let (left, top) = (x(slab.from), y(below + gpus.get()));
            let (width, height) = (x(slab.to) - left, y(below) - top);
            let _ = writeln!(
                page,
                "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\"><title>{name} {gpus}</title></rect>"
            );
            below += gpus.get();
        }
    }
    key(&mut page, &who);
    let _ = writeln!(
        page,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{:.0} s</text>\n</svg>",
        WIDTH - KEY,
        TOP + HEIGHT + 18.0,
        span / 1000.0
    );
    page
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn head() -> String {
    let height = TOP + HEIGHT + 28.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"15\">Allocated GPUs</text>\n"
    )
}

fn axis(page: &mut String, most: u32, y: impl Fn(u32) -> f64) {
    let every = most.div_ceil(8).max(1);
    for gpus in (0..=most).step_by(every as usize) {
        let at = y(gpus * 1000);
        let _ = writeln!(
            page,
            "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{at:.2}\" y2=\"{at:.2}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.2}\" text-anchor=\"end\">{gpus}</text>",
            WIDTH - KEY,
            LEFT - 6.0,
            at + 4.0
        );
    }
}

fn key(page: &mut String, who: &[&String]) {
    for (at, name) in who.iter().enumerate() {
        let (x, y) = (WIDTH - KEY + 12.0, TOP + at as f64 * 18.0);
        let _ = writeln!(
            page,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            colour(at),
            x + 18.0,
            y + 10.0
        );
    }
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
