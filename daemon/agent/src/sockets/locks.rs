//! Exclusive locks on directories of the daemon.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::FilesError;

/// Longest time for which the lock of a daemon that has ended may still be held.
/// The holder is a child that it had forked and that has not yet executed its program.
const MOMENT: Duration = Duration::from_secs(1);
/// Pause between attempts in that time.
const PAUSE: Duration = Duration::from_millis(5);

/// Locks held for the daemon's life.
#[derive(Debug, Default)]
pub struct Locks {
    held: Vec<Flock<File>>,
}

impl Locks {
    /// Locks a directory for this daemon.
    pub(super) fn take(&mut self, directory: &Path, name: &str) -> Result<(), FilesError> {
        let path = directory.join(name);
        let failed = |cause| FilesError::Io { doing: "lock", path: path.clone(), cause };
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(failed)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        let mut lock = lock(&file).map_err(failed)?.map_err(|holder| {
            let holder = holder.map_or("of unknown pid".into(), |pid| format!("pid {pid}"));
            FilesError::Taken { path: directory.to_owned(), holder }
        })?;
        // The lock is held even if the pid cannot be written: a full disk must not keep the daemon from starting.
        if let Err(error) = sign(&mut lock) {
            tracing::warn!(path = %path.display(), %error, "cannot write down who holds the lock");
        }
        self.held.push(lock);
        Ok(())
    }
}

/// Takes the lock, or returns the pid of its holder if that is known.
fn lock(file: &File) -> io::Result<Result<Flock<File>, Option<u32>>> {
    let began = Instant::now();
    loop {
        match Flock::lock(file.try_clone()?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Ok(lock)),
            Err((held, Errno::EWOULDBLOCK)) => {
                let holder = holder(held);
                if holder.is_none_or(is_alive) || began.elapsed() > MOMENT {
                    return Ok(Err(holder));
                }
            }
            Err((_, errno)) => return Err(errno.into()),
        }
        sleep(PAUSE);
    }
}

/// Writes this process's pid to the lock file, for the error message of a second daemon.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

/// Pid in the lock file.
fn holder(mut file: File) -> Option<u32> {
    let mut pid = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut pid)).ok()?;
    pid.trim().parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::thread::spawn;

    use super::*;

    /// Lock of a daemon that has ended, held by a child.
    fn left_behind(directory: &Path) -> Flock<File> {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        fs::write(directory.join("lock"), ended.id().to_string()).unwrap();
        let file = File::options().read(true).write(true).open(directory.join("lock")).unwrap();
        Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap()
    }

    #[test]
    fn lock_of_a_dead_daemons_child_is_awaited() {
        let directory = tempfile::tempdir().unwrap();
        let held = left_behind(directory.path());
        let becomes_another_program = spawn(move || {
            sleep(Duration::from_millis(50));
            drop(held);
        });
        Locks::default().take(directory.path(), "lock").unwrap();
        becomes_another_program.join().unwrap();
        let signed = fs::read_to_string(directory.path().join("lock")).unwrap();
        assert_eq!(signed, std::process::id().to_string());
    }

    #[test]
    fn lock_held_longer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _held = left_behind(directory.path());
        let refused = Locks::default().take(directory.path(), "lock").unwrap_err();
        assert!(matches!(refused, FilesError::Taken { .. }), "{refused}");
    }
}
