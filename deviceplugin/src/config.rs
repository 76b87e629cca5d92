//! Configuration file: profiles, division of GPUs, and sockets.

use std::path::Path;

mod check;
mod document;
mod error;
mod settings;

use document::Document;
pub use error::ConfigError;
pub use settings::{Config, IgnoredXids};

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If the file is unreadable or invalid, has an unknown key, or describes an impossible division.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::understand(tranche_config::read(path, &document::keys())?, path)
    }

    /// Parses the content of a file; `path` is for messages.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::understand(tranche_config::parse(text, path, &document::keys())?, path)
    }

    fn understand(document: Document, path: &Path) -> Result<Self, ConfigError> {
        let checked = document.understand().and_then(|config| check::check(&config).map(|()| config));
        checked.map_err(|problem| ConfigError::Nonsense { path: path.to_owned(), problem })
    }
}

#[cfg(test)]
mod tests;
