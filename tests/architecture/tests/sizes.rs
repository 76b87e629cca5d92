//! Sizes of files and functions in the crates that are shipped.

use std::path::PathBuf;

use architecture::text;

/// Most lines of code in a file, without comments, blank lines, rows of the table of hooks and tests.
const FILE: usize = 300;
/// Most lines of a function, from its name to its closing brace.
const FUNCTION: usize = 60;

#[test]
fn files_are_not_too_long() {
    let sizes = sources().into_iter().map(|(path, source)| (code(&source), path));
    let long: Vec<_> = sizes.filter(|(lines, _)| *lines > FILE).collect();
    assert!(long.is_empty(), "more than {FILE} lines of code: {long:#?}");
}

#[test]
fn functions_are_not_too_long() {
    let functions = sources().into_iter().flat_map(|(path, source)| {
        functions(&source)
            .into_iter()
            .map(move |(lines, name)| (lines, format!("{}: {name}", path.display())))
    });
    let long: Vec<_> = functions.filter(|(lines, _)| *lines > FUNCTION).collect();
    assert!(long.is_empty(), "more than {FUNCTION} lines: {long:#?}");
}

#[test]
fn comments_blank_lines_and_tests_are_no_code() {
    assert_eq!(code("//! A\n\nfn a() {\n    // B\n    b();\n}\n#[cfg(test)]\nmod tests {\n}\n"), 3);
    assert_eq!(code("hooks! {\n    A in \"a\" {\n        2000 b(c: u8) => d::e();\n    }\n}\n"), 4);
    assert_eq!(code("mod a;\n#[cfg(test)]\nmod tests;\nmod b;\n\n#[cfg(test)]\nmod c {\n}\n"), 4);
}

#[test]
fn functions_end_at_their_own_brace() {
    let source = "trait T {\n    fn a(\n        &self,\n    ) -> u8;\n    fn b(&self) {\n        if c {\n        }\n    }\n}\n\
                  pub(crate) const fn d(\n    e: u8,\n) {\n    f();\n}\nfn g() {}\n";
    let named = ["a", "b", "d", "g"].map(str::to_owned);
    assert_eq!(functions(source), [3, 4, 5, 1].into_iter().zip(named).collect::<Vec<_>>());
}

/// Sources of shipped crates with their code before the tests.
fn sources() -> Vec<(PathBuf, String)> {
    let code = |path: PathBuf| Some((path.clone(), production(&text(&path)?).to_owned()));
    let found: Vec<_> = architecture::sources().into_iter().filter_map(code).collect();
    assert!(found.len() > 300, "the sources are not found: {}", found.len());
    found
}

/// The part of a source before its tests. A test module in a file of its own ends nothing.
fn production(source: &str) -> &str {
    let mut tests = source.match_indices("\n#[cfg(test)]\nmod ");
    let has_body = |at: usize| source[at + 1..].lines().nth(1).is_some_and(|line| line.ends_with('{'));
    tests.find(|(at, _)| has_body(*at)).map_or(source, |(at, _)| &source[..at])
}

/// A row of the table of hooks, which is data: a version, a function's signature and its body.
fn is_row(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_digit()) && line.contains(") => ") && line.ends_with(';')
}

fn code(source: &str) -> usize {
    let lines = production(source).lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//") && !is_row(line)).count()
}

/// Lines and name of each function, in the layout of rustfmt.
fn functions(source: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = source.lines().collect();
    let named = lines.iter().enumerate().filter_map(|(at, line)| Some((at, name(line)?)));
    let measured = named.map(|(at, name)| {
        let line = lines[at];
        let indent = &line[..line.len() - line.trim_start().len()];
        let is_end = |line: &&str| {
            let own = line.strip_prefix(indent).unwrap_or_default();
            own.starts_with('}') || own.starts_with(')') && own.ends_with(';')
        };
        let single = line.ends_with('}') || line.ends_with(';');
        let rest = lines[at + 1..].iter().position(is_end).map_or(0, |end| end + 1);
        (if single { 1 } else { rest + 1 }, name.to_owned())
    });
    measured.collect()
}

/// The name of the function that begins on a line.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\"", "default"];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
    before
        .split_whitespace()
        .all(is_word)
        .then_some(after)?
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}
