//! Pages of the book and the places in the site of what they link.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use mdbook_driver::book::{Book, BookItem, Chapter};
use mdbook_driver::errors::Result;
use mdbook_markdown::pulldown_cmark::{Event, Tag};
use mdbook_markdown::{MarkdownOptions, new_cmark_parser};

use crate::paths::{beside, files, is_elsewhere};

/// The page that the site begins with.
const FRONT: &str = "README.md";
/// Folder of the site for what lies outside `docs/`.
const OUTSIDE: &str = "tree";
/// Page of the site with the content of linked folders.
const LISTING: &str = "tree/index.md";

/// Pages of a book, and the targets of their links.
#[derive(Debug, Default)]
pub(crate) struct Linked {
    /// All pages of the book, relative to the tree.
    pub(crate) pages: BTreeSet<PathBuf>,
    /// Files that mdBook does not copy: relative to the tree, and relative to the site.
    pub(crate) copies: BTreeMap<PathBuf, PathBuf>,
    folders: BTreeSet<PathBuf>,
}

/// Changes the links of all chapters to the places that their targets have in the site.
pub(crate) fn adapt(book: &mut Book, tree: &Path) -> Result<Linked> {
    let sources = book.chapters().filter_map(source).collect();
    let mut linked = Linked { pages: sources, ..Linked::default() };
    book.for_each_chapter_mut(|chapter| {
        if let Some(source) = source(chapter) {
            chapter.content = relink(&chapter.content, |link| linked.place(tree, &source, link));
            chapter.path = Some(place(&source));
        }
    });
    if !linked.folders.is_empty() {
        let content = linked.listing(tree)?;
        book.push_item(BookItem::PartTitle("Files".to_owned()));
        book.push_item(Chapter::new("Files that pages name", content, LISTING, Vec::new()));
    }
    Ok(linked)
}

impl Linked {
    /// The link that a page has in the site instead; nothing if it stays.
    fn place(&mut self, tree: &Path, source: &Path, link: &str) -> Option<String> {
        let (path, anchor) = link.find('#').map_or((link, ""), |at| link.split_at(at));
        if path.is_empty() || is_elsewhere(link) {
            return None;
        }
        let target = beside(source, path)?;
        let place = if self.pages.contains(&target) {
            format!("{}{anchor}", place(&target).display())
        } else if tree.join(&target).is_dir() {
            let heading = heading(&target);
            self.folders.insert(target);
            format!("{LISTING}#{heading}")
        } else if tree.join(&target).is_file() {
            self.copied(&target).display().to_string()
        } else {
            return None;
        };
        Some(up(source) + &place)
    }

    /// Place of a file in the site, to which it is copied.
    fn copied(&mut self, file: &Path) -> PathBuf {
        let place = place(file);
        if place.starts_with(OUTSIDE) {
            self.copies.insert(file.to_owned(), place.clone());
        }
        place
    }

    /// The page with a heading for each linked folder, and a link to each file in it.
    fn listing(&mut self, tree: &Path) -> Result<String> {
        let mut text = String::from("# Files that pages name\n");
        for folder in self.folders.clone() {
            let _ = writeln!(text, "\n## `{}` {{#{}}}\n", folder.display(), heading(&folder));
            for file in files(tree, &folder)? {
                let place = if self.pages.contains(&file) { place(&file) } else { self.copied(&file) };
                let name = file.strip_prefix(&folder).unwrap_or(&file);
                let _ = writeln!(text, "- [`{}`](<../{}>)", name.display(), place.display());
            }
        }
        Ok(text)
    }
}

/// Path of a chapter's page relative to the tree.
fn source(chapter: &Chapter) -> Option<PathBuf> {
    beside(Path::new("docs/SUMMARY.md"), chapter.path.as_ref()?.to_str()?)
}

/// Path in the site of a page or file, which is relative to the tree.
fn place(source: &Path) -> PathBuf {
    match source.strip_prefix("docs") {
        Ok(inside) => inside.to_owned(),
        Err(_) if source == Path::new(FRONT) => PathBuf::from("index.md"),
        Err(_) => Path::new(OUTSIDE).join(source),
    }
}

/// Way from the place of a page to the root of the site.
fn up(source: &Path) -> String {
    "../".repeat(place(source).components().count() - 1)
}

/// Anchor of a folder in the page that lists it.
fn heading(folder: &Path) -> String {
    folder.display().to_string().replace('/', "-")
}

/// The text with other targets of its inline links and images; one for which there is none stays.
fn relink(text: &str, mut target: impl FnMut(&str) -> Option<String>) -> String {
    let mut changes = Vec::new();
    for (event, range) in new_cmark_parser(text, &MarkdownOptions::default()).into_offset_iter() {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) = event
        else {
            continue;
        };
        // The target of an inline link is its end; links by reference have none, and stay.
        let Some(at) = text[range.clone()].rfind(&format!("]({dest_url}")) else { continue };
        if let Some(new) = target(&dest_url) {
            let begin = range.start + at + "](".len();
            changes.push((begin..begin + dest_url.len(), new));
        }
    }
    changes.sort_by_key(|(range, _)| range.start);
    let mut changed = text.to_owned();
    for (range, new) in changes.into_iter().rev() {
        changed.replace_range(range, &new);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_change_outside_code_alone() {
        let text = "[a](x) `[b](x)` [![c](x)](x \"t\")\n\n```\n[d](x)\n```\n[e](y) <https://x>";
        let changed = relink(text, |link| (link == "x").then(|| "new".to_owned()));
        let expected = "[a](new) `[b](x)` [![c](new)](new \"t\")\n\n```\n[d](x)\n```\n[e](y) <https://x>";
        assert_eq!(changed, expected);
    }

    #[test]
    fn front_page_and_pages_of_docs_lie_at_the_root() {
        let places =
            ["README.md", "docs/decisions/1.md", "shim/README.md"].map(|path| place(Path::new(path)));
        assert_eq!(places, ["index.md", "decisions/1.md", "tree/shim/README.md"].map(PathBuf::from));
        assert_eq!(up(Path::new("shim/README.md")), "../../");
    }
}
