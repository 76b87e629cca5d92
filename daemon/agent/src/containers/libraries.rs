//! Copies of the shim's libraries for containers, named after their content and never modified.
//!
//! A program maps the library that it was started with. An installer may overwrite its own file in place and so
//! change code that runs; containers therefore receive separate copies. A newer version is another file, put in place
//! atomically; the older one stays mapped where it is used, even after it has been unlinked.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use tranche_cdi::Preload;

use crate::ownership;
use tranche_linux::atomic_file::{PUBLIC, Survives, replace};

/// Paths of the copies.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    folder: PathBuf,
    pub(crate) libcuda: PathBuf,
    pub(crate) libnvml: PathBuf,
    pub(crate) preload: PathBuf,
    /// `ld.so.preload` file that names the preloaded one.
    pub(crate) preload_list: PathBuf,
}

/// Failure to install a library.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot install {} for containers in {}: {cause}; install Tranche's libraries whole, or set `shim` in the \
     configuration to the preloaded one among them",
    .origin.display(), .folder.display()
)]
pub(crate) struct NotInstalled {
    origin: PathBuf,
    folder: PathBuf,
    cause: io::Error,
}

impl Libraries {
    /// Copies `shim`, which is preloaded, and the libraries installed beside it, unless they exist already.
    pub(crate) fn install(shim: &Path, folder: &Path) -> Result<Self, NotInstalled> {
        ownership::take_back(folder, 0o755).map_err(|cause| NotInstalled {
            origin: shim.to_owned(),
            folder: folder.to_owned(),
            cause,
        })?;
        let replacement = |name: &str| shim.with_file_name("replace").join(name);
        let copy = |origin: PathBuf, stem: &str, extension: &str| {
            let content = fs::read(&origin).and_then(|content| keep(&content, folder, stem, extension));
            content.map_err(|cause| NotInstalled { origin, folder: folder.to_owned(), cause })
        };
        Ok(Self {
            folder: folder.to_owned(),
            libcuda: copy(replacement("libcuda.so.1"), "libtranche_libcuda", ".so")?,
            libnvml: copy(replacement("libnvidia-ml.so.1"), "libtranche_libnvml", ".so")?,
            preload: copy(shim.to_owned(), "libtranche_preload", ".so")?,
            preload_list: keep(Preload::LIST.as_bytes(), folder, "ld", ".so.preload").map_err(|cause| {
                NotInstalled { origin: "the list to preload".into(), folder: folder.to_owned(), cause }
            })?,
        })
    }

    /// Removes copies of earlier versions. Running containers keep what they have mounted.
    pub(crate) fn remove_others(&self) -> io::Result<()> {
        let ours = [&self.libcuda, &self.libnvml, &self.preload, &self.preload_list];
        let ours: BTreeSet<OsString> =
            ours.into_iter().filter_map(|path| path.file_name().map(Into::into)).collect();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if !ours.contains(&entry.file_name()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Creates a file with this content and its digest in the name. An existing file with other content or of another
/// user is replaced by a new one, never written.
fn keep(content: &[u8], folder: &Path, stem: &str, extension: &str) -> io::Result<PathBuf> {
    let path =
        folder.join(format!("{stem}-{}-{:016x}{extension}", env!("CARGO_PKG_VERSION"), digest(content)));
    let is_own = fs::symlink_metadata(&path).is_ok_and(|is| is.is_file() && is.uid() == geteuid().as_raw());
    if is_own && fs::read(&path).is_ok_and(|there| there == content) {
        return Ok(path);
    }
    replace(&path, content, PUBLIC, Survives::PowerCuts)?;
    Ok(path)
}

/// FNV-1a, to distinguish versions; equality of a file is established by comparing all of it.
fn digest(content: &[u8]) -> u64 {
    let mix = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    content.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(folder: &Path, content: &str) -> PathBuf {
        fs::create_dir_all(folder.join("replace")).unwrap();
        for name in ["replace/libcuda.so.1", "replace/libnvidia-ml.so.1", "libtranche_preload.so"] {
            fs::write(folder.join(name), format!("{content} {name}")).unwrap();
        }
        folder.join("libtranche_preload.so")
    }

    #[test]
    fn newer_version_is_a_separate_file() {
        let folder = tempfile::tempdir().unwrap();
        let (source, lib) = (folder.path().join("staged"), folder.path().join("lib"));
        let first = Libraries::install(&staged(&source, "one"), &lib).unwrap();
        let mapped = fs::File::open(&first.libcuda).unwrap();
        let before = mapped.metadata().unwrap();
        let again = Libraries::install(&staged(&source, "one"), &lib).unwrap();
        assert_eq!(fs::metadata(&again.libcuda).unwrap().ino(), before.ino(), "it was there");
        let second = Libraries::install(&staged(&source, "two"), &lib).unwrap();
        assert_ne!(first.libcuda, second.libcuda);
        second.remove_others().unwrap();
        assert!(!first.libcuda.exists() && second.libnvml.exists());
        assert_eq!(fs::read_dir(&lib).unwrap().count(), 4);
        let after = mapped.metadata().unwrap();
        assert_eq!((after.size(), after.mtime_nsec()), (before.size(), before.mtime_nsec()));
    }

    #[test]
    fn damaged_copy_is_replaced_by_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let shim = staged(folder.path(), "one");
        let lib = folder.path().join("lib");
        let first = Libraries::install(&shim, &lib).unwrap();
        let damaged = fs::File::open(&first.preload).unwrap();
        fs::write(&first.preload, "half").unwrap();
        Libraries::install(&shim, &lib).unwrap();
        assert_eq!(fs::read_to_string(&first.preload).unwrap(), "one libtranche_preload.so");
        assert_eq!(damaged.metadata().unwrap().size(), 4, "whoever had it open has the old one");
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let refused =
            Libraries::install(&folder.path().join("shim.so"), &folder.path().join("lib")).unwrap_err();
        assert!(refused.to_string().contains("replace/libcuda.so.1"), "{refused}");
    }
}
