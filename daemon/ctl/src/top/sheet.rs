//! The content of a screen as plain data, and its transfer to a buffer of cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::text::fit;

/// Meaning of a text, from which its colour follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Text without emphasis, which most is.
    #[default]
    Plain,
    /// Text of less importance than its neighbours.
    Dim,
    /// Emphasis, as of headings and GPUs.
    Bold,
    /// Work that is done.
    Good,
    /// Waste, such as idleness, and GPUs that take no slices.
    Warn,
    /// Faults, failures and memory beyond a cap.
    Bad,
    /// Slices whose launches are held.
    Cold,
}

impl Tone {
    fn style(self, colour: bool) -> Style {
        let plain = Style::new();
        match (self, colour) {
            (Self::Plain, _) => plain,
            (Self::Bold, _) | (Self::Bad | Self::Warn, false) => plain.add_modifier(Modifier::BOLD),
            (Self::Dim, _) => plain.add_modifier(Modifier::DIM),
            (Self::Good, true) => plain.fg(Color::Green),
            (Self::Warn, true) => plain.fg(Color::Yellow),
            (Self::Bad, true) => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Self::Cold, true) => plain.fg(Color::Cyan),
            (Self::Good | Self::Cold, false) => plain,
        }
    }
}

/// A text at a column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    x: u16,
    text: String,
    tone: Tone,
}

/// One line of a screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strip {
    pieces: Vec<Piece>,
    /// True for the selected line.
    marked: bool,
}

impl Strip {
    /// A line with one text, escaped and cut to a width.
    pub(super) fn of(text: &str, width: u16, tone: Tone) -> Self {
        let mut strip = Self::default();
        strip.put(0, width, text, tone);
        strip
    }

    /// Marks the line as the selected one, in colour and in text, if it is.
    pub(super) fn mark(&mut self, selected: bool) {
        self.marked = selected;
        if selected {
            self.put(0, 1, ">", Tone::Plain);
        }
    }

    /// True for the selected line.
    pub(super) const fn is_marked(&self) -> bool {
        self.marked
    }

    /// Adds a text at a column, escaped and cut to a width.
    pub(super) fn put(&mut self, x: u16, width: u16, text: &str, tone: Tone) {
        self.pieces.push(Piece { x, text: fit(text, width.into()), tone });
    }
}

/// Draws lines into an area; whatever is beyond it is left out.
pub(super) fn draw(strips: &[Strip], buffer: &mut Buffer, area: Rect, colour: bool) {
    for (y, strip) in (area.top()..area.bottom()).zip(strips) {
        for piece in strip.pieces.iter().filter(|piece| piece.x < area.width) {
            let room = usize::from(area.width - piece.x);
            buffer.set_stringn(area.x + piece.x, y, &piece.text, room, piece.tone.style(colour));
        }
        if strip.marked {
            buffer.set_style(Rect { y, height: 1, ..area }, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// The text of a buffer, line by line, without blanks at their ends.
pub(super) fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y: u16| {
        let (mut text, mut covered) = (String::new(), 0);
        for x in area.left()..area.right() {
            // The second column of a wide character has no text of its own.
            if x < covered {
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            covered = x + u16::try_from(crate::table::width(symbol)).unwrap_or(1).max(1);
            text.push_str(symbol);
        }
        text.trim_end().to_owned() + "\n"
    };
    (area.top()..area.bottom()).map(line).collect()
}
