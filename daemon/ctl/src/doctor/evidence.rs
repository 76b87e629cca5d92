//! Observations of the machine and the daemon. Nothing here judges them.

use std::env;
use std::path::{Path, PathBuf};

use tranche_domain::daemon::DaemonView;
use tranche_domain::view::NodeView;

use super::exports::{self, Exports};
use super::library::Library;
use super::machine::Machine;
use crate::client::Daemon;

/// Observations that the checks interpret.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) socket: PathBuf,
    /// View of the node, or the reason for its absence.
    pub(super) node: Result<NodeView, String>,
    /// View of the daemon itself; `None` from older daemons.
    pub(super) daemon: Option<DaemonView>,
    pub(super) shim: PathBuf,
    pub(super) library: Library,
    /// The driver's installed libraries.
    pub(super) driver: Vec<Exports>,
    pub(super) machine: Machine,
}

impl Evidence {
    /// Observes this machine and the daemon at `socket`.
    pub(super) fn gather(socket: &Path) -> Self {
        let mut daemon = Daemon::connect(socket);
        let node = daemon.as_mut().map_err(|failure| failure.to_string());
        let node = node.and_then(|daemon| daemon.snapshot().map_err(|failure| failure.to_string()));
        let shim = shim_path();
        Self {
            socket: socket.to_owned(),
            node,
            daemon: daemon.ok().and_then(|mut daemon| daemon.show().ok()),
            library: Library::read(&shim),
            shim,
            driver: exports::installed(),
            machine: Machine::read(Path::new("/"), env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from)),
        }
    }
}

/// Folder of the shim, beside the programs: `<exe>/../lib/tranche`.
fn shim_path() -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    let prefix = own.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    prefix.join("lib/tranche/libtranche_preload.so")
}
