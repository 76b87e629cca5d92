//! Columns: titles, alignment, and what becomes of them where there is no room.

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// At the left, for text.
    Left,
    /// At the right, for numbers.
    Right,
}

/// Treatment of a column in a narrow terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The column stays whole.
    Whole,
    /// It stays, and is cut to no less than this width.
    Cut(usize),
    /// It is left out, those with lower numbers first.
    Drop(u8),
    /// It is left out of every terminal, and there in pipes and wide lists.
    Wide,
    /// Its text is prose, which moves below the row.
    Prose,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub(super) title: &'static str,
    pub(super) side: Side,
    pub(super) fit: Fit,
}

impl Column {
    /// Title in small letters, without blanks: the word for it on the command line and in CSV.
    pub fn key(&self) -> String {
        self.title.to_lowercase().replace(' ', "-")
    }

    /// A column of text that stays whole.
    pub const fn left(title: &'static str) -> Self {
        Self { title, side: Side::Left, fit: Fit::Whole }
    }

    /// A column of numbers that stays whole.
    pub const fn right(title: &'static str) -> Self {
        Self { title, side: Side::Right, fit: Fit::Whole }
    }

    /// A column of prose, such as reasons. It is the last one of a table.
    pub const fn prose(title: &'static str) -> Self {
        Self { title, side: Side::Left, fit: Fit::Prose }
    }

    /// The column, left out of every terminal that is no wide list.
    pub const fn wide(self) -> Self {
        Self { fit: Fit::Wide, ..self }
    }

    /// The column, cut to no less than `least` where there is no room.
    pub const fn cut(self, least: usize) -> Self {
        Self { fit: Fit::Cut(least), ..self }
    }

    /// The column, left out where there is no room; those with lower numbers first.
    pub const fn drop(self, order: u8) -> Self {
        Self { fit: Fit::Drop(order), ..self }
    }
}
