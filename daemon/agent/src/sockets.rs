//! Where the daemon's files are, who may reach them, and that there is only one daemon at them.

mod locks;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tranche_domain::id::SliceName;
use tranche_privileged::{ATTACH, MOUNTS, SLICES};

use crate::ownership;

pub use locks::Locks;

/// Whom the daemon serves. It decides who may reach its sockets and how limits are kept from tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole node: it runs as root, tenants run as anybody.
    Node,
    /// The user that it runs as.
    User,
}

impl Reach {
    /// What this process can be.
    pub fn of_this_process() -> Self {
        if nix::unistd::geteuid().is_root() { Self::Node } else { Self::User }
    }

    const fn directory_mode(self) -> u32 {
        match self {
            Self::Node => 0o755, // tenants of all users pass through to their slice's socket
            Self::User => 0o700,
        }
    }

    /// Everybody on a node may look, and who may do more is decided call by call, by the kernel's word.
    pub(crate) const fn door_mode(self) -> u32 {
        match self {
            Self::Node => 0o666,
            Self::User => 0o600,
        }
    }

    /// A slice's socket asks the kernel who connects and lets only descendants of its roots in, so on a node
    /// everybody may knock.
    const fn attach_mode(self) -> u32 {
        match self {
            Self::Node => 0o666,
            Self::User => 0o600,
        }
    }
}

/// Why the daemon cannot have its files.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum FilesError {
    #[error("cannot {doing} {}: {cause}", .path.display())]
    Io { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error(
        "another tranched ({holder}) already uses {}: stop it first, or give this one directories of its own \
         (--runtime-dir, --state-dir, and `cdi_dir` in its configuration)",
        .path.display()
    )]
    Taken { path: PathBuf, holder: String },
    #[error(
        "the socket path {} is {length} bytes long and the kernel allows 107: choose a shorter --runtime-dir \
         or slice name",
        .path.display()
    )]
    TooLong { path: PathBuf, length: usize },
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Sockets and regions; gone after a reboot.
    pub runtime: PathBuf,
    /// What survives a reboot.
    pub state: PathBuf,
    /// Who may reach them.
    pub reach: Reach,
}

impl Layout {
    /// Makes the directories and takes them for this daemon alone.
    pub fn occupy(&self) -> Result<Locks, FilesError> {
        let locks = self.lock()?;
        self.close_off_mounts()?;
        self.furnish()?;
        Ok(locks)
    }

    /// Makes the directory that slices are in: the main process's.
    pub(crate) fn furnish(&self) -> Result<(), FilesError> {
        self.make_directory(&self.slices(), self.reach.directory_mode())
    }

    /// Makes the directory of the folders that containers mount: root's, where the daemon was started as root.
    pub(crate) fn close_off_mounts(&self) -> Result<(), FilesError> {
        let failed = |cause| FilesError::Io { doing: "close off", path: self.mounts(), cause };
        ownership::take_back_mounts(&self.mounts()).map_err(failed)
    }

    /// Makes the outermost directories and takes them for this daemon alone.
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

    /// The gRPC socket.
    pub fn door(&self) -> PathBuf {
        self.runtime.join("tranched.sock")
    }

    /// The gRPC socket of the daemon's own user.
    pub fn operators_door(&self) -> PathBuf {
        self.runtime.join(tranche_rpc::OPERATORS)
    }

    /// Where all slices are.
    pub fn slices(&self) -> PathBuf {
        self.runtime.join(SLICES)
    }

    /// Where a slice's regions and socket are.
    pub fn slice(&self, name: &SliceName) -> PathBuf {
        self.slices().join(name.as_str())
    }

    /// Where a slice's processes attach.
    pub fn attach(&self, name: &SliceName) -> PathBuf {
        self.slice(name).join(ATTACH)
    }

    /// Where the folders are that containers mount. Nobody else gets there: whoever reaches such a folder's socket has
    /// been given it.
    pub(crate) fn mounts(&self) -> PathBuf {
        self.runtime.join(MOUNTS)
    }

    /// The folder that a slice's container mounts. Each daemon makes the socket in it anew; the folder stays.
    pub(crate) fn mount(&self, name: &SliceName) -> PathBuf {
        self.mounts().join(name.as_str())
    }

    /// Listens at the gRPC socket.
    pub fn open_door(&self) -> Result<UnixListener, FilesError> {
        listen(&self.door(), self.reach.door_mode())
    }

    /// Listens at the operators' socket. A socket that any user may open has one queue for all of them, and a user who
    /// fills it keeps all others from connecting; only the daemon's own user can fill this one.
    pub(crate) fn open_operators_door(&self) -> Result<UnixListener, FilesError> {
        listen(&self.operators_door(), 0o600)
    }

    /// Listens at a slice's socket.
    pub(crate) fn open_attach(&self, name: &SliceName) -> Result<UnixListener, FilesError> {
        listen(&self.attach(name), self.reach.attach_mode())
    }

    /// Makes a slice's directory, or finds it there.
    pub(crate) fn make_slice(&self, name: &SliceName) -> Result<PathBuf, FilesError> {
        let path = self.slice(name);
        self.make_directory(&path, self.reach.directory_mode())?;
        Ok(path)
    }

    fn make_directory(&self, path: &Path, mode: u32) -> Result<(), FilesError> {
        let failed = |cause| FilesError::Io { doing: "make directory", path: path.to_owned(), cause };
        let existed = path.is_dir();
        fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
        // Directories that somebody else made, such as systemd or a test, keep their owner's modes.
        if !existed {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(())
    }
}

/// Makes a directory that others use as well, such as the one for CDI documents, if it is not there, and takes what is
/// ours in it for this daemon alone.
pub(crate) fn share(directory: &Path) -> Result<Locks, FilesError> {
    let failed = |cause| FilesError::Io { doing: "make directory", path: directory.to_owned(), cause };
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
    let mut locks = Locks::default();
    locks.take(directory, "tranche.lock")?;
    Ok(locks)
}

fn listen(path: &Path, mode: u32) -> Result<UnixListener, FilesError> {
    /// `sun_path` has 108 bytes with its NUL.
    const LONGEST: usize = 107;
    let length = path.as_os_str().len();
    if length > LONGEST {
        return Err(FilesError::TooLong { path: path.to_owned(), length });
    }
    let failed = |cause| FilesError::Io { doing: "listen at", path: path.to_owned(), cause };
    tranche_privileged::listen(path, mode).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn layout(directory: &Path) -> Layout {
        Layout { runtime: directory.join("run"), state: directory.join("state"), reach: Reach::User }
    }

    #[test]
    fn a_second_daemon_is_told_who_is_first() {
        let directory = tempfile::tempdir().unwrap();
        let _locks = layout(directory.path()).occupy().unwrap();
        let refused = layout(directory.path()).occupy().unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
    }

    #[test]
    fn two_daemons_do_not_share_a_state_directory_either() {
        let directory = tempfile::tempdir().unwrap();
        let _locks = layout(directory.path()).occupy().unwrap();
        let other = Layout { runtime: directory.path().join("other"), ..layout(directory.path()) };
        assert!(matches!(other.occupy(), Err(FilesError::Taken { .. })));
    }

    #[test]
    fn a_stale_socket_is_replaced_by_a_private_one() {
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
    fn a_socket_path_that_the_kernel_cannot_hold_is_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let long = Layout { runtime: directory.path().join("x".repeat(100)), ..layout(directory.path()) };
        let refused = long.open_door().unwrap_err().to_string();
        assert!(refused.contains("shorter --runtime-dir"), "{refused}");
    }
}
