//! Errors of the configuration.

use std::path::PathBuf;

use tranche_config::FileError;

/// Reason for rejecting a configuration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum ConfigError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the configuration {} cannot be used: {problem}", .path.display())]
    Nonsense { path: PathBuf, problem: String },
}
