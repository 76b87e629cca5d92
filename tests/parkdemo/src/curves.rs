//! Memory over time, as an SVG.

use std::fmt::Write as _;

use tranche_domain::units::Bytes;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const MARGIN: f64 = 70.0;

/// Memory at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Seconds since the begin.
    pub(crate) at: f64,
    /// Memory of the notebook on the GPU.
    pub(crate) notebook: Bytes,
    /// Memory of all others there, which is the training's.
    pub(crate) training: Bytes,
    /// Host memory that is set aside for parked slices.
    pub(crate) host: Bytes,
}

/// A curve: name, colour, and value of a sample.
type Curve = (&'static str, &'static str, fn(&Sample) -> Bytes);

const CURVES: [Curve; 3] = [
    ("notebook, GPU", "#1f6fb2", |sample| sample.notebook),
    ("training, GPU", "#c8581a", |sample| sample.training),
    ("parked, host", "#5a8f29", |sample| sample.host),
];

/// Draws the samples on a logarithmic axis, with the steps at their seconds.
pub(crate) fn draw(samples: &[Sample], steps: &[(f64, String)]) -> String {
    let end = samples.iter().map(|sample| sample.at).fold(1.0, f64::max);
    let most = samples.iter().flat_map(|sample| CURVES.map(|(.., of)| of(sample))).max().unwrap_or_default();
    let top = 1.0 + most.whole_mib() as f64;
    let x = |at: f64| MARGIN + at / end * WIDTH;
    let bottom = MARGIN + HEIGHT;
    let y = |bytes: Bytes| bottom - (1.0 + bytes.whole_mib() as f64).ln() / top.ln() * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        WIDTH + 2.0 * MARGIN,
        HEIGHT + 2.0 * MARGIN + 20.0
    );
    for mib in [0, 16, 256, 4096, 16384].into_iter().filter(|mib| *mib <= most.whole_mib()) {
        let line = y(Bytes::mib(mib));
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" y1=\"{line:.1}\" x2=\"{:.1}\" y2=\"{line:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mib} MiB</text>",
            MARGIN + WIDTH,
            MARGIN - 6.0,
            line + 4.0
        );
    }
    for (number, (at, what)) in steps.iter().enumerate() {
        let (at, line) = (x(*at), 16.0 + 13.0 * (number % 3) as f64);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{line}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>\n\
             <text x=\"{:.1}\" y=\"{line}\" fill=\"#555\" font-size=\"11\">{what}</text>",
            at + 3.0
        );
    }
    for (number, (name, colour, of)) in CURVES.into_iter().enumerate() {
        let points = samples.iter().fold(String::new(), |mut points, sample| {
            let _ = write!(points, "{:.1},{:.1} ", x(sample.at), y(of(sample)));
            points
        });
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            MARGIN + 140.0 * number as f64,
            bottom + 34.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{end:.0} s</text>\n</svg>",
        MARGIN + WIDTH,
        bottom + 16.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_curve_and_step_is_drawn() {
        let sample = |at, notebook, host| Sample {
            at,
            notebook: Bytes::mib(notebook),
            training: Bytes::ZERO,
            host: Bytes::mib(host),
        };
        let svg = draw(&[sample(0.0, 512, 0), sample(2.0, 0, 512)], &[(1.0, "sleeps".into())]);
        assert!(
            svg.matches("<polyline").count() == 3 && svg.contains(">sleeps<") && svg.ends_with("</svg>\n")
        );
        assert!(draw(&[], &[]).contains("0 MiB"));
    }
}
