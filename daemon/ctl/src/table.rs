//! Tables as every command draws them.

use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use tranche_domain::text::visible_within;

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table of `rows` under `columns`; plain ASCII, as wide as its content, so that it survives logs and pipes.
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

/// `-` for what is not known, as in an empty cell one can't tell whether something was forgotten.
pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".into(), |text| text.to_string())
}

/// A command that some program chose for itself, made fit for a cell.
pub fn printable(command: &str) -> String {
    const LONGEST: usize = 60;
    visible_within(command, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_and_says_so() {
        assert_eq!(printable(&"a".repeat(60)), "a".repeat(60));
        assert_eq!(printable(&"ä".repeat(61)), "ä".repeat(57) + "...");
    }
}
