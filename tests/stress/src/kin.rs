//! Children and rebirths: steps of a process that create another one or replace its program.

use std::io;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

/// Forks a child that runs `life` and dies with its parent. The caller must have one thread.
#[allow(unsafe_code)]
pub fn bear(life: impl FnOnce()) -> io::Result<Pid> {
    let parent = getpid();
    // SAFETY: the caller guarantees that this process has one thread, so that no lock is held in the child.
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

/// Executes a tenant without any state of this process. Returns only if that fails.
pub fn begin_anew(place: &Path, tenant: usize, seed: u64) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new(program);
    command.arg("tenant").arg(place).arg(tenant.to_string()).arg("--seed").arg(seed.to_string());
    command.exec()
}
