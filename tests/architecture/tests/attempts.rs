//! Attempts listed in `docs/security.md` and the tests that make them are the same set.

use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENT: &str = "docs/security.md";
const TESTS: &str = "tests/e2e/tests/tampering";

/// The last cell of each row below that heading: `module::test`.
fn documented() -> BTreeSet<String> {
    let text = architecture::text(Path::new(DOCUMENT)).expect("the document is there");
    let (_, from) = text.split_once("\n## What was tried\n").expect("it has that heading");
    let section = from.split("\n## ").next().unwrap_or_default();
    let cells =
        section.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')?.rsplit('|').next());
    cells.filter_map(|cell| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned())).collect()
}

/// The tests of each file there.
fn there() -> BTreeSet<String> {
    let files = architecture::tracked().into_iter().filter(|path| path.starts_with(TESTS));
    let of_file = |path: std::path::PathBuf| {
        let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = architecture::text(&path).unwrap_or_default();
        let tests = text.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split('(').next());
        tests.map(|test| format!("{module}::{test}")).collect::<Vec<_>>()
    };
    files.flat_map(of_file).collect()
}

#[test]
fn every_attempt_that_is_documented_is_tried_and_every_one_that_is_tried_is_documented() {
    let (documented, there) = (documented(), there());
    assert!(there.len() >= 20, "{there:?}");
    let missing: Vec<_> = documented.difference(&there).collect();
    let untold: Vec<_> = there.difference(&documented).collect();
    assert!(
        missing.is_empty() && untold.is_empty(),
        "no such tests: {missing:#?}\nnot in {DOCUMENT}: {untold:#?}"
    );
}
