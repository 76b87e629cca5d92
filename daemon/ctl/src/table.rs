//! Tables of all commands.

use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use tranche_domain::text::visible_within;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// At the left, for text.
    Left,
    /// At the right, for numbers.
    Right,
}

/// Columns and rows of a table.
pub type Section<'a> = (&'a [(&'static str, Side)], Vec<Vec<String>>);

/// A table of `rows` under `columns`, in plain ASCII and as wide as its content, for logs and pipes.
pub fn draw(columns: &[(&str, Side)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED);
    table.set_header(columns.iter().map(|(title, _)| title));
    for row in rows {
        table.add_row(row);
    }
    for (column, (_, side)) in table.column_iter_mut().zip(columns) {
        column.set_cell_alignment(match side {
            Side::Left => CellAlignment::Left,
            Side::Right => CellAlignment::Right,
        });
    }
    table.to_string()
}

/// The text, or `-`, since an empty cell would look like a mistake.
pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".into(), |text| text.to_string())
}

/// An untrusted command, escaped and cut for a cell.
pub fn printable(command: &str) -> String {
    const LONGEST: usize = 60;
    visible_within(command, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_command_is_cut_with_dots() {
        assert_eq!(printable(&"a".repeat(60)), "a".repeat(60));
        assert_eq!(printable(&"ä".repeat(61)), "ä".repeat(57) + "...");
    }
}
