//! Website of the pages in `docs/`, made by mdBook.
//!
//! Law: what a page links is in the site, or is a finding. Pages and files outside `docs/` come into the site too, as no
//! address of a forge is known.
#![forbid(unsafe_code)]

mod dead;
mod finding;
mod pages;
mod paths;
mod warnings;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mdbook_driver::MDBook;
use mdbook_driver::config::Config;
use mdbook_driver::errors::{Error, Result};

pub use crate::finding::Finding;
use crate::paths::files;
use crate::warnings::Warnings;

/// Builds the site of a tree into a folder, whose former site it replaces.
///
/// # Errors
/// When a file cannot be read or written, when `SUMMARY.md` names a page that is not there, and for a folder with other
/// content than a site.
pub fn build(tree: &Path, site: &Path) -> Result<Vec<Finding>> {
    let site = std::path::absolute(site)?;
    if site.exists() && !site.join("toc.html").exists() && fs::read_dir(&site)?.next().is_some() {
        let text =
            format!("{} has other content than a site: name another folder, or empty it", site.display());
        return Err(Error::msg(text));
    }
    let docs = tree.join("docs");
    let mut config = Config::from_disk(docs.join("book.toml"))?;
    config.build.build_dir.clone_from(&site);

    let warnings = Warnings::default();
    let linked = tracing::subscriber::with_default(warnings.clone(), || -> Result<_> {
        let mut book = MDBook::load_with_config(&docs, config)?;
        let linked = pages::adapt(&mut book.book, tree)?;
        book.build()?;
        Ok(linked)
    })?;
    for (from, to) in &linked.copies {
        let to = site.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&site))?;
        fs::copy(tree.join(from), to)?;
    }

    let mut findings: Vec<Finding> = warnings.taken().into_iter().map(Finding::Warning).collect();
    findings.extend(unlisted(tree, &linked.pages)?.into_iter().map(Finding::Unlisted));
    findings.extend(dead::links(&site)?);
    Ok(findings)
}

/// Pages of `docs/` that are not among the pages of the book.
fn unlisted(tree: &Path, listed: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut pages = files(tree, Path::new("docs"))?;
    pages.retain(|page| {
        let is_page = page.extension().is_some_and(|end| end == "md");
        is_page && !page.ends_with("SUMMARY.md") && !listed.contains(page)
    });
    Ok(pages)
}
