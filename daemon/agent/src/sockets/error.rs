//! Failures to create, lock or listen at the daemon's files.

use std::io;
use std::path::PathBuf;

/// Failure to create or lock the daemon's files.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum FilesError {
    #[error("cannot {doing} {}: {cause}", .path.display())]
    Io { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error(
        "another tranched ({holder}) already uses {}: stop it first, or give this one directories of its own \
         (--runtime-dir, --state-dir, and `cdi_dir` in its configuration)",
        .path.display()
    )]
    Taken { path: PathBuf, holder: String },
    #[error(
        "the socket path {} is {length} bytes long and the kernel allows 107: choose a shorter --runtime-dir \
         or slice name",
        .path.display()
    )]
    TooLong { path: PathBuf, length: usize },
}
