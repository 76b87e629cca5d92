//! Record of the container that a slice is bound to, in the slice's directory.

use std::path::{Path, PathBuf};

use crate::container::{self, Container};

/// Container that uses the slice, or did last.
#[derive(Debug)]
pub(super) struct ContainerBinding {
    pub(super) directory: PathBuf,
    pub(super) container: Option<Container>,
}

impl ContainerBinding {
    /// Reads the binding that the last daemon left in the slice's directory.
    pub(super) fn open(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), container: container::read(directory) }
    }
}
