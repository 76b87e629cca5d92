//! Which container has the slice.
//!
//! The socket in the folder that a container mounts is what lets it in, and the first that comes has the slice from
//! then on: another one that was given the same folder is turned away while anybody is in there. The bond is written
//! down before it takes effect, for the next daemon.

use std::path::{Path, PathBuf};

use super::{Books, Tenancy};
use crate::containers::identity::{self, Container};

/// The container that has the slice, or had it last.
#[derive(Debug)]
pub(super) struct Bond {
    directory: PathBuf,
    container: Option<Container>,
}

impl Bond {
    /// As the last daemon left it in the slice's directory.
    pub(super) fn open(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), container: identity::read(directory) }
    }
}

/// Somebody else has the slice, or that it is another's now cannot be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anothers;

impl Tenancy {
    /// The container that has the slice, or had it last.
    pub(crate) fn container(&self) -> Option<Container> {
        self.books().bond.container.clone()
    }

    /// Whether a container has it now.
    pub(crate) fn is_in_container(&self) -> bool {
        let books = self.books();
        books.bond.container.is_some() && books.is_lived_in()
    }
}

impl Books {
    /// Gives the slice to a container, unless it is another's who is still there. Those who have ended do not count,
    /// though their memory may not be free yet: it stays charged.
    pub(super) fn belong_to(&mut self, container: Container) -> Result<(), Anothers> {
        if self.bond.container.as_ref() == Some(&container) {
            return Ok(());
        }
        if self.bond.container.is_some() && self.is_lived_in() {
            return Err(Anothers);
        }
        if let Err(error) = identity::write(&self.bond.directory, &container) {
            tracing::error!(%container, %error, "cannot write down whose container a slice is; it gets none");
            return Err(Anothers);
        }
        tracing::info!(%container, "has the slice from now on");
        self.bond.container = Some(container);
        Ok(())
    }

    /// Whether anybody is there who has not ended.
    fn is_lived_in(&self) -> bool {
        let here = self.life.occupants().map(|here| here.roots.iter().chain(here.members.values()));
        let handles = here.into_iter().flatten().filter_map(|id| self.handles.get(id));
        handles.into_iter().any(|process| process.is_alive())
    }
}
