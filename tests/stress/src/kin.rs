//! Children and rebirths: what a process may do besides dying.

use std::io;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

/// A child that lives as it is told and dies with its parent. The caller must have one thread.
#[allow(unsafe_code)]
pub fn bear(life: impl FnOnce()) -> io::Result<Pid> {
    let parent = getpid();
    // SAFETY: this process has one thread, so the child has everything in a whole state.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let _ = set_pdeathsig(Signal::SIGKILL);
            if getppid() != parent {
                let _ = raise(Signal::SIGKILL);
            }
            let ended = catch_unwind(AssertUnwindSafe(life));
            std::process::exit(if ended.is_ok() { 0 } else { 101 })
        }
    }
}

/// Becomes a tenant that knows nothing of what this process was. Comes back only if that fails.
pub fn begin_anew(place: &Path, tenant: usize, seed: u64) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new(program);
    command.arg("tenant").arg(place).arg(tenant.to_string()).arg("--seed").arg(seed.to_string());
    command.exec()
}
