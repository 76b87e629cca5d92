//! `tranche doctor --bundle`: everything that a bug report needs, in one archive.
//!
//! Laws: the content is listed; a part that is unavailable is replaced by the reason; no wait is unbounded;
//! and values of variables, credentials and other users' command lines are left out.

mod item;
mod redact;
mod sources;

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};
use tempfile::NamedTempFile;

use crate::errors::Failure;
use crate::out;
use item::Item;
use redact::redacted;

/// Name of the folder in the archive.
const FOLDER: &str = "tranche-bundle";
/// Maximum size of a text in bytes; of a longer one the end is kept, which is newer.
const LONGEST: usize = 4 << 20;

/// Writes the archive and prints its content.
pub(super) fn write(path: &Path, socket: &Path) -> Result<(), Failure> {
    // Created first, so that a failure is reported before any data is gathered.
    let file = create(path).map_err(|cause| failed(path, cause))?;
    let items = sources::all(socket);
    let contents = contents(&items);
    pack(file, path, &items, &contents).map_err(|cause| failed(path, cause))?;
    out::print(&format!(
        "wrote {}, which has\n{contents}Values of variables, credentials and, unless root asks, other programs' commands are taken \
         out.\nLook through it before you pass it on: names of slices, pods, users and this machine are in it.\n",
        path.display()
    ))
}

fn failed(path: &Path, cause: io::Error) -> Failure {
    Failure::File { path: path.to_owned(), cause }
}

/// Creates a temporary file beside the target, so that the target is never incomplete.
fn create(path: &Path) -> io::Result<NamedTempFile> {
    if path.symlink_metadata().is_ok() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there already; name another file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    NamedTempFile::new_in(folder)
}

fn pack(file: NamedTempFile, path: &Path, items: &[Item], contents: &str) -> io::Result<()> {
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    append(&mut archive, "contents.txt", contents)?;
    for item in items {
        match &item.text {
            Ok(text) => append(&mut archive, item.name, &redacted(newest(text)))?,
            Err(why) => append(&mut archive, &format!("{}.missing", item.name), why)?,
        }
    }
    let file = archive.into_inner()?.finish()?;
    file.as_file().sync_all()?;
    // Readable by the user only.
    fs::set_permissions(file.path(), Permissions::from_mode(0o600))?;
    file.persist_noclobber(path)?;
    Ok(())
}

fn append(archive: &mut Builder<impl io::Write>, name: &str, text: &str) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    header.set_mtime(now.as_secs());
    archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())
}

fn newest(text: &str) -> &str {
    let mut from = text.len().saturating_sub(LONGEST);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

fn contents(items: &[Item]) -> String {
    let mut text = String::new();
    for Item { name, about, text: found } in items {
        let what = match found {
            Ok(found) => format!("{} bytes", newest(found).len()),
            Err(why) => format!("missing: {}", why.lines().next().unwrap_or_default()),
        };
        writeln!(text, "  {name:<18} {about} ({what})").expect("a string takes every text");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn unpacked(path: &Path) -> BTreeMap<String, String> {
        let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).unwrap()));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (name, text)
        });
        entries.collect()
    }

    fn items() -> Vec<Item> {
        let secret = Ok("started with TOKEN=abc\n".to_owned());
        let none = Err("there is no journal".to_owned());
        vec![
            Item { name: "a.txt", about: "something", text: secret },
            Item { name: "b.txt", about: "else", text: none },
        ]
    }

    #[test]
    fn bundle_has_redacted_texts_or_reasons() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar.gz");
        let items = items();
        pack(create(&path).unwrap(), &path, &items, &contents(&items)).unwrap();
        let packed = unpacked(&path);
        assert_eq!(packed["tranche-bundle/a.txt"], "started with TOKEN=[redacted]\n");
        assert_eq!(packed["tranche-bundle/b.txt.missing"], "there is no journal");
        assert!(packed["tranche-bundle/contents.txt"].contains("missing: there is no journal"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn existing_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "mine").unwrap();
        assert!(create(&path).unwrap_err().to_string().contains("name another file"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert!(create(&folder.path().join("no/such/folder")).is_err());
    }

    #[test]
    fn long_text_keeps_its_end() {
        let long = "ä".repeat(LONGEST);
        assert_eq!(newest(&long).len(), LONGEST);
        assert_eq!(newest("short"), "short");
    }
}
