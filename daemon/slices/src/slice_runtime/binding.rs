//! Record of the containers that a slice is bound to, in the slice's directory.

use std::path::{Path, PathBuf};

use crate::container::{self, Container};

/// Containers that use the slice, or did last.
#[derive(Debug)]
pub(super) struct ContainerBinding {
    pub(super) directory: PathBuf,
    /// True if several may use it at a time.
    pub(super) several: bool,
    pub(super) containers: Vec<Container>,
}

impl ContainerBinding {
    /// Reads the binding that the last daemon left in the slice's directory.
    pub(super) fn open(directory: &Path, several: bool) -> Self {
        Self { directory: directory.to_owned(), several, containers: container::read(directory) }
    }
}
