//! Cells: visible text, of a colour where colours may be.

use tranche_domain::text::visible;

use super::text::width;

/// Colour of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tint {
    /// The terminal's own colour.
    #[default]
    Plain,
    /// Red, for what failed.
    Red,
    /// Green, for what runs.
    Green,
    /// Yellow, for what is idle.
    Yellow,
}

impl Tint {
    /// The text in this colour.
    pub(super) fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Content of a cell, one or more visible lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    lines: Vec<String>,
    tint: Tint,
    /// Number by which rows are sorted, for a text that sorts otherwise.
    rank: Option<u64>,
}

impl Cell {
    /// A cell of several lines.
    pub fn lines(lines: impl IntoIterator<Item = String>) -> Self {
        Self { lines: lines.into_iter().map(|line| visible(&line)).collect(), ..Self::default() }
    }

    /// The cell in a colour.
    #[must_use]
    pub fn tinted(self, tint: Tint) -> Self {
        Self { tint, ..self }
    }

    /// The cell, sorted by a number instead of its text.
    #[must_use]
    pub fn ranked(self, rank: impl Into<u64>) -> Self {
        Self { rank: Some(rank.into()), ..self }
    }

    /// Number by which it is sorted, if any.
    pub const fn rank(&self) -> Option<u64> {
        self.rank
    }

    /// Its text, with lines one after the other.
    pub fn text(&self) -> String {
        self.lines.join(" ")
    }

    pub(super) fn width(&self) -> usize {
        self.lines.iter().map(|line| width(line)).max().unwrap_or(0)
    }

    pub(super) fn height(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn line(&self, at: usize) -> &str {
        self.lines.get(at).map_or("", String::as_str)
    }

    pub(super) const fn tint(&self) -> Tint {
        self.tint
    }
}

impl<T: Into<String>> From<T> for Cell {
    /// A cell of one line, in which the text is escaped.
    fn from(text: T) -> Self {
        Self { lines: vec![visible(&text.into())], ..Self::default() }
    }
}
