//! The preloaded library's file, as the dynamic loader would treat it.

use std::fs;
use std::path::Path;

use object::elf::{DT_NEEDED, ET_DYN};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Architecture, Object};

/// State of the library's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// No file that can be read, with the reason.
    Unreadable(String),
    /// A file that no 64-bit program of this machine can load, with the reason.
    Unloadable(String),
    /// A shared object for this machine, with its dependencies.
    Loadable { needed: Vec<String> },
}

impl Library {
    pub(super) fn read(path: &Path) -> Self {
        match fs::read(path) {
            Err(cause) => Self::Unreadable(cause.to_string()),
            Ok(bytes) => Self::parse(&bytes).unwrap_or_else(|error| Self::Unloadable(error.to_string())),
        }
    }

    fn parse(bytes: &[u8]) -> object::read::Result<Self> {
        let file: ElfFile64<'_> = ElfFile64::parse(bytes)?;
        if file.elf_header().e_type(file.endian()) != ET_DYN {
            return Ok(Self::Unloadable("it is an ELF file, but no shared object".into()));
        }
        if Some(file.architecture()) != own_architecture() {
            return Ok(Self::Unloadable(format!("it is made for {:?}", file.architecture())));
        }
        let table = file.elf_dynamic_table()?;
        let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED).map(|entry| table.string(entry));
        let needed = needed.map(|name| name.map(|name| String::from_utf8_lossy(name).into_owned()));
        Ok(Self::Loadable { needed: needed.collect::<Result<_, _>>()? })
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

    #[test]
    fn shared_object_lists_its_dependencies() {
        // The test executable is position-independent, which is a shared object to the loader.
        let Library::Loadable { needed } = Library::read(&std::env::current_exe().unwrap()) else {
            panic!("this program runs, so it can be loaded");
        };
        assert!(needed.iter().any(|name| name == "libc.so.6"), "{needed:?}");
    }

    #[test]
    fn other_files_are_not_libraries() {
        assert!(matches!(Library::read(Path::new("/nonexistent")), Library::Unreadable(_)));
        assert!(matches!(Library::parse(b"#!/bin/sh\n"), Err(_) | Ok(Library::Unloadable(_))));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Library::read(file.path()), Library::Unloadable(_)));
    }
}
