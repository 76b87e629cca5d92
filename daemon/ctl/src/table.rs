//! Tables of all commands, in plain ASCII and no wider than the terminal.

mod cell;
mod column;
mod layout;
mod text;

use tranche_domain::text::{visible, visible_within};

use crate::terminal::Canvas;
pub use cell::{Cell, Tint};
pub use column::Column;
use column::{Fit, Side};
use text::cut;
pub(crate) use text::{quoted, split, width, wrap};

/// Columns and rows of a table.
pub type Section = (Vec<Column>, Vec<Vec<Cell>>);

/// Indent of prose below a row, and of the further lines of a wrapped line.
const INDENT: &str = "  ";

/// Tables and lines, visible and no wider than their canvas.
#[derive(Clone, Debug, Default)]
pub struct Page {
    canvas: Canvas,
    text: String,
}

impl Page {
    /// A page without content, for this canvas.
    pub const fn on(canvas: Canvas) -> Self {
        Self { canvas, text: String::new() }
    }

    /// Its text, which ends with a newline.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds a line of prose, escaped and wrapped.
    pub fn line(&mut self, line: &str) {
        let line = visible(line);
        let most = self.canvas.width.filter(|most| width(&line) > *most);
        let Some(most) = most else { return self.push(&line) };
        let mut lines = wrap(&line, most.saturating_sub(INDENT.len())).into_iter();
        lines.next().into_iter().for_each(|first| self.push(&first));
        lines.for_each(|more| self.push(&format!("{INDENT}{more}")));
    }

    /// Adds a box with these cells side by side; those that do not fit follow below.
    pub fn boxed(&mut self, cells: &[String]) {
        let mut rest: Vec<Cell> = cells.iter().map(Cell::from).collect();
        let mut bar = String::new();
        while !rest.is_empty() {
            let natural = |cells: &[Cell]| cells.iter().map(|cell| Some(cell.width())).collect::<Vec<_>>();
            let fits = |count: &usize| {
                self.canvas.width.is_none_or(|most| layout::line(&natural(&rest[..*count])) <= most)
            };
            let count = (1..=rest.len()).rev().find(fits).unwrap_or(1);
            let more = rest.split_off(count);
            let columns: Vec<_> = rest.iter().map(|cell| (Fit::Cut(1), cell.width())).collect();
            let widths = layout::fit(&columns, self.canvas.width);
            let next = rule(&widths, '+', '-');
            self.push(if bar.len() > next.len() { &bar } else { &next });
            self.cells(&widths, &rest, None);
            bar = next;
            rest = more;
        }
        self.push(&bar);
    }

    /// Adds a table; without rows it has its titles alone.
    pub fn table(&mut self, columns: &[Column], rows: &[impl AsRef<[Cell]>]) {
        let rows: Vec<&[Cell]> = rows.iter().map(AsRef::as_ref).collect();
        let natural = |at: usize, column: &Column| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(Cell::width);
            cells.max().unwrap_or(0).max(width(column.title))
        };
        let all: Vec<_> =
            columns.iter().enumerate().map(|(at, column)| (column.fit, natural(at, column))).collect();
        let whole: Vec<_> =
            all.iter().filter(|(fit, _)| *fit != Fit::Wide).map(|(_, natural)| Some(*natural)).collect();
        let is_below = self.canvas.width.is_some_and(|most| layout::line(&whole) > most);
        let in_row = |column: &&Column| !is_below || column.fit != Fit::Prose;
        let shown = columns.iter().take_while(in_row).count();
        let mut widths = layout::fit(&all[..shown], self.canvas.width);
        let prose: Vec<Vec<&str>> =
            rows.iter().map(|row| row.get(shown..).unwrap_or_default().iter().map(prose).collect()).collect();
        self.widen(columns, &mut widths, prose.iter().flatten().map(|text| width(text)).max());
        self.push(&rule(&widths, '+', '-'));
        let titles: Vec<Cell> = columns.iter().map(|column| column.title.into()).collect();
        self.cells(&widths, &titles, Some(columns));
        self.push(&rule(&widths, '=', '='));
        for (row, prose) in rows.iter().zip(prose) {
            self.cells(&widths, row, Some(columns));
            prose.into_iter().for_each(|text| self.below(&widths, text));
        }
        self.push(&rule(&widths, '+', '-'));
    }

    /// Gives the last column of text the room that prose of this width below the rows can use.
    fn widen(&self, columns: &[Column], widths: &mut [Option<usize>], prose: Option<usize>) {
        let (Some(prose), Some(most)) = (prose.filter(|prose| *prose > 0), self.canvas.width) else { return };
        let missing = (prose + INDENT.len() + 4).min(most).saturating_sub(layout::line(widths));
        let last = columns
            .iter()
            .zip(widths)
            .rev()
            .find(|(column, width)| column.side == Side::Left && width.is_some());
        if let Some((_, Some(last))) = last {
            *last += missing;
        }
    }

    fn below(&mut self, widths: &[Option<usize>], text: &str) {
        let inner = layout::line(widths).saturating_sub(4);
        for line in wrap(text, inner.saturating_sub(INDENT.len())) {
            let line = format!("{INDENT}{line}");
            let blanks = " ".repeat(inner.saturating_sub(width(&line)));
            self.push(&format!("| {line}{blanks} |"));
        }
    }

    fn cells(&mut self, widths: &[Option<usize>], cells: &[Cell], columns: Option<&[Column]>) {
        let shown = widths.iter().zip(cells).enumerate();
        let shown: Vec<_> = shown.filter_map(|(at, (most, cell))| Some((at, (*most)?, cell))).collect();
        let height = shown.iter().map(|(_, _, cell)| cell.height()).max().unwrap_or(1);
        for line in 0..height {
            let mut text = String::from("|");
            for (at, most, cell) in &shown {
                let side =
                    columns.and_then(|columns| columns.get(*at)).map_or(Side::Left, |column| column.side);
                text += &format!(" {} |", self.aligned(cell, line, *most, side));
            }
            self.push(&text);
        }
    }

    fn aligned(&self, cell: &Cell, line: usize, most: usize, side: Side) -> String {
        let text = cut(cell.line(line), most);
        let blanks = " ".repeat(most - width(&text));
        let text = if self.canvas.colours { cell.tint().paint(&text) } else { text };
        match side {
            Side::Left => text + &blanks,
            Side::Right => blanks + &text,
        }
    }

    fn push(&mut self, line: &str) {
        self.text += line.trim_end();
        self.text.push('\n');
    }
}

/// Prose of a cell; a dash alone is none.
fn prose(cell: &Cell) -> &str {
    Some(cell.line(0)).filter(|text| *text != "-").unwrap_or_default()
}

/// A line between rows.
fn rule(widths: &[Option<usize>], joint: char, dash: char) -> String {
    let dashes = widths.iter().flatten().map(|width| dash.to_string().repeat(width + 2));
    format!("+{}+", dashes.collect::<Vec<_>>().join(&joint.to_string()))
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
    use proptest::prelude::*;

    #[test]
    fn long_command_is_cut_with_dots() {
        assert_eq!(printable(&"a".repeat(60)), "a".repeat(60));
        assert_eq!(printable(&"ä".repeat(61)), "ä".repeat(57) + "...");
    }

    const COLUMNS: [Column; 4] = [
        Column::left("Name").cut(6),
        Column::right("Size"),
        Column::left("Type").drop(1),
        Column::prose("Reason"),
    ];

    fn drawn(width: usize) -> String {
        let mut page = Page::on(Canvas::of_width(width));
        let rows = [
            vec!["train".into(), "1".into(), "training".into(), "a full queue is before it".into()],
            vec!["学習-with-a-long-name".into(), "12".into(), "a".into(), "-".into()],
        ];
        page.table(&COLUMNS, &rows);
        page.text().to_owned()
    }

    #[test]
    fn prose_is_a_column_where_it_fits() {
        assert_eq!(
            drawn(90),
            "\
+-----------------------+------+----------+---------------------------+
| Name                  | Size | Type     | Reason                    |
+=====================================================================+
| train                 |    1 | training | a full queue is before it |
| 学習-with-a-long-name |   12 | a        | -                         |
+-----------------------+------+----------+---------------------------+
"
        );
    }

    #[test]
    fn prose_moves_below_and_names_are_cut() {
        assert_eq!(
            drawn(32),
            "\
+------------+------+----------+
| Name       | Size | Type     |
+==============================+
| train      |    1 | training |
|   a full queue is before it  |
| 学習-wi... |   12 | a        |
+------------+------+----------+
"
        );
    }

    #[test]
    fn box_takes_as_many_lines_as_it_needs() {
        let mut page = Page::on(Canvas::of_width(20));
        page.boxed(&["tranche".into(), "driver".into(), "CUDA".into()]);
        let expected = "\
+---------+--------+
| tranche | driver |
+---------+--------+
| CUDA |
+------+
";
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn colours_take_no_room() {
        let mut page = Page::on(Canvas { width: Some(80), colours: true });
        page.table(&[Column::left("State")], &[vec![Cell::from("ok\x1b").tinted(Tint::Green)]]);
        assert!(page.text().contains("| \x1b[32mok\\u{1b}\x1b[0m |"), "{}", page.text());
        let plain = page.text().replace("\x1b[32m", "").replace("\x1b[0m", "");
        assert!(plain.lines().all(|line| line.len() == 12), "{plain}");
    }

    fn any_column() -> impl Strategy<Value = Column> {
        prop_oneof![
            Just(Column::left("Name")),
            Just(Column::right("Number of things")),
            (1usize..20).prop_map(|least| Column::left("Cut").cut(least)),
            (0u8..5).prop_map(|order| Column::right("Dropped").drop(order)),
        ]
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(
            columns in prop::collection::vec(any_column(), 1..14),
            words in prop::collection::vec(prop_oneof![".*", "[学習😀 a]{0,60}", "[ -~]{0,200}"], 1..40),
            width_of in 20usize..220,
            has_prose: bool,
        ) {
            let mut columns = columns;
            columns.extend(has_prose.then_some(Column::prose("Reason")));
            let rows: Vec<Vec<Cell>> = words
                .windows(columns.len().min(words.len()))
                .map(|row| row.iter().map(Cell::from).collect())
                .collect();
            let mut page = Page::on(Canvas::of_width(width_of));
            page.table(&columns, &rows);
            page.boxed(&words);
            words.iter().for_each(|line| page.line(line));
            for line in page.text().lines() {
                prop_assert!(width(line) <= width_of, "{} > {width_of}: {line}", width(line));
                prop_assert!(line.chars().all(tranche_domain::text::is_visible), "{line:?}");
            }
        }

        #[test]
        fn unlimited_width_loses_nothing(words in prop::collection::vec("[a-z学 ]{1,300}", 3)) {
            let mut page = Page::on(Canvas::PLAIN);
            page.table(&COLUMNS, &[[&words[..1], &["7".into()], &words[1..]].concat().iter().map(Cell::from).collect::<Vec<_>>()]);
            prop_assert!(words.iter().all(|word| page.text().contains(word)), "{}", page.text());
        }
    }
}
