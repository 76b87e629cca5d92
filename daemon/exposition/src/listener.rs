//! Listening socket, opened before the program drops privileges and reports readiness.

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::sys::socket::{Backlog, listen};

use crate::Address;

/// A listening socket that is not served yet.
#[derive(Debug)]
pub struct BoundListener {
    pub(crate) address: Address,
    pub(crate) socket: Socket,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Failure to listen at an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics at {address}: {cause}; is the configuration's `metrics` right, or another program there?"
)]
pub struct ListenError {
    address: Address,
    cause: io::Error,
}

impl BoundListener {
    /// Listens at an address; `None` if it is off. The socket of a program that has ended is replaced.
    ///
    /// # Errors
    /// If the address is in use or unavailable.
    pub fn open(address: &Address) -> Result<Option<Self>, ListenError> {
        let socket = match address {
            Address::Off => return Ok(None),
            Address::Unix(path) => open_path(path).map(Socket::Unix),
            Address::Tcp(address) => TcpListener::bind(address).and_then(waits_for_nobody).map(Socket::Tcp),
        };
        let failed = |cause| ListenError { address: address.clone(), cause };
        let socket = socket.map_err(failed)?;
        if address.is_reachable_from_outside() {
            tracing::warn!(%address, "metrics are served to every program that reaches this address, as configured");
        }
        // A port chosen by the system is known only now.
        let address = match &socket {
            Socket::Tcp(bound) => Address::Tcp(bound.local_addr().map_err(failed)?),
            Socket::Unix(_) => address.clone(),
        };
        Ok(Some(Self { address, socket }))
    }

    /// Address that it listens at, with the port that the kernel chose for 0.
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

/// Length of the accept queue; the standard library uses 128.
const BACKLOG: i32 = 4095;

fn waits_for_nobody(listener: TcpListener) -> io::Result<TcpListener> {
    // listen(2) on a listening socket changes the length of its queue.
    listen(&listener, Backlog::new(BACKLOG)?)?;
    listener.set_nonblocking(true).map(|()| listener)
}

/// Opens a Unix socket accessible to owner and group; the caller may widen that.
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
