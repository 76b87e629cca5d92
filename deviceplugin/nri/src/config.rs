//! Configuration file: sockets and folders.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tranche_config::{FileError, Keys};
use tranche_exposition::Address;

/// Settings with their defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginConfig {
    /// The container runtime's socket for plugins. Default: `/var/run/nri/nri.sock`.
    pub(crate) runtime_socket: PathBuf,
    /// Two digits by which the runtime orders its plugins. Default: `10`.
    pub(crate) index: String,
    /// The daemon's socket. Default: `/run/tranche/tranched.sock`.
    pub(crate) tranched_socket: PathBuf,
    /// Folder of the slices' CDI documents. Default: `/var/run/cdi`.
    pub(crate) cdi_dir: PathBuf,
    /// Folder under which the node's `/dev` is. Default: `/`.
    pub(crate) node_root: PathBuf,
    /// Log filter in `tracing` syntax. Default: `info`.
    pub(crate) log: String,
    /// Address of metrics, liveness and readiness. Default: `off`.
    pub(crate) metrics: Address,
}

/// Content of the file.
#[derive(Deserialize)]
struct NriDocument {
    runtime_socket: Option<PathBuf>,
    index: Option<String>,
    tranched_socket: Option<PathBuf>,
    cdi_dir: Option<PathBuf>,
    node_root: Option<PathBuf>,
    log: Option<String>,
    metrics: Option<Address>,
}

/// Reason for which there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadPluginConfig {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: index {given:?} is not two digits, such as \"10\"", .path.display())]
    Index { path: PathBuf, given: String },
}

impl PluginConfig {
    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Self, BadPluginConfig> {
        Self::complete(tranche_config::read(path, &keys())?, path)
    }

    fn complete(document: NriDocument, path: &Path) -> Result<Self, BadPluginConfig> {
        let index = document.index.unwrap_or_else(|| "10".into());
        if index.len() != 2 || !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadPluginConfig::Index { path: path.to_owned(), given: index });
        }
        let or = |given: Option<PathBuf>, default: &str| given.unwrap_or_else(|| default.into());
        Ok(Self {
            runtime_socket: or(document.runtime_socket, tranche_nri::api::SOCKET),
            index,
            tranched_socket: or(document.tranched_socket, "/run/tranche/tranched.sock"),
            cdi_dir: or(document.cdi_dir, "/var/run/cdi"),
            node_root: or(document.node_root, "/"),
            log: document.log.unwrap_or_else(|| "info".into()),
            metrics: document.metrics.unwrap_or(Address::Off),
        })
    }
}

fn keys() -> Keys {
    Keys::of::<NriDocument>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PluginConfig, BadPluginConfig> {
        let path = Path::new("t.toml");
        PluginConfig::complete(tranche_config::parse(text, path, &keys())?, path)
    }

    #[test]
    fn empty_file_is_a_configuration() {
        let config = parse("").unwrap();
        assert_eq!((config.index.as_str(), config.node_root.as_path()), ("10", Path::new("/")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("indx = '10'", "indx"),
            ("index = '1'", "two digits"),
            ("index = 'ab'", "two digits"),
            ("metrics = 'x'", "metrics"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
