//! Who it listens to, who it is, and whom it becomes.

use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Uid, User, geteuid, getpid, initgroups, setgid, setgroups, setuid};
use tranche_domain::id::HostPid;
use tranche_domain::slice::ProcessId;

/// Only root, or the user whose it is, says what to run.
pub(crate) fn is_trusted(daemon: &UnixStream) -> io::Result<()> {
    let peer = getsockopt(daemon, PeerCredentials)?.uid();
    if peer == 0 || peer == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("user {peer} may not say what is run here")))
}

/// This process.
pub(crate) fn own() -> io::Result<ProcessId> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The program's name ends with the last parenthesis; the start time is the twentieth field after it.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let start_time = after.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok());
    let start_time = start_time.ok_or_else(|| io::Error::other("/proc/self/stat has no start time"))?;
    Ok(ProcessId { pid: HostPid::new(getpid().as_raw().unsigned_abs()), start_time })
}

/// From here on it may do what the user may, and nothing else.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    if geteuid().as_raw() == uid {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    match User::from_uid(uid)? {
        Some(user) => initgroups(&CString::new(user.name)?, gid)?,
        None => setgroups(&[gid])?,
    }
    setgid(gid)?;
    // The kernel lets nobody trace a program that was root's, so the user's own programs cannot make it lie about them.
    Ok(setuid(uid)?)
}
