//! Parts that the charts of history and report share.

use std::fmt::Write;

/// Palette for colour-blind readers by Okabe and Ito, https://jfly.uni-koeln.de/color/
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];
/// Width of a chart, and height of its plot.
const WIDTH: f64 = 960.0;
pub(super) const HEIGHT: f64 = 320.0;

/// A chart that is drawn, with the room that it has around its plot.
pub(super) struct Chart {
    pub(super) text: String,
    pub(super) left: f64,
    pub(super) top: f64,
    /// Width of the key, at the right.
    pub(super) key: f64,
}

impl Chart {
    /// Width of the plot.
    pub(super) fn width(&self) -> f64 {
        WIDTH - self.left - self.key
    }

    /// Begins the chart, with this room below its plot and a title at this height.
    pub(super) fn begin(&mut self, below: f64, title: &str, title_y: u32) {
        let (left, height) = (self.left, self.top + HEIGHT + below);
        let _ = writeln!(
            self.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{left}\" y=\"{title_y}\">{title}</text>"
        );
    }

    /// A line across the plot at this height, with its label at the left.
    pub(super) fn level(&mut self, at: f64, label: &str) {
        let (left, right) = (self.left, WIDTH - self.key);
        let _ = writeln!(
            self.text,
            "<line x1=\"{left}\" x2=\"{right:.0}\" y1=\"{at:.2}\" y2=\"{at:.2}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.2}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        );
    }

    /// A rectangle from its upper left corner, with its width and height and a title that viewers show.
    pub(super) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str, title: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\"><title>{title}</title></rect>"
        );
    }

    /// The entry of the key with this number.
    pub(super) fn entry(&mut self, number: usize, colour: &str, name: &str) {
        let (x, y) = (WIDTH - self.key + 12.0, self.top + number as f64 * 18.0);
        let _ = writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            x + 18.0,
            y + 10.0
        );
    }
}
