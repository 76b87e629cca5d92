//! Processor time of other processes.

use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::Result;

/// Processor time that a process has used so far, in all its threads.
///
/// # Errors
/// If it has ended.
pub fn used(pid: u32) -> Result<Duration> {
    let clock =
        i32::try_from(pid).map_or(Err(nix::Error::ESRCH), |pid| clock_getcpuclockid(Pid::from_raw(pid)));
    let used = clock.and_then(nix::time::ClockId::now);
    used.map(Duration::from).map_err(|error| format!("processor time of process {pid}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_time_grows_with_work_and_ends_with_the_process() {
        let own = std::process::id();
        let before = used(own).unwrap();
        while used(own).unwrap() < before + Duration::from_millis(5) {}
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(used(child.id()).is_err());
    }
}
