//! Directories that one daemon at a time may use.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::FilesError;

/// How long the lock of a daemon that has ended may be held still: by a process that it was starting when it was killed, until
/// that has become another program.
const MOMENT: Duration = Duration::from_secs(1);
/// Between two attempts meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// Held for as long as the daemon lives.
#[derive(Debug, Default)]
pub struct Locks {
    held: Vec<Flock<File>>,
}

impl Locks {
    /// Takes a directory for this daemon alone.
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
        // It is locked, signed or not: a full disk must not keep us from starting.
        if let Err(error) = sign(&mut lock) {
            tracing::warn!(path = %path.display(), %error, "cannot write down who holds the lock");
        }
        self.held.push(lock);
        Ok(())
    }
}

/// The lock, or whoever else holds it.
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

/// Leaves our pid in the lock file, for the message to the next one.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

/// Who signed it.
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

    /// The lock of a daemon that has ended, held by what it started.
    fn left_behind(directory: &Path) -> Flock<File> {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        fs::write(directory.join("lock"), ended.id().to_string()).unwrap();
        let file = File::options().read(true).write(true).open(directory.join("lock")).unwrap();
        Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap()
    }

    #[test]
    fn what_a_killed_daemon_was_starting_does_not_keep_the_next_one_out() {
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
    fn whoever_holds_it_for_longer_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let _held = left_behind(directory.path());
        let refused = Locks::default().take(directory.path(), "lock").unwrap_err();
        assert!(matches!(refused, FilesError::Taken { .. }), "{refused}");
    }
}
