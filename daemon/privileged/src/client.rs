//! The main process's side.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, Shutdown, SockFlag, SockType, shutdown, socketpair};
use nix::unistd::geteuid;

use crate::containers::Description;
use crate::protocol::{ProcessFile, REPLY, Refusal, Reply, Request, Step};
use crate::serve::{Bounds, Denied, send};
use crate::sys;

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
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

impl From<Denied> for io::Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Failed(error) => error,
            Denied::Refused(refusal) => Self::new(io::ErrorKind::PermissionDenied, refusal),
        }
    }
}

/// The helper, as the main process has it.
#[derive(Debug)]
pub struct Helper {
    pub(crate) socket: OwnedFd,
    /// Sequence number of the last request; held from a request to its reply.
    turn: Mutex<u32>,
    pid: u32,
}

impl Helper {
    /// Starts a program as the helper; what is given back besides has to be waited for.
    ///
    /// # Errors
    /// If there can be no process or socket.
    pub fn start(
        program: &Path,
        bounds: &Bounds,
        description: Option<&Description>,
    ) -> io::Result<(Self, Child)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let mut command = Command::new(program);
        command.args(bounds.arguments()).env_clear().current_dir("/");
        let description = description.map_or_else(|| File::open("/dev/null"), Description::file)?;
        command.stdin(Stdio::from(theirs)).stdout(Stdio::from(description));
        let child = command.spawn()?;
        Ok((Self::over(socket, child.id()), child))
    }

    /// Ends helpers of earlier daemons at the same runtime directory. One that was stopped with its daemon does not notice
    /// that this has ended. The caller holds that directory's lock, so that no living daemon has one.
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
            // Looked at again, it is the process that the handle names.
            let Ok(orphan) = sys::pidfd_open(pid) else { continue };
            if is_one() {
                let _ = sys::send_signal(orphan.as_fd(), Signal::SIGKILL); // or it has just ended
            }
        }
    }

    pub(crate) fn over(socket: OwnedFd, pid: u32) -> Self {
        Self { socket, turn: Mutex::default(), pid }
    }

    /// Its pid.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the helper end; nothing can be asked for any more.
    pub fn dismiss(&self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both); // it has ended already
    }

    /// The file of a region, to read through a mount that nobody can write through.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn read_only_mount(&self, region: BorrowedFd<'_>) -> Result<OwnedFd, HelperError> {
        self.descriptor(Request::ReadOnlyMount, Some(region))
    }

    /// Sends SIGTERM or SIGKILL to the process that a pidfd names, if the helper finds evidence that it is of a slice.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn signal(&self, pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), HelperError> {
        self.ask(Request::Signal(signal), Some(pidfd)).map(drop)
    }

    /// A file of `/proc/PID`, where `hidepid` keeps it from the main process.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn process_file(&self, pid: u32, file: ProcessFile) -> Result<File, HelperError> {
        self.descriptor(Request::ProcessFile(pid, file), None).map(File::from)
    }

    /// Prepares the device rule: from here on processes can be admitted.
    ///
    /// # Errors
    /// See [`HelperError`]; the helper's own log says which step failed.
    pub fn prepare_device_rule(&self) -> Result<(), HelperError> {
        self.ask(Request::DeviceRule(Step::Prepared), None).map(drop)
    }

    /// Has only admitted processes open GPUs.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn enforce_device_rule(&self) -> Result<(), HelperError> {
        self.ask(Request::DeviceRule(Step::Enforced), None).map(drop)
    }

    /// Lets a process of a slice, and what it starts from then on, open GPUs.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn admit(&self, pidfd: BorrowedFd<'_>, generation: u64) -> Result<(), HelperError> {
        self.ask(Request::Admit(generation), Some(pidfd)).map(drop)
    }

    /// Lets no process of a slice open GPUs any more.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn dismiss_slice(&self, generation: u64) -> Result<(), HelperError> {
        self.ask(Request::Dismiss(generation), None).map(drop)
    }

    /// Names the daemon's memory of that inode number, if the process that the pidfd names maps it: see
    /// [`mapped_memory`](crate::mapped_memory).
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn memory(&self, pidfd: BorrowedFd<'_>, inode: u64) -> Result<OwnedFd, HelperError> {
        self.descriptor(Request::Memory(inode), Some(pidfd))
    }

    /// Listens in the folder that containers of a slice mount, by the slice's directory.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn listen(&self, slice: BorrowedFd<'_>) -> Result<UnixListener, HelperError> {
        self.descriptor(Request::Listen, Some(slice)).map(UnixListener::from)
    }

    /// Writes a slice's CDI document, by the slice's directory and a mask of GPUs: see
    /// [`Containers::write`](crate::Containers::write).
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

    /// Removes a slice's CDI document, by the slice's directory.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn withdraw(&self, slice: BorrowedFd<'_>) -> Result<(), HelperError> {
        self.ask(Request::Withdraw, Some(slice)).map(drop)
    }

    /// Removes documents and folders of slices that are no more.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub fn sweep(&self) -> Result<(), HelperError> {
        self.ask(Request::Sweep, None).map(drop)
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
        send(&self.socket, &packet, passed.as_ref()).map_err(HelperError::Gone)?;
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
