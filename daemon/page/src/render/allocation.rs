//! Drawing of allocated GPUs over time.
//!
//! Its size is bounded, its colours are those of the style sheet, and its labels are text of the page that stays
//! readable at any width. `tranche history --svg` draws another kind: a file by itself, exact to each change.

use super::rows::{self, NodePlace, gpus, swatch};
use crate::colour::Colours;
use crate::element::{Element, element};
use crate::limits::COLUMNS;
use crate::overview::{Allocation, Band, Overview};
use crate::time::moment;

/// Height of the drawing in its own units.
const HEIGHT: u64 = 200;
/// Number of times below the drawing.
const TICKS: u64 = 4;

/// Allocation over time, stacked by project.
pub(super) fn allocation(overview: &Overview, colours: &Colours, place: &NodePlace<'_>) -> (String, Element) {
    let section = place.section("Allocation over time");
    let capacity = overview.figures.gpus.saturating_mul(1000);
    let section = match &overview.allocation {
        Some(allocation) => section.all(drawing(allocation, capacity, colours)),
        None => section.add(
            element("p")
                .class("none")
                .text("There is no history: it begins with the first use of a node with projects."),
        ),
    };
    (place.id("allocation"), section)
}

fn drawing(allocation: &Allocation, capacity: u32, colours: &Colours) -> [Element; 3] {
    let sums: Vec<u64> = (0..COLUMNS).map(|at| sum(&allocation.bands, at)).collect();
    let most = sums.iter().copied().max().unwrap_or_default().max(capacity.into()).max(1000);
    let y = |milligpus: u64| HEIGHT - milligpus.min(most) * HEIGHT / most;
    let mut below = vec![0u64; COLUMNS];
    let mut svg = rows::drawing("chart", COLUMNS, HEIGHT)
        .with("role", "img")
        .with("aria-label", "Allocated GPUs by project over time");
    for band in &allocation.bands {
        let above: Vec<u64> =
            below.iter().enumerate().map(|(at, below)| below.saturating_add(value(band, at))).collect();
        let path = outline(&above, &below, y);
        svg = svg.add(element("path").class(colours.class(Some(&band.project))).with("d", path));
        below = above;
    }
    let line = y(capacity.into());
    let line = element("line").class("capacity").with("x2", COLUMNS).with("y1", line).with("y2", line);
    let scale = element("div")
        .class("scale")
        .add(element("span").text(format!("{} GPUs", gpus(u32::try_from(most).unwrap_or(u32::MAX)))))
        .add(element("span").text("0"));
    let plot = element("div").class("plot").add(scale).add(svg.add(line));
    [plot, ticks(allocation), key(allocation, capacity, colours)]
}

fn value(band: &Band, at: usize) -> u64 {
    band.milligpus.get(at).copied().unwrap_or_default().into()
}

fn sum(bands: &[Band], at: usize) -> u64 {
    bands.iter().map(|band| value(band, at)).fold(0, u64::saturating_add)
}

/// Path around a band, in steps, with a point only where the height changes.
fn outline(above: &[u64], below: &[u64], y: impl Fn(u64) -> u64) -> String {
    let mut path = format!("M0 {}", y(above.first().copied().unwrap_or_default()));
    for (at, pair) in above.windows(2).enumerate() {
        if y(pair[0]) != y(pair[1]) {
            path += &format!("H{}V{}", at + 1, y(pair[1]));
        }
    }
    path += &format!("H{}V{}", above.len(), y(below.last().copied().unwrap_or_default()));
    for (at, pair) in below.windows(2).enumerate().rev() {
        if y(pair[0]) != y(pair[1]) {
            path += &format!("H{}V{}", at + 1, y(pair[0]));
        }
    }
    path + "H0Z"
}

fn ticks(allocation: &Allocation) -> Element {
    let Allocation { begin_unix_ms: begin, end_unix_ms: end, .. } = *allocation;
    let step = end.saturating_sub(begin) / TICKS;
    let time = |tick: u64| moment(begin.saturating_add(step.saturating_mul(tick)));
    element("div").class("ticks").all((0..=TICKS).map(time))
}

fn key(allocation: &Allocation, capacity: u32, colours: &Colours) -> Element {
    let entry = |band: &Band| element("span").add(swatch(colours, Some(&band.project))).text(&band.project);
    let column = allocation.end_unix_ms.saturating_sub(allocation.begin_unix_ms) / COLUMNS as u64;
    let note = format!(
        "dashed: all {} GPUs; a column is the mean of {}",
        gpus(capacity),
        match column / 1000 {
            seconds @ 0..120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds / 60),
        }
    );
    let note = element("span").class("note").text(note);
    element("p").class("key").all(allocation.bands.iter().map(entry)).add(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outline_has_a_point_for_each_change() {
        let path = outline(&[2, 2, 4, 4], &[0, 1, 1, 1], |value| 10 - value);
        assert_eq!(path, "M0 8H2V6H4V9H1V10H0Z");
        assert_eq!(outline(&[], &[], |value| value), "M0 0H0V0H0Z");
    }
}
