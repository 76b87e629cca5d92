//! Identity of this process, and the change to the job's user.

use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixStream;

use caps::CapSet;
use nix::sys::prctl;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Uid, User, geteuid, getgrouplist, getpid, initgroups, setgid, setuid};
use tranche_domain::id::HostPid;
use tranche_domain::slice::ProcessId;

/// Verifies that the daemon runs as this process's user.
pub(crate) fn is_own(daemon: &UnixStream) -> io::Result<()> {
    let peer = getsockopt(daemon, PeerCredentials)?.uid();
    if peer == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("user {peer} may not say what is run here")))
}

/// Pid and start time of this process.
pub(crate) fn own() -> io::Result<ProcessId> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let start_time =
        start_time_in(&stat).ok_or_else(|| io::Error::other("/proc/self/stat has no start time"))?;
    Ok(ProcessId { pid: HostPid::new(getpid().as_raw().unsigned_abs()), start_time })
}

/// Start time in the text of a process's /proc/PID/stat.
pub(crate) fn start_time_in(stat: &str) -> Option<u64> {
    // The command name ends at the last parenthesis; the start time is the twentieth field after it.
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Changes to the account, with the groups that it has now, irrevocably. Jobs of root have root's files and
/// no capabilities.
pub(crate) fn become_account(name: &str, uid: u32, gid: u32) -> io::Result<()> {
    let name = CString::new(name)?;
    let primary = User::from_uid(Uid::from_raw(uid))?.ok_or(io::ErrorKind::NotFound)?.gid;
    let groups = getgrouplist(&name, primary)?;
    // The submitter's group, unless the account is no longer in it.
    let gid = Some(Gid::from_raw(gid)).filter(|gid| groups.contains(gid)).unwrap_or(primary);
    initgroups(&name, gid)?;
    setgid(gid)?;
    if uid == 0 {
        let failed = |error: caps::errors::CapsError| io::Error::other(error.to_string());
        for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
            caps::clear(None, set).map_err(failed)?;
        }
        // With no_new_privs, programs executed as root gain no capabilities either.
        return Ok(prctl::set_no_new_privs()?);
    }
    // After setuid the process is not dumpable, so the user's own programs cannot ptrace it and forge its
    // records.
    Ok(setuid(Uid::from_raw(uid))?)
}
