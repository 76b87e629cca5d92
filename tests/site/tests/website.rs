//! The site of the documentation has no warning, no dead link and all pages; what is wrong is found.

use std::fs;
use std::path::{Path, PathBuf};

use site::{Finding, build};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_site_of_the_documentation_has_no_findings() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let findings = build(&tree(), folder.path()).expect("the site is built");
    let texts: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(texts.is_empty(), "{texts:#?}");
    for page in [
        "index.html",
        "tour.html",
        "decisions/0001-regions-are-words.html",
        "tree/shim/symbols/data/cuda.tsv",
    ] {
        assert!(folder.path().join(page).is_file(), "{page} is not in the site");
    }
    let front = fs::read_to_string(folder.path().join("index.html")).expect("it has a front page");
    assert!(front.contains("href=\"memory.html\""), "links to pages of docs/ lead to pages of the site");
}

/// Findings of a small tree with a text as its page `a.md`, and with more files.
fn findings(text: &str, more: &[(&str, &str)]) -> Vec<Finding> {
    let tree = tempfile::tempdir().expect("a folder can be made");
    let usual = [
        ("README.md", "# Front\n\n[a](docs/a.md)\n"),
        ("docs/book.toml", include_str!("../../../docs/book.toml")),
        ("docs/site.css", ""),
        ("docs/SUMMARY.md", "# Summary\n\n[Front](../README.md)\n\n- [A](a.md)\n- [B](b.md)\n"),
        ("docs/a.md", text),
        ("docs/b.md", "# Heading of B\n"),
        ("code/table.tsv", "a\tb\n"),
        ("code/README.md", "# Outside\n"),
    ];
    for (path, text) in usual.iter().chain(more) {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }
    build(tree.path(), &tree.path().join("site")).expect("the site is built")
}

#[test]
fn links_to_pages_headings_and_files_of_the_tree_are_no_findings() {
    let text = "# A\n\n[b](b.md#heading-of-b) [c](../code/table.tsv) [d](../README.md#front) [e](#a) [f](https://a.example/x)\n";
    assert_eq!(findings(text, &[]), []);
}

#[test]
fn dead_links_and_dead_anchors_are_found() {
    for (link, target) in [
        ("gone.md", "gone.html"),
        ("gone.svg", "gone.svg"),
        ("../code/gone.tsv", "../code/gone.tsv"),
        ("b.md#gone", "b.html#gone"),
        ("#gone", "#gone"),
        ("../README.md#gone", "index.html#gone"),
        ("../code/README.md", "tree/code/README.html"), // a page outside docs/ that SUMMARY.md lacks
        ("../../outside.md", "../../outside.html"),
    ] {
        let dead = Finding::Dead { page: "a.html".into(), target: target.into() };
        assert_eq!(findings(&format!("# A\n\nA [link]({link}).\n"), &[]), [dead], "{link}");
    }
}

#[test]
fn a_page_that_the_summary_lacks_is_found() {
    let unlisted = Finding::Unlisted("docs/c.md".into());
    assert_eq!(findings("# A\n", &[("docs/c.md", "# C\n")]), [unlisted]);
}

#[test]
fn warnings_of_mdbook_are_found() {
    let findings = findings("# A\n\nIt takes <runtime> and more.\n", &[]);
    assert!(
        matches!(&findings[..], [Finding::Warning(text)] if text.contains("unclosed HTML tag `<runtime>`")),
        "{findings:?}"
    );
}

#[test]
fn a_linked_folder_is_listed_with_its_files() {
    let text = "# A\n\n[code](../code)\n";
    let dead = Finding::Dead { page: "tree/index.html".into(), target: "../tree/code/README.html".into() };
    assert_eq!(findings(text, &[]), [dead]);
    let summary =
        "# Summary\n\n[Front](../README.md)\n\n- [A](a.md)\n- [B](b.md)\n- [Outside](../code/README.md)\n";
    assert_eq!(findings(text, &[("docs/SUMMARY.md", summary)]), []);
}

#[test]
fn a_folder_with_other_content_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("thesis.tex");
    fs::write(&file, "years").expect("the file can be written");
    let error = build(&tree(), folder.path()).expect_err("it is no site");
    assert!(error.to_string().contains("other content than a site"), "{error}");
    assert!(file.is_file());
}
