//! What is wrong with a configuration.

use std::io;
use std::path::PathBuf;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ConfigError {
    #[error("cannot read the configuration {}: {cause}", .path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("the configuration {} is not valid: {cause}", .path.display())]
    Syntax { path: PathBuf, cause: Box<toml::de::Error> },
    #[error("the configuration {} has keys that are not known: {}", .path.display(), .keys.join("; "))]
    UnknownKeys { path: PathBuf, keys: Vec<String> },
    #[error("the configuration {} cannot be used: {problem}", .path.display())]
    Nonsense { path: PathBuf, problem: String },
}
