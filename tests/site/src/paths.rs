//! Paths of files and links.

use std::fs;
use std::path::{Component, Path, PathBuf};

use mdbook_driver::errors::Result;

/// Files of a folder and all below it, sorted, relative to the root; hidden ones aside.
pub(crate) fn files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            found.extend(files(root, &path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Path of a link relative to the root, of a page that lies there; nothing for what lies outside.
pub(crate) fn beside(page: &Path, link: &str) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in page.parent()?.join(link).components() {
        match part {
            Component::ParentDir => plain.pop().then_some(())?,
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// True for a link to another site, or by another protocol.
pub(crate) fn is_elsewhere(link: &str) -> bool {
    let scheme = link.split_once(':').map_or("", |(scheme, _)| scheme);
    link.starts_with("//")
        || !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}
