//! The library that tenants preload, as the configuration names it.
//!
//! Law: a daemon whose configuration names a library that its programs could not use, or that others could replace, does not
//! start. The loader would skip the library, or the program would be refused at its first call.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;
use object::elf::{DT_SONAME, ET_DYN};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Architecture, Object};

use crate::sockets::reach::DaemonScope;

/// Name of the library up to the version of shared memory.
const STEM: &str = "libtranche_preload.so.";
/// Write permission of the group and of all users.
const OTHERS_WRITE: u32 = 0o022;

/// Reason for which the library cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShimFault {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is no regular file")]
    NoFile,
    #[error("is owned by uid {0}, who could replace what runs in every slice: `chown root` it")]
    Owner(u32),
    #[error(
        "can be written by others than its owner (mode {0:o}), who could replace what runs in every slice: `chmod go-w` it"
    )]
    Writable(u32),
    #[error("is no shared library for programs of this machine: {0}")]
    NoLibrary(String),
    #[error("is another library, {0}")]
    OtherLibrary(String),
    #[error(
        "is of a release with version {found} of shared memory, and this daemon has {own}: its programs would get no GPU; name the \
         library of this release"
    )]
    OtherVersion { found: String, own: u64 },
}

/// Checks the library that the configuration names.
///
/// # Errors
/// See [`ShimFault`].
pub(crate) fn check(path: &Path, reach: DaemonScope) -> Result<(), ShimFault> {
    let file = fs::metadata(path)?;
    if !file.is_file() {
        return Err(ShimFault::NoFile);
    }
    let is_own = reach == DaemonScope::User && file.uid() == geteuid().as_raw();
    if file.uid() != 0 && !is_own {
        return Err(ShimFault::Owner(file.uid()));
    }
    if file.mode() & OTHERS_WRITE != 0 {
        return Err(ShimFault::Writable(file.mode() & 0o7777));
    }
    is_usable(soname(&fs::read(path)?)?.as_deref())
}

/// Own name of a shared library for this machine; `None` if it has none.
fn soname(bytes: &[u8]) -> Result<Option<String>, ShimFault> {
    let broken = |error: object::read::Error| ShimFault::NoLibrary(error.to_string());
    let file: ElfFile64<'_> = ElfFile64::parse(bytes).map_err(broken)?;
    if file.elf_header().e_type(file.endian()) != ET_DYN {
        return Err(ShimFault::NoLibrary("it is another kind of ELF file".into()));
    }
    if Some(file.architecture()) != own_architecture() {
        return Err(ShimFault::NoLibrary(format!("it is made for {:?}", file.architecture())));
    }
    let table = file.elf_dynamic_table().map_err(broken)?;
    let name = table.iter().find(|entry| entry.tag == DT_SONAME).map(|entry| table.string(entry));
    let name = name.transpose().map_err(broken)?;
    Ok(name.map(|name| String::from_utf8_lossy(name).into_owned()))
}

/// Checks the library's own name. Earlier releases gave it none, and are recognised at the first message.
fn is_usable(soname: Option<&str>) -> Result<(), ShimFault> {
    let Some(soname) = soname else { return Ok(()) };
    let version = soname.strip_prefix(STEM).ok_or_else(|| ShimFault::OtherLibrary(soname.into()))?;
    match version.parse::<u64>() {
        Ok(tranche_shm::ABI) => Ok(()),
        _ => Err(ShimFault::OtherVersion { found: version.into(), own: tranche_shm::ABI }),
    }
}

fn own_architecture() -> Option<Architecture> {
    match std::env::consts::ARCH {
        "x86_64" => Some(Architecture::X86_64),
        "aarch64" => Some(Architecture::Aarch64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn library_of_another_version_is_refused_by_its_own_name() {
        let named = |version: u64| format!("{STEM}{version}");
        assert!(is_usable(Some(&named(tranche_shm::ABI))).is_ok() && is_usable(None).is_ok());
        let refused = is_usable(Some(&named(tranche_shm::ABI + 1))).unwrap_err();
        assert!(matches!(&refused, ShimFault::OtherVersion { .. }), "{refused}");
        assert!(
            matches!(is_usable(Some("libc.so.6")), Err(ShimFault::OtherLibrary(name)) if name == "libc.so.6")
        );
        assert!(matches!(is_usable(Some("libtranche_preload.so.x")), Err(ShimFault::OtherVersion { .. })));
    }

    #[test]
    fn file_has_to_be_a_library_that_others_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path| check(path, DaemonScope::User);
        assert!(matches!(check(&folder.path().join("none")), Err(ShimFault::Unreadable(_))));
        assert!(matches!(check(folder.path()), Err(ShimFault::NoFile)));
        let path = folder.path().join("shim.so");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(matches!(check(&path), Err(ShimFault::NoLibrary(_))));
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(check(&path).is_ok(), "a position-independent program without a name is a library, too");
        for mode in [0o775, 0o757] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(check(&path), Err(ShimFault::Writable(found)) if found == mode));
        }
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        if geteuid().is_root() {
            chown(&path, Some(4242), None).unwrap();
            assert!(matches!(check(&path), Err(ShimFault::Owner(4242))));
        }
    }
}
