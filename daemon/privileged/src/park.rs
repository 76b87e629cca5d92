//! Start of the park worker: the process that calls the driver to checkpoint and restore tenants.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use caps::Capability;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::geteuid;

use crate::bounds::Bounds;
use crate::{powers, sys};

/// First argument that selects the park worker.
pub const PARK_WORKER: &str = "park-worker";

/// Capabilities of the worker, of those that the helper has.
const KEPT: [Capability; 2] = [
    // The driver acts on a process for those that may debug it.
    Capability::CAP_SYS_PTRACE,
    // Files of that process in /proc are its user's.
    Capability::CAP_DAC_READ_SEARCH,
];

/// Starts a program as the park worker. Returns the daemon's end of its socket, and the child, which has to be waited
/// for.
///
/// # Errors
/// If no process or socket can be created.
pub fn start_park_worker(program: &Path, bounds: &Bounds) -> io::Result<(OwnedFd, Child)> {
    let mut command = bounds.command(program, PARK_WORKER);
    if let Some(node) = &bounds.simulated_node {
        command.env("SIMGPU_NODE", node);
    }
    if let Some(path) = &bounds.library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    start(command, File::open("/dev/null")?)
}

/// Starts a process with an end of a new socket as its standard input; returns the other end.
pub(crate) fn start(mut command: Command, output: File) -> io::Result<(OwnedFd, Child)> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let child = command.stdin(Stdio::from(theirs)).stdout(Stdio::from(output)).spawn()?;
    Ok((ours, child))
}

/// Gives up what a new process of the daemon has from its parent: descriptors, name, and signals.
///
/// It ends when the parent closes the socket, not by a signal that both get from a terminal.
pub(crate) fn begin(name: &CStr) -> io::Result<()> {
    sys::close_inherited(3)?;
    let ignored: SigSet =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect();
    ignored.thread_set_mask()?;
    let _ = prctl::set_name(name);
    Ok(())
}

/// Reduces this process to what the park worker needs; returns its socket, the standard input.
///
/// # Errors
/// If the kernel refuses.
pub fn become_park_worker() -> io::Result<OwnedFd> {
    begin(c"tranched-park")?;
    // A process of another user than root would lose its own files in /proc.
    if geteuid().is_root() {
        prctl::set_dumpable(false)?;
    }
    powers::keep(&KEPT).map_err(io::Error::other)?;
    io::stdin().as_fd().try_clone_to_owned()
}
