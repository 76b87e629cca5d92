//! Lists of jobs, slices, GPUs and projects: filters, order and forms of output.

use std::cmp::Ordering;

use serde::Serialize;

use crate::cli::{Condition, ListForm, ListingArgs};
use crate::errors::Failure;
use crate::out;
use crate::table::{Cell, Column, Page, quoted};
use crate::terminal::Canvas;

/// Words of a filter, which are the same for all lists.
pub const STATE: &str = "state";
/// Name or number of a user.
pub const USER: &str = "user";
/// Name of a project.
pub const PROJECT: &str = "project";
/// Index of a GPU.
pub const GPU: &str = "gpu";
/// Name of the listed object.
pub const NAME: &str = "name";

/// Pod of a slice, with or without its namespace.
pub const POD: &str = "pod";

/// Filters of all lists.
const KEYS: [&str; 6] = [NAME, STATE, USER, PROJECT, GPU, POD];

/// One line of a list.
#[derive(Clone, Debug)]
pub struct Entry<T> {
    /// The listed object, for JSON.
    pub view: T,
    /// Name or index that other commands accept.
    pub name: String,
    /// Cells of the table.
    pub cells: Vec<Cell>,
    /// Values of the filters; there may be several of a filter.
    pub traits: Vec<(&'static str, String)>,
}

/// A list under its columns.
#[derive(Clone, Debug)]
pub struct Listing<T> {
    /// Columns of the table.
    pub columns: Vec<Column>,
    /// Lines of the list, in order.
    pub entries: Vec<Entry<T>>,
    /// Sentence for an empty list.
    pub empty: &'static str,
}

impl<T: Serialize> Listing<T> {
    /// Prints the selected entries, in the form and order of the arguments.
    pub fn print(self, args: &ListingArgs) -> Result<(), Failure> {
        let listing = self.selected(args)?;
        match args.form() {
            Some(ListForm::Json) => out::json(&listing.views()),
            Some(ListForm::Csv) => out::print_whole(&listing.csv()),
            Some(ListForm::Name) => out::print_whole(&listing.names()),
            Some(ListForm::Wide) | None => out::page(&listing.page(canvas(args))),
        }
    }

    /// The entries that meet all conditions, in the order of a column if one is named.
    pub fn selected(mut self, args: &ListingArgs) -> Result<Self, Failure> {
        if let Some(Condition { key, .. }) = args.filter.iter().find(|filter| !KEYS.contains(&&*filter.key)) {
            let known = KEYS.map(str::to_owned).to_vec();
            return Err(Failure::UnknownKey { what: "filter", given: key.clone(), known });
        }
        self.entries.retain(|entry| args.filter.iter().all(|filter| entry.meets(filter)));
        if self.entries.is_empty() && !args.filter.is_empty() {
            self.empty = "nothing meets these filters";
        }
        if let Some(given) = &args.sort {
            let wanted = given.to_lowercase().replace(' ', "-");
            let at = self.columns.iter().position(|column| column.key() == wanted).ok_or_else(|| {
                let known = self.columns.iter().map(Column::key).collect();
                Failure::UnknownKey { what: "column", given: given.clone(), known }
            })?;
            self.entries.sort_by(|a, b| order(a.cells.get(at), b.cells.get(at)));
        }
        Ok(self)
    }

    /// The listed objects, without the table.
    pub fn views(&self) -> Vec<&T> {
        self.entries.iter().map(|entry| &entry.view).collect()
    }

    /// The list as a table.
    pub fn page(&self, canvas: Canvas) -> Page {
        let mut page = Page::on(canvas);
        if self.entries.is_empty() {
            page.line(self.empty);
        } else {
            page.table(&self.columns, &self.entries.iter().map(|entry| &entry.cells).collect::<Vec<_>>());
        }
        page
    }

    fn names(&self) -> String {
        self.entries.iter().map(|entry| entry.name.clone() + "\n").collect()
    }

    fn csv(&self) -> String {
        let line = |fields: Vec<String>| fields.join(",") + "\n";
        let titles = line(self.columns.iter().map(Column::key).collect());
        let row = |entry: &Entry<T>| line(entry.cells.iter().map(|cell| quoted(&cell.text())).collect());
        titles + &self.entries.iter().map(row).collect::<String>()
    }
}

impl<T> Entry<T> {
    fn meets(&self, filter: &Condition) -> bool {
        let mut values = self.traits.iter().filter(|(key, _)| *key == filter.key);
        values.any(|(_, value)| value.eq_ignore_ascii_case(&filter.value))
    }
}

/// Bounds of a list's table: those of the terminal, or none in the wide form.
pub fn canvas(args: &ListingArgs) -> Canvas {
    let canvas = Canvas::of_stdout();
    if args.form() == Some(ListForm::Wide) { Canvas { width: None, ..canvas } } else { canvas }
}

/// Order of two cells: numbers by size, other text by its letters.
fn order(a: Option<&Cell>, b: Option<&Cell>) -> Ordering {
    let rank =
        |cell: &Cell| cell.rank().map_or_else(|| leading_number(&cell.text()), |rank| Some(rank as f64));
    match (a.and_then(rank), b.and_then(rank)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.map(Cell::text).cmp(&b.map(Cell::text)),
    }
}

fn leading_number(text: &str) -> Option<f64> {
    text.split(' ').next().and_then(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing<u32> {
        let entry = |view: u32, name: &str, size: &str, user: &str| Entry {
            view,
            name: name.into(),
            cells: vec![name.into(), Cell::from(size)],
            traits: vec![(NAME, name.into()), (USER, user.into())],
        };
        let columns = vec![Column::left("Name"), Column::right("In use")];
        let entries =
            vec![entry(1, "a,b", "10 MiB", "ann"), entry(2, "c", "9 MiB", "bob"), entry(3, "d", "-", "ann")];
        Listing { columns, entries, empty: "nothing" }
    }

    fn args(sort: Option<&str>, filter: &[(&str, &str)]) -> ListingArgs {
        let filter =
            filter.iter().map(|(key, value)| Condition { key: (*key).into(), value: (*value).into() });
        ListingArgs { sort: sort.map(Into::into), filter: filter.collect(), ..ListingArgs::default() }
    }

    #[test]
    fn filters_are_all_met_and_names_of_users_have_no_case() {
        assert_eq!(listing().selected(&args(None, &[("user", "Ann")])).unwrap().views(), [&1, &3]);
        assert_eq!(listing().selected(&args(None, &[("user", "ann"), ("name", "d")])).unwrap().views(), [&3]);
        let none = listing().selected(&args(None, &[("gpu", "7")])).unwrap();
        assert_eq!(none.page(Canvas::PLAIN).text(), "nothing meets these filters\n");
    }

    #[test]
    fn numbers_are_sorted_by_size() {
        assert_eq!(listing().selected(&args(Some("in use"), &[])).unwrap().views(), [&3, &2, &1]);
        assert_eq!(listing().selected(&args(Some("Name"), &[])).unwrap().views(), [&1, &2, &3]);
    }

    #[test]
    fn unknown_keys_and_columns_name_the_known_ones() {
        let text = listing().selected(&args(None, &[("colour", "red")])).unwrap_err().to_string();
        assert_eq!(text, "there is no filter \"colour\"; there are: name, state, user, project, gpu, pod");
        let text = listing().selected(&args(Some("size"), &[])).unwrap_err().to_string();
        assert_eq!(text, "there is no column \"size\"; there are: name, in-use");
    }

    #[test]
    fn fields_are_quoted_where_they_need_it() {
        assert_eq!(listing().csv(), "name,in-use\n\"a,b\",10 MiB\nc,9 MiB\nd,-\n");
        assert_eq!(listing().names(), "a,b\nc\nd\n");
    }
}
