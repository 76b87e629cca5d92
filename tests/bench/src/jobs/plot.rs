//! Drawing of decision costs by the number of queued jobs, beside n log n, both axes logarithmic.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bench::Result;

use crate::decide::Curve;

/// Colours that most readers can distinguish.
const COLOURS: [&str; 2] = ["#0072b2", "#d55e00"];
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 360.0;
const RIGHT: f64 = 700.0;

/// Appends a line to a `String`, which cannot fail.
macro_rules! put {
    ($page:expr, $($form:tt)*) => { let _ = writeln!($page, $($form)*); };
}

pub(crate) fn draw(path: &Path, curves: &[Curve]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::write(path, page(curves)).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("the cost of decisions is drawn in {}", path.display());
    Ok(())
}

/// Ranges of the axes: jobs in powers of two, cost in whole powers of ten.
struct Axes {
    jobs: (f64, f64),
    cost: (i32, i32),
}

impl Axes {
    fn around(points: &[(usize, f64)]) -> Self {
        let jobs = points.iter().map(|(jobs, _)| (*jobs as f64).log2());
        let cost = points.iter().map(|(_, cost)| cost.max(1e-6).log10());
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
        Self {
            jobs: (least(&mut jobs.clone()), most(&mut jobs.clone())),
            cost: (least(&mut cost.clone()).floor() as i32, most(&mut cost.clone()).ceil() as i32),
        }
    }

    fn across(&self, jobs: usize) -> f64 {
        let (from, to) = self.jobs;
        LEFT + ((jobs as f64).log2() - from) / (to - from).max(1e-9) * (RIGHT - LEFT)
    }

    fn down(&self, cost: f64) -> f64 {
        let (from, to) = (f64::from(self.cost.0), f64::from(self.cost.1));
        let part = (cost.max(1e-6).log10() - from) / (to - from).max(1e-9);
        BOTTOM - part.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }
}

fn page(curves: &[Curve]) -> String {
    let mut page = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">Time of a decision by the number of jobs queued on 16 GPUs, \
         simulated</text>\n"
    );
    let points: Vec<(usize, f64)> = curves.iter().flat_map(|curve| curve.points.clone()).collect();
    let axes = Axes::around(&points);
    grid(&mut page, &axes, curves);
    for (number, (curve, colour)) in curves.iter().zip(COLOURS).enumerate() {
        line(&mut page, &axes, &curve.points, &format!("stroke=\"{colour}\" stroke-width=\"2\""));
        let y = TOP + 14.0 + 16.0 * number as f64;
        put!(page, "<text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{}</text>", LEFT + 12.0, curve.name);
        line(
            &mut page,
            &axes,
            &n_log_n(&curve.points),
            &format!("stroke=\"{colour}\" stroke-dasharray=\"4 4\""),
        );
    }
    let y = TOP + 14.0 + 16.0 * curves.len() as f64;
    put!(page, "<text x=\"{}\" y=\"{y}\">dashed: n log n from the first point on</text>", LEFT + 12.0);
    page.push_str("</svg>\n");
    page
}

fn grid(page: &mut String, axes: &Axes, curves: &[Curve]) {
    for power in axes.cost.0..=axes.cost.1 {
        let (cost, label) = (10f64.powi(power), label(power));
        let y = axes.down(cost);
        put!(page, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ccc\"/>");
        put!(page, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label} ms</text>", LEFT - 6.0, y + 4.0);
    }
    for (jobs, _) in curves.first().into_iter().flat_map(|curve| &curve.points) {
        let (x, y) = (axes.across(*jobs), BOTTOM + 18.0);
        put!(page, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{jobs}</text>");
    }
}

fn label(power: i32) -> String {
    let decimals = usize::try_from(-power).unwrap_or(0);
    format!("{:.decimals$}", 10f64.powi(power))
}

fn n_log_n(points: &[(usize, f64)]) -> Vec<(usize, f64)> {
    let of = |jobs: usize| jobs as f64 * (jobs as f64).ln();
    let Some((first, cost)) = points.first() else { return Vec::new() };
    points.iter().map(|(jobs, _)| (*jobs, cost * of(*jobs) / of(*first))).collect()
}

fn line(page: &mut String, axes: &Axes, points: &[(usize, f64)], style: &str) {
    let at = |(jobs, cost): &(usize, f64)| format!("{:.1},{:.1}", axes.across(*jobs), axes.down(*cost));
    let points = points.iter().map(at).collect::<Vec<_>>().join(" ");
    put!(page, "<polyline points=\"{points}\" fill=\"none\" {style}/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_curve_has_its_own_line_and_n_log_n_beside_it_within_the_page() {
        let curve = |name, cost: f64| Curve { name, points: vec![(1000, cost), (2000, cost * 3.0)] };
        let page = page(&[curve("one", 0.02), curve("other", 0.5)]);
        assert_eq!(page.matches("<polyline").count(), 4);
        let points = page.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for point in points.flat_map(|points| points.split(' ')) {
            let (x, y) = point.split_once(',').expect("a pair");
            let (x, y): (f64, f64) = (x.parse().expect("a number"), y.parse().expect("a number"));
            assert!((LEFT..=RIGHT).contains(&x) && (TOP..=BOTTOM).contains(&y), "{point}");
        }
        for text in ["0.01 ms", "simulated", "1000", "n log n"] {
            assert!(page.contains(text), "{text}");
        }
    }
}
