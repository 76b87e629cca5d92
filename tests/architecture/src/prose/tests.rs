//! Each rule finds what it describes, and leaves plain text alone.

use super::*;

fn found(source: &str) -> Vec<(usize, Rule)> {
    let mut measure = Measure::default();
    measure.add(Path::new("file.rs"), &comments::of_rust(source, "module"));
    measure.findings.iter().map(|finding| (finding.line, finding.rule)).collect()
}

#[test]
fn persons_are_found_in_possessives_and_across_lines() {
    assert_eq!(found("// Nobody's memory, and those\n// who wait"), [(1, Rule::Person), (1, Rule::Person)]);
    assert_eq!(found("// the slice \"nobody\""), [(1, Rule::Person)]);
}

#[test]
fn speech_and_idioms_are_found_as_words() {
    assert_eq!(found("// The daemon says so, and goes on."), [(1, Rule::Speech), (1, Rule::Idiom)]);
    assert_eq!(found("// The task asserts an essay at no more than 4 look-ups."), []);
}

#[test]
fn inline_code_and_link_targets_are_no_prose() {
    assert_eq!(found("// the field `told` of\n// `nobody\n// says` and [12](docs/everybody)"), []);
    let document = comments::of_markdown("see [x](a/everybody b)\n```\nwhom\n```\n");
    let mut measure = Measure::default();
    measure.add(Path::new("a.md"), &document);
    assert_eq!(measure.findings, []);
    assert_eq!(measure.words, 2);
}

#[test]
fn summaries_are_no_questions() {
    assert_eq!(found("/// Whether it is bound to a slot.\nfn bound() {}"), [(1, Rule::Question)]);
    assert_eq!(found("/// True while a slot is bound to it.\nfn bound() {}"), []);
}

#[test]
fn docs_add_to_the_name() {
    assert_eq!(found("/// The memory cap of it.\nconst MEMORY_CAP: u8 = 0;"), [(1, Rule::Filler)]);
    assert_eq!(found("/// See there now.\nfn look() {}"), [(1, Rule::Filler)]);
    assert_eq!(found("/// Cap in bytes.\nfn cap() {}"), []);
    assert_eq!(found("/// Releases its slot and wakes waiters.\nfn release() {}"), []);
}

#[test]
fn summaries_end_within_100_characters() {
    let long = format!("/// Of {} end.\nfn f() {{}}", "words ".repeat(20));
    assert_eq!(found(&long), [(1, Rule::Long)]);
    let split = format!("/// Four words are here. Then {} end.\nfn f() {{}}", "words ".repeat(20));
    assert_eq!(found(&split), []);
}

#[test]
fn safety_comments_name_a_precondition() {
    assert_eq!(found("// SAFETY: the program's own call."), [(1, Rule::Safety)]);
    assert_eq!(found("// SAFETY: as in `load`."), [(1, Rule::Safety)]);
    assert_eq!(found("// SAFETY: the pointer is not null, by the check above."), []);
}

#[test]
fn table_lists_only_units_with_findings() {
    let figures = BTreeMap::from([("b".to_owned(), 0), ("a".to_owned(), 2), ("c".to_owned(), 1)]);
    let text = table(&figures);
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["", "2\ta", "", "1\tc"]);
}
