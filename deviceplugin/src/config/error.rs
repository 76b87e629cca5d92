//! What is wrong with a configuration.

use std::path::PathBuf;

use tranche_config::FileError;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ConfigError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the configuration {} cannot be used: {problem}", .path.display())]
    Nonsense { path: PathBuf, problem: String },
}
