//! Files of `docs/monitoring`, read as far as the tests need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Folder of the files.
pub(crate) fn folder() -> PathBuf {
    docs().join("monitoring")
}

fn docs() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this package lies two levels below the root").join("docs")
}

pub(crate) fn text(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values of a key, one a line.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim_start().trim_start_matches("- ").strip_prefix(key))
}

/// All alerts by their names.
pub(crate) fn alerts() -> BTreeSet<String> {
    values(&text("tranche-alerts.yml"), "alert: ").map(str::to_owned).collect()
}

/// All alerts with advice in `docs/operations.md`, which are its headings.
pub(crate) fn advised() -> BTreeSet<String> {
    let text = std::fs::read_to_string(docs().join("operations.md")).expect("there is advice for operators");
    let headings = text.lines().filter_map(|line| line.strip_prefix("### Tranche"));
    headings.map(|name| format!("Tranche{name}")).collect()
}

/// Figures in the table of `docs/operations.md`.
///
/// There `_rest` continues the first two words of the name before it.
pub(crate) fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(docs().join("operations.md")).expect("the document is there");
    let (_, table) = text.split_once("\n| what | figures |\n").expect("the document has the table");
    let mut stem = String::new();
    let mut names = BTreeSet::new();
    for word in table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .flat_map(|row| row.split('`').skip(1).step_by(2))
    {
        if word.starts_with("tranche_") {
            stem = word.split('_').take(2).collect::<Vec<_>>().join("_");
            names.insert(word.to_owned());
        } else if word.starts_with('_') {
            names.insert(format!("{stem}{word}"));
        }
    }
    names
}

/// Queries of the dashboard.
pub(crate) fn questions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("tranche-dashboard.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("each target has a query").to_owned()).collect()
}

/// Figures that the rules name.
pub(crate) fn figures_of_rules() -> BTreeSet<String> {
    values(&text("tranche-alerts.yml"), "expr: ").flat_map(figures).collect()
}

/// Figures that the dashboard shows.
pub(crate) fn figures_of_dashboard() -> BTreeSet<String> {
    let variables = text("tranche-dashboard.json");
    let variables = variables
        .lines()
        .filter_map(|line| line.split_once("label_values("))
        .map(|(_, rest)| rest.to_owned());
    questions().into_iter().chain(variables).flat_map(|question| figures(&question)).collect()
}

/// Names of figures in a query: all words with the prefix of one.
fn figures(question: &str) -> Vec<String> {
    let words = question.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named =
        words.filter(|word| *word == "up" || word.starts_with("tranche_") || word.starts_with("process_"));
    named.map(str::to_owned).collect()
}
