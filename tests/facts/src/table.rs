//! The table of facts with their sources.

use std::collections::BTreeMap;

use crate::script::{self, Step};

const FACTS: &str = include_str!("../data/driver.tsv");
#[cfg(test)]
const SOURCES: &str = include_str!("../data/sources.tsv");
const MACROS: &str = include_str!("../data/macros.tsv");

/// One row of `data/driver.tsv`.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) id: &'static str,
    /// CUDA versions that it holds for, as `cuDriverGetVersion` gives them; both ends included.
    pub(crate) versions: (i32, i32),
    pub(crate) steps: Vec<Step>,
    /// Keys of `sources.tsv`.
    pub(crate) sources: Vec<&'static str>,
    /// Questions that the sources leave open.
    pub(crate) note: &'static str,
}

impl Fact {
    pub(crate) fn is_for(&self, version: i32) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }
}

/// A row that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("row `{row}`: {why}")]
pub(crate) struct BadRow {
    row: String,
    why: String,
}

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split('\t').map(str::trim).collect())
}

/// Addresses of sources by their keys.
#[cfg(test)]
fn sources() -> BTreeMap<&'static str, &'static str> {
    rows(SOURCES).filter_map(|row| Some((*row.first()?, *row.get(1)?))).collect()
}

/// Reads the whole table.
///
/// # Errors
/// The first row that cannot be read.
pub(crate) fn facts() -> Result<Vec<Fact>, BadRow> {
    let macros: BTreeMap<&str, &str> =
        rows(MACROS).filter_map(|row| Some((*row.first()?, *row.get(1)?))).collect();
    let lookup = |name: &str| macros.get(name).map(|body| (*body).to_owned());
    rows(FACTS).map(|row| fact(&row, &lookup)).collect()
}

fn fact(row: &[&'static str], macros: &dyn Fn(&str) -> Option<String>) -> Result<Fact, BadRow> {
    let bad = |why: String| BadRow { row: row.join(" | "), why };
    let [id, versions, steps, sources, rest @ ..] = row else {
        return Err(bad("an id, versions, steps and sources are needed".to_owned()));
    };
    let versions = range(versions).ok_or_else(|| bad(format!("no range of versions: {versions}")))?;
    let steps = script::parse(steps, macros).map_err(|why| bad(why.to_string()))?;
    let note = rest.first().copied().unwrap_or_default();
    Ok(Fact { id, versions, steps, sources: sources.split(',').map(str::trim).collect(), note })
}

/// `-`, `12080-`, `-12090`, `12000-12090`.
fn range(text: &str) -> Option<(i32, i32)> {
    let (from, to) = text.split_once('-')?;
    let end = |text: &str, open| if text.is_empty() { Some(open) } else { text.parse().ok() };
    Some((end(from, 0)?, end(to, i32::MAX)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{facts, range, sources};
    use crate::script::{Expected, Step};

    #[test]
    fn every_row_is_read_and_has_a_known_source() {
        let sources = sources();
        let facts = facts().unwrap_or_else(|bad| panic!("{bad}"));
        for fact in &facts {
            assert!(!fact.steps.is_empty(), "{}: no step", fact.id);
            assert!(
                fact.sources.iter().all(|key| sources.contains_key(key)),
                "{}: {:?}",
                fact.id,
                fact.sources
            );
        }
        assert!(sources.values().all(|address| address.starts_with("https://")));
        assert!(facts.len() >= 200, "only {} facts", facts.len());
    }

    #[test]
    fn every_source_is_used_and_every_id_is_its_own() {
        let facts = facts().unwrap_or_else(|bad| panic!("{bad}"));
        let used: BTreeSet<&str> = facts.iter().flat_map(|fact| fact.sources.iter().copied()).collect();
        let unused: Vec<_> = sources().into_keys().filter(|key| !used.contains(key)).collect();
        assert_eq!(unused, [] as [&str; 0], "sources that no row names");
        let ids: BTreeSet<&str> = facts.iter().map(|fact| fact.id).collect();
        assert_eq!(ids.len(), facts.len(), "an id stands twice");
    }

    #[test]
    fn rows_with_open_results_have_a_note() {
        let open = |step: &Step| match step {
            Step::Call { expected: Expected::OneOf(results), .. } => results.len() > 1,
            Step::Call { expected, .. } => matches!(expected, Expected::AnyError | Expected::Anything),
            _ => false,
        };
        for fact in facts().unwrap_or_else(|bad| panic!("{bad}")) {
            assert!(!fact.note.is_empty() || !fact.steps.iter().any(open), "{}: note what is open", fact.id);
        }
    }

    #[test]
    fn ranges_without_a_bound_are_open() {
        assert_eq!(range("-"), Some((0, i32::MAX)));
        assert_eq!(range("12080-"), Some((12080, i32::MAX)));
        assert_eq!(range("-12090"), Some((0, 12090)));
        assert_eq!(range("12000"), None);
    }
}
