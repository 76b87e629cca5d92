//! Drawing of measured shares over time, in slices and bare: two tenants, a third joins and leaves.
//!
//! A few lines and labels are a page of text; a library for them would bring fonts and dozens of crates along.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bench::Result;

use crate::lab::Lab;
use crate::load::{Load, MS, Tenant};

/// Requests of the tenants in percent, with colours that most readers can distinguish.
const TENANTS: [(f64, &str); 3] = [(50.0, "#0072b2"), (30.0, "#d55e00"), (20.0, "#009e73")];
/// Seconds after which the third tenant joins and leaves, and the drawing ends.
const JOINS: u64 = 4;
const LEAVES: u64 = 10;
const ENDS: u64 = 14;
/// Points in a second.
const GRAIN: u64 = 5;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 50.0;
const PANEL: f64 = 190.0;
const GAP: f64 = 56.0;

/// GPU time of each tenant in the time of each point, in percent.
type Lines = [Vec<f64>; 3];

pub(crate) fn draw(lab: &Lab, path: &Path) -> Result<()> {
    let panels =
        [("In slices", measure(lab, true)?), ("The bare driver, same programs", measure(lab, false)?)];
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let device = format!("{}{}", lab.device(), if lab.is_simulated() { ", simulated" } else { "" });
    fs::write(path, page(&device, &panels)).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("shares over time are drawn in {}", path.display());
    Ok(())
}

fn measure(lab: &Lab, scheduled: bool) -> Result<Lines> {
    let node = lab.node()?;
    let tenant = |percent| Tenant::new(percent, Load::saturating(MS));
    let mut game = lab.begin(&node, &[tenant(TENANTS[0].0), tenant(TENANTS[1].0)], scheduled)?;
    let third = game.join(&Tenant { load: Load::Idle, ..tenant(TENANTS[2].0) })?;
    let (begun, _) = game.watch(Duration::from_secs(JOINS))?;
    game.work(third, &Load::saturating(MS))?;
    game.watch(Duration::from_secs(LEAVES - JOINS))?;
    game.rest(third)?;
    game.watch(Duration::from_secs(ENDS - LEAVES))?;
    let length = 1_000_000_000 / GRAIN;
    let curves = game.curves();
    Ok([0, 1, 2].map(|tenant| {
        let percent = |point| curves[tenant].percent(begun + point * length, begun + (point + 1) * length);
        (0..ENDS * GRAIN).map(percent).collect()
    }))
}

fn page(device: &str, panels: &[(&str, Lines)]) -> String {
    let height = 40.0 + panels.len() as f64 * (PANEL + GAP);
    let mut page = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">GPU time of slices of 50, 30 and 20 %; the third works from second \
         {JOINS} to {LEAVES}. {device}</text>\n"
    );
    for (number, (title, lines)) in panels.iter().enumerate() {
        panel(&mut page, 56.0 + number as f64 * (PANEL + GAP), title, lines);
    }
    page.push_str("</svg>\n");
    page
}

fn across(second: f64) -> f64 {
    LEFT + second / ENDS as f64 * (WIDTH - LEFT - 20.0)
}

/// Appends a line to a `String`, which cannot fail.
macro_rules! put {
    ($page:expr, $($form:tt)*) => { let _ = writeln!($page, $($form)*); };
}

fn panel(page: &mut String, top: f64, title: &str, lines: &Lines) {
    let down = |percent: f64| top + PANEL * (1.0 - percent / 100.0);
    put!(page, "<text x=\"{LEFT}\" y=\"{}\">{title}</text>", top - 8.0);
    for (number, (percent, colour)) in TENANTS.iter().enumerate() {
        let (x, y) = (WIDTH - 300.0 + 100.0 * number as f64, top - 8.0);
        put!(page, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">slice of {percent} %</text>");
    }
    for percent in [0.0, 20.0, 30.0, 50.0, 100.0] {
        let (y, end) = (down(percent), across(ENDS as f64));
        put!(page, "<path d=\"M{LEFT} {y:.1}H{end}\" stroke=\"#ccc\"/>");
        put!(page, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>", LEFT - 6.0, y + 4.0);
    }
    for second in (0..=ENDS).step_by(2) {
        let (x, y) = (across(second as f64), top + PANEL + 16.0);
        put!(page, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{second} s</text>");
    }
    for ((_, colour), line) in TENANTS.iter().zip(lines) {
        let point = |(number, percent): (usize, &f64)| {
            format!("{:.1},{:.1}", across((number as f64 + 0.5) / GRAIN as f64), down(*percent))
        };
        let points: Vec<String> = line.iter().enumerate().map(point).collect();
        let points = points.join(" ");
        put!(page, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_line_for_each_tenant_and_its_points_lie_inside() {
        let lines = [50.0, 30.0, 100.0].map(|percent| vec![percent; (ENDS * GRAIN) as usize]);
        let page = page("a GPU, simulated", &[("one", lines.clone()), ("other", lines)]);
        assert_eq!(page.matches("<polyline").count(), 6);
        let numbers = page.split(['"', ' ', ',']).filter_map(|word| word.parse::<f64>().ok());
        assert!(numbers.into_iter().all(|number| (0.0..=WIDTH).contains(&number)), "{page}");
        assert!(page.contains("simulated") && page.ends_with("</svg>\n"));
    }
}
