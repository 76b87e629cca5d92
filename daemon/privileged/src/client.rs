//! Client side of the protocol, in the main process.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::geteuid;

use crate::bounds::{ARGUMENT, Bounds};
use crate::containers::Description;
use crate::park::start;
use crate::protocol::{ProcessFile, REPLY, Refusal, Reply, Request, Step};
use crate::sys;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum HelperError {
    #[error("the privileged helper refuses: {0}")]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Failed(io::Error),
    #[error("the privileged helper does not answer: {0}")]
    Gone(io::Error),
}

impl From<HelperError> for io::Error {
    fn from(error: HelperError) -> Self {
        match error {
            HelperError::Failed(error) => error,
            HelperError::Refused(_) => Self::new(io::ErrorKind::PermissionDenied, error),
            HelperError::Gone(_) => Self::other(error),
        }
    }
}

/// The helper process and its socket.
#[derive(Debug)]
pub struct Helper {
    pub(crate) socket: OwnedFd,
    /// Sequence number of the last request; locked from a request to its reply.
    turn: Mutex<u32>,
    pid: u32,
}

impl Helper {
    /// Starts a program as the helper; the returned child has to be waited for.
    ///
    /// # Errors
    /// If no process or socket can be created.
    pub fn start(
        program: &Path,
        bounds: &Bounds,
        description: Option<&Description>,
    ) -> io::Result<(Self, Child)> {
        let description = description.map_or_else(|| File::open("/dev/null"), Description::file)?;
        let (socket, child) = start(bounds.command(program, ARGUMENT), description)?;
        Ok((Self::over(socket, child.id()), child))
    }

    /// Ends helpers of earlier daemons with the same runtime directory. A stopped helper does not notice the
    /// end of its daemon. The caller holds the lock of that directory, so no live daemon has such a helper.
    pub fn end_orphans(bounds: &Bounds) {
        let this_user = geteuid().as_raw();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let folder = Path::new("/proc").join(u32::to_string(&pid));
            let is_one = || {
                let is_ours = fs::metadata(&folder).is_ok_and(|folder| folder.uid() == this_user);
                is_ours && fs::read(folder.join("cmdline")).is_ok_and(|line| bounds.started(&line))
            };
            if !is_one() {
                continue;
            }
            // Inspected again after opening the pidfd, since the pid may have been reused before.
            let Ok(orphan) = sys::pidfd_open(pid) else { continue };
            if is_one() {
                let _ = sys::send_signal(orphan.as_fd(), Signal::SIGKILL); // or it has just ended
            }
        }
    }

    pub(crate) fn over(socket: OwnedFd, pid: u32) -> Self {
        Self { socket, turn: Mutex::default(), pid }
    }

    /// Pid of the helper.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Closes the socket, so that the helper exits; later requests fail.
    pub fn dismiss(&self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both); // it has ended already
    }

    /// Descriptor of a region through a read-only mount.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn read_only_mount(&self, region: BorrowedFd<'_>) -> Result<OwnedFd, HelperError> {
        self.descriptor(Request::ReadOnlyMount, Some(region))
    }

    /// Sends SIGTERM or SIGKILL to the process of a pidfd.
    /// The helper requires evidence that the process belongs to a slice.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn signal(&self, pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), HelperError> {
        self.ask(Request::Signal(signal), Some(pidfd)).map(drop)
    }

    /// A file of `/proc/PID` that `hidepid` hides from the main process.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn process_file(&self, pid: u32, file: ProcessFile) -> Result<File, HelperError> {
        self.descriptor(Request::ProcessFile(pid, file), None).map(File::from)
    }

    /// Loads the device rule, so that processes can be admitted.
    ///
    /// # Errors
    /// See [`HelperError`]; the helper's own log names the step that failed.
    pub fn prepare_device_rule(&self) -> Result<(), HelperError> {
        self.ask(Request::DeviceRule(Step::Prepared), None).map(drop)
    }

    /// Enforces the device rule: only admitted processes can open GPUs.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn enforce_device_rule(&self) -> Result<(), HelperError> {
        self.ask(Request::DeviceRule(Step::Enforced), None).map(drop)
    }

    /// Permits a process of a slice and its later children to open GPUs.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn admit(&self, pidfd: BorrowedFd<'_>, generation: u64) -> Result<(), HelperError> {
        self.ask(Request::Admit(generation), Some(pidfd)).map(drop)
    }

    /// Revokes the permission of a slice's processes to open GPUs.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn dismiss_slice(&self, generation: u64) -> Result<(), HelperError> {
        self.ask(Request::Dismiss(generation), None).map(drop)
    }

    /// Descriptor of the daemon's memory with this inode number, which the process of the pidfd maps.
    /// See [`mapped_memory`](crate::mapped_memory).
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn memory(&self, pidfd: BorrowedFd<'_>, inode: u64) -> Result<OwnedFd, HelperError> {
        self.descriptor(Request::Memory(inode), Some(pidfd))
    }

    /// Listens in the folder that a slice's containers mount; the slice is given by its directory.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn listen(&self, slice: BorrowedFd<'_>) -> Result<UnixListener, HelperError> {
        self.descriptor(Request::Listen, Some(slice)).map(UnixListener::from)
    }

    /// Writes the CDI document of a slice, given by its directory, for a mask of GPUs.
    /// See [`Containers::write`](crate::Containers::write).
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn write_document(
        &self,
        slice: BorrowedFd<'_>,
        gpus: u64,
        with_shim: bool,
    ) -> Result<(), HelperError> {
        self.ask(Request::Document { gpus, with_shim }, Some(slice)).map(drop)
    }

    /// Removes the CDI document of a slice, given by its directory.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn withdraw(&self, slice: BorrowedFd<'_>) -> Result<(), HelperError> {
        self.ask(Request::Withdraw, Some(slice)).map(drop)
    }

    /// Removes documents and folders of slices that do not exist.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn sweep(&self) -> Result<(), HelperError> {
        self.ask(Request::Sweep, None).map(drop)
    }

    /// Socket of a new park worker, which takes the place of the last one.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn park_worker(&self) -> Result<OwnedFd, HelperError> {
        self.descriptor(Request::ParkWorker, None)
    }

    fn descriptor(&self, request: Request, passed: Option<BorrowedFd<'_>>) -> Result<OwnedFd, HelperError> {
        let without = || HelperError::Gone(io::Error::other("its answer lacks the descriptor"));
        self.ask(request, passed)?.ok_or_else(without)
    }

    fn ask(&self, request: Request, passed: Option<BorrowedFd<'_>>) -> Result<Option<OwnedFd>, HelperError> {
        let passed =
            passed.map(|passed| passed.try_clone_to_owned()).transpose().map_err(HelperError::Failed)?;
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = turn.wrapping_add(1);
        let packet = request.encode(*turn).ok_or(Refusal::Malformed)?;
        sys::send(&self.socket, &packet, passed.as_ref()).map_err(HelperError::Gone)?;
        let mut buffer = [0; REPLY + 1];
        let received = sys::receive(self.socket.as_fd(), &mut buffer).map_err(HelperError::Gone)?;
        let gone = |why: &str| HelperError::Gone(io::Error::other(why.to_owned()));
        let (length, descriptors) = received.ok_or_else(|| gone("it has ended"))?;
        match Reply::decode(buffer.get(..length).unwrap_or_default()) {
            Some((sequence, _)) if sequence != *turn => Err(gone("it answers something else")),
            Some((_, Reply::Done)) => Ok(descriptors.into_iter().next()),
            Some((_, Reply::Refused(refusal))) => Err(refusal.into()),
            Some((_, Reply::Failed(errno))) => Err(HelperError::Failed(io::Error::from_raw_os_error(errno))),
            None => Err(gone("its answer cannot be read")),
        }
    }
}
