//! The place, occupied: before a program gives up its powers, and before it says that it is ready.

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::sys::socket::{Backlog, listen};

use crate::Address;

/// A socket at which nobody is answered yet.
#[derive(Debug)]
pub struct Listener {
    pub(crate) address: Address,
    pub(crate) socket: Socket,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Why metrics cannot be served at a place.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics at {address}: {cause}; is the configuration's `metrics` right, or somebody else there?"
)]
pub struct ListenError {
    address: Address,
    cause: io::Error,
}

impl Listener {
    /// Occupies a place; nothing where that is off. A socket of a program that is gone is replaced.
    ///
    /// # Errors
    /// If somebody else is there, or it cannot be had.
    pub fn open(address: &Address) -> Result<Option<Self>, ListenError> {
        let socket = match address {
            Address::Off => return Ok(None),
            Address::Unix(path) => open_path(path).map(Socket::Unix),
            Address::Tcp(address) => TcpListener::bind(address).and_then(waits_for_nobody).map(Socket::Tcp),
        };
        let failed = |cause| ListenError { address: address.clone(), cause };
        let socket = socket.map_err(failed)?;
        if address.is_reachable_from_outside() {
            tracing::warn!(%address, "metrics are served to whoever reaches this address, as configured");
        }
        // A port that was left to the system is known only now.
        let address = match &socket {
            Socket::Tcp(bound) => Address::Tcp(bound.local_addr().map_err(failed)?),
            Socket::Unix(_) => address.clone(),
        };
        Ok(Some(Self { address, socket }))
    }

    /// Where it is.
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

/// Connections that may wait to be taken; the standard library asks the kernel for 128.
const BACKLOG: i32 = 4095;

fn waits_for_nobody(listener: TcpListener) -> io::Result<TcpListener> {
    // On a socket that listens, this changes the length of its queue.
    listen(&listener, Backlog::new(BACKLOG)?)?;
    listener.set_nonblocking(true).map(|()| listener)
}

/// For its owner and the owner's group; who opens it may let in more.
fn open_path(path: &Path) -> io::Result<UnixListener> {
    remove_abandoned(path)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn remove_abandoned(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            Err(io::Error::other("something is there that is no socket; remove it"))
        }
        Ok(_) if UnixStream::connect(path).is_ok() => Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) => std::fs::remove_file(path),
    }
}
