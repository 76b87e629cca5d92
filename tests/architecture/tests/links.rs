//! Links of the documents lead to files and headings that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use architecture::{root, text, tracked};

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let documents: Vec<PathBuf> =
        tracked().into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    assert!(documents.len() > 50, "the documents are not found: {}", documents.len());
    let dead: Vec<String> = documents.iter().flat_map(|path| dead(path)).collect();
    assert!(dead.is_empty(), "links that lead nowhere: {dead:#?}");
}

/// Links of a document whose file or heading is missing.
fn dead(document: &Path) -> Vec<String> {
    let prose = prose(&text(document).unwrap_or_default());
    let targets = targets(&prose)
        .into_iter()
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    let is_dead = |target: &String| {
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let of = if path.is_empty() { document.to_owned() } else { beside(document, path) };
        let is_document = of.extension().is_some_and(|end| end == "md");
        !root().join(&of).exists()
            || is_document
                && !heading.is_empty()
                && !headings(&text(&of).unwrap_or_default()).contains(heading)
    };
    targets.filter(is_dead).map(|target| format!("{}: {target}", document.display())).collect()
}

/// Path of a link relative to the root of the tree.
fn beside(document: &Path, path: &str) -> PathBuf {
    let whole = document.parent().unwrap_or(Path::new("")).join(path);
    whole.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

/// The text without blocks and spans of code.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    });
    let lines: Vec<&str> = outside.collect();
    // Every second part is between backquotes; a link around one keeps its brackets.
    lines.join("\n").split('`').step_by(2).collect()
}

/// Targets of the links `[text](target)`.
fn targets(prose: &str) -> Vec<String> {
    let links = prose.split("](").skip(1);
    links.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim().to_owned()).collect()
}

/// Names of a document's headings, as forges make them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let name = name_of(title.trim());
        let count = counts.entry(name.clone()).or_default();
        names.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    names
}

fn name_of(title: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
    title.to_lowercase().chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn dead_links_are_found() {
    let text = "# One `two`, three\n## One\n## One\n```\n# no\n[x](no.md)\n```\n[a](b.md#c) `[y](no)` [`d`](../e.md)";
    let expected = ["one-two-three", "one", "one-1"].map(String::from);
    assert_eq!(headings(text), expected.into());
    assert_eq!(targets(&prose(text)), ["b.md#c", "../e.md"]);
    assert_eq!(beside(Path::new("docs/decisions/1.md"), "../jobs.md"), Path::new("docs/jobs.md"));
}
