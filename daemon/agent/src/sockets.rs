//! Paths of the daemon's files, their permissions, and the locks that keep a second daemon out.

mod error;
mod locks;
pub(crate) mod reach;

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tranche_domain::id::SliceName;
use tranche_privileged::{ATTACH, MOUNTS, SLICES};

use crate::ownership;

pub use error::FilesError;
pub use locks::Locks;
pub use reach::DaemonScope;

/// Paths of the daemon's files.
#[derive(Clone, Debug)]
pub struct DaemonPaths {
    /// Sockets and regions; lost at a reboot.
    pub runtime: PathBuf,
    /// State that survives a reboot.
    pub state: PathBuf,
    /// Users that may reach them.
    pub reach: DaemonScope,
}

impl DaemonPaths {
    /// Creates the directories and locks them for this daemon.
    pub fn occupy(&self) -> Result<Locks, FilesError> {
        let locks = self.lock()?;
        self.close_off_mounts()?;
        self.furnish()?;
        Ok(locks)
    }

    /// Creates the directory of slices, as the main process's user.
    pub(crate) fn furnish(&self) -> Result<(), FilesError> {
        self.make_directory(&self.slices(), self.reach.directory_mode())
    }

    /// Creates the directory of folders for containers; it is root's if the daemon was started as root.
    pub(crate) fn close_off_mounts(&self) -> Result<(), FilesError> {
        let failed = |cause| FilesError::Io { doing: "close off", path: self.mounts(), cause };
        ownership::take_back_mounts(&self.mounts()).map_err(failed)
    }

    /// Creates the outermost directories and locks them for this daemon.
    pub(crate) fn lock(&self) -> Result<Locks, FilesError> {
        self.make_directory(&self.runtime, self.reach.directory_mode())?;
        self.make_directory(&self.state, 0o700)?;
        let mut locks = Locks::default();
        locks.take(&self.runtime, "lock")?;
        if self.state != self.runtime {
            locks.take(&self.state, "lock")?;
        }
        Ok(locks)
    }

    /// Path of the gRPC socket.
    pub fn door(&self) -> PathBuf {
        self.runtime.join("tranched.sock")
    }

    /// Path of the gRPC socket for the daemon's own user.
    pub fn operators_door(&self) -> PathBuf {
        self.runtime.join(tranche_rpc::OPERATORS)
    }

    /// Directory of all slices.
    pub fn slices(&self) -> PathBuf {
        self.runtime.join(SLICES)
    }

    /// Directory of a slice's regions and socket.
    pub fn slice(&self, name: &SliceName) -> PathBuf {
        self.slices().join(name.as_str())
    }

    /// Socket at which a slice's processes attach.
    pub fn attach(&self, name: &SliceName) -> PathBuf {
        self.slice(name).join(ATTACH)
    }

    /// Directory of the folders that containers mount. Other users cannot enter it: access to a folder's socket has
    /// to be given by a mount.
    pub(crate) fn mounts(&self) -> PathBuf {
        self.runtime.join(MOUNTS)
    }

    /// Folder that a slice's container mounts. Each daemon creates the socket in it anew; the folder stays.
    pub(crate) fn mount(&self, name: &SliceName) -> PathBuf {
        self.mounts().join(name.as_str())
    }

    /// Listens at the gRPC socket.
    pub fn open_door(&self) -> Result<UnixListener, FilesError> {
        listen(&self.door(), self.reach.door_mode())
    }

    /// Listens at the operators' socket. A socket that every user may open has one queue for all, and a user who
    /// fills it keeps the others from connecting; only the daemon's own user can fill this one.
    pub(crate) fn open_operators_door(&self) -> Result<UnixListener, FilesError> {
        listen(&self.operators_door(), 0o600)
    }

    /// Listens at a slice's socket.
    pub(crate) fn open_attach(&self, name: &SliceName) -> Result<UnixListener, FilesError> {
        listen(&self.attach(name), self.reach.attach_mode())
    }

    /// Creates a slice's directory unless it exists.
    pub(crate) fn make_slice(&self, name: &SliceName) -> Result<PathBuf, FilesError> {
        let path = self.slice(name);
        self.make_directory(&path, self.reach.directory_mode())?;
        Ok(path)
    }

    fn make_directory(&self, path: &Path, mode: u32) -> Result<(), FilesError> {
        let failed = |cause| FilesError::Io { doing: "make directory", path: path.to_owned(), cause };
        let existed = path.is_dir();
        fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
        // Existing directories, made by systemd or a test, keep their modes.
        if !existed {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(())
    }
}

/// Creates a directory that other programs use too, if it is missing; locks this daemon's part of it.
/// An example is the directory for CDI documents.
pub(crate) fn share(directory: &Path) -> Result<Locks, FilesError> {
    let failed = |cause| FilesError::Io { doing: "make directory", path: directory.to_owned(), cause };
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
    let mut locks = Locks::default();
    locks.take(directory, "tranche.lock")?;
    Ok(locks)
}

fn listen(path: &Path, mode: u32) -> Result<UnixListener, FilesError> {
    /// `sun_path` has 108 bytes, including its NUL.
    const LONGEST: usize = 107;
    let length = path.as_os_str().len();
    if length > LONGEST {
        return Err(FilesError::TooLong { path: path.to_owned(), length });
    }
    let failed = |cause| FilesError::Io { doing: "listen at", path: path.to_owned(), cause };
    tranche_privileged::listen(path, mode).map_err(failed)
}

/// Path of the job runner, which is installed beside the preloaded library.
pub(crate) fn job_runner_beside(shim: &Path) -> PathBuf {
    shim.with_file_name("tranche-shepherd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn layout(directory: &Path) -> DaemonPaths {
        DaemonPaths {
            runtime: directory.join("run"),
            state: directory.join("state"),
            reach: DaemonScope::User,
        }
    }

    #[test]
    fn second_daemon_is_refused_with_the_holder_pid() {
        let directory = tempfile::tempdir().unwrap();
        let _locks = layout(directory.path()).occupy().unwrap();
        let refused = layout(directory.path()).occupy().unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
    }

    #[test]
    fn state_directory_is_locked_as_well() {
        let directory = tempfile::tempdir().unwrap();
        let _locks = layout(directory.path()).occupy().unwrap();
        let other = DaemonPaths { runtime: directory.path().join("other"), ..layout(directory.path()) };
        assert!(matches!(other.occupy(), Err(FilesError::Taken { .. })));
    }

    #[test]
    fn stale_socket_is_replaced_by_a_private_one() {
        let directory = tempfile::tempdir().unwrap();
        let layout = layout(directory.path());
        let _locks = layout.occupy().unwrap();
        drop(layout.open_door().unwrap());
        assert!(UnixStream::connect(layout.door()).is_err(), "stale");
        let _listener = layout.open_door().unwrap();
        assert!(UnixStream::connect(layout.door()).is_ok());
        let mode = fs::metadata(layout.door()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::metadata(&layout.runtime).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn overlong_socket_path_is_refused_with_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let long =
            DaemonPaths { runtime: directory.path().join("x".repeat(100)), ..layout(directory.path()) };
        let refused = long.open_door().unwrap_err().to_string();
        assert!(refused.contains("shorter --runtime-dir"), "{refused}");
    }
}
