//! Loss and step rate of trainings over time, as an SVG.

use std::fmt::Write as _;

use crate::trainee::Seen;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 220.0;
const MARGIN: f64 = 60.0;
/// Seconds over which a rate is taken.
const SPAN: f64 = 1.0;
const COLOURS: [&str; 2] = ["#1f6fb2", "#c8581a"];

/// A curve: times and values.
type Curve = Vec<(f64, f64)>;

/// Draws the trainings, each with its name, and what happened at which second.
pub fn draw(trainings: &[(&str, Vec<Seen>)], events: &[(f64, &str)]) -> String {
    let end = trainings.iter().flat_map(|(_, seen)| seen).map(|seen| seen.at).fold(1.0, f64::max);
    let losses: Vec<Curve> =
        trainings.iter().map(|(_, seen)| seen.iter().map(|one| (one.at, one.loss)).collect()).collect();
    let rates: Vec<Curve> = trainings.iter().map(|(_, seen)| rates(seen)).collect();
    let (width, height) = (WIDTH + 2.0 * MARGIN, 2.0 * HEIGHT + 3.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    panel(&mut svg, MARGIN, "loss", &losses, end);
    panel(&mut svg, HEIGHT + 2.0 * MARGIN, "steps in a second", &rates, end);
    for (index, (name, _)) in trainings.iter().enumerate() {
        let (x, colour) = (MARGIN + 160.0 * index as f64, COLOURS[index % COLOURS.len()]);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"24\" fill=\"{colour}\">{name}</text>");
    }
    for (index, (at, what)) in events.iter().enumerate() {
        let x = MARGIN + at / end * WIDTH;
        let y = 40.0 + 14.0 * (index % 2) as f64;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{y}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>\n\
             <text x=\"{:.1}\" y=\"{y}\" fill=\"#555\" font-size=\"11\">{what}</text>",
            height - MARGIN,
            x + 3.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, top: f64, title: &str, curves: &[Curve], end: f64) {
    let most = curves.iter().flatten().map(|(_, value)| *value).fold(1e-9, f64::max);
    let bottom = top + HEIGHT;
    let _ = writeln!(
        svg,
        "<rect x=\"{MARGIN}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#bbb\"/>\n\
         <text x=\"{MARGIN}\" y=\"{}\">0</text><text x=\"8\" y=\"{}\">{most:.3}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{title}; {end:.0} s</text>",
        bottom + 16.0,
        top + 12.0,
        MARGIN + WIDTH,
        bottom + 16.0
    );
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let points: String = curve.iter().fold(String::new(), |mut points, (at, value)| {
            let _ = write!(points, "{:.1},{:.1} ", MARGIN + at / end * WIDTH, bottom - value / most * HEIGHT);
            points
        });
        let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>");
    }
}

/// Steps in a second, over the last one.
fn rates(seen: &[Seen]) -> Curve {
    seen.iter()
        .filter_map(|now| {
            let before = seen.iter().rev().find(|before| before.at <= now.at - SPAN)?;
            Some((now.at, (now.step - before.step) as f64 / (now.at - before.at)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{draw, rates};
    use crate::trainee::Seen;

    #[test]
    fn rates_and_losses_are_drawn() {
        let seen: Vec<Seen> = (0..8)
            .map(|half| Seen {
                at: f64::from(half) / 2.0,
                step: 5 * half as u64,
                loss: 1.0 / f64::from(half + 1),
                total: 1,
            })
            .collect();
        assert!(rates(&seen).iter().all(|(at, rate)| *at >= 1.0 && (rate - 10.0).abs() < 1e-9));
        let svg = draw(&[("seven tenths", seen)], &[(2.0, "resized")]);
        assert!(
            svg.contains("seven tenths") && svg.contains("resized") && svg.matches("<polyline").count() == 2
        );
    }
}
