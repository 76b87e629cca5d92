//! The connection to the daemon: one per process, one request at a time, reopened when it is lost.

use core::ffi::CStr;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use tranche_policy::{CreditResult, DaemonLink, ShareReply, ShareReport};
use tranche_shm::crash::point;
use tranche_shm::credit::Units;
use tranche_shm::message::{AttachRefusal, DaemonReply, OwnView, ProcessRequest};
use tranche_shm::{DeviceSlot, Slot};

use crate::bell;
use crate::root::{Root, RootWord};
use crate::sys::{self, Errno, Fd, FileId};

/// Error of a connection or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionError {
    /// The daemon does not reply; a later attempt may succeed.
    Away,
    /// The daemon refuses this process or its ABI, or there is no socket: final.
    Refused,
}

/// Results of a successful attachment.
pub(crate) struct Welcome {
    pub(crate) slot: Slot,
    pub(crate) generation: u64,
    pub(crate) control: Fd,
    pub(crate) usage: Fd,
}

/// The parent's socket in a forked child: unlike the root, these words survive a fork.
static INHERITED: AtomicI32 = AtomicI32::new(-1);
static INHERITED_INODE: AtomicU64 = AtomicU64::new(0);

/// Connects and attaches. The caller holds the lock over the connection.
pub(crate) fn open(root: Root, deadline_ns: u64) -> Result<Welcome, ConnectionError> {
    close(root);
    close_inherited();
    let own = NonZeroU32::new(sys::pid()).map(|pid| OwnView { pid, clock_ns: sys::now_ns() });
    match greet(root, own, deadline_ns)? {
        // A daemon from before `OwnView` takes it for a mistake.
        Err(AttachRefusal::Malformed) => greet(root, None, deadline_ns)?,
        answer => answer,
    }
    .map_err(|_| ConnectionError::Refused)
}

/// Connects and sends a hello; the outer error is the connection's, the inner one the daemon's.
fn greet(
    root: Root,
    own: Option<OwnView>,
    deadline_ns: u64,
) -> Result<Result<Welcome, AttachRefusal>, ConnectionError> {
    let mut buffer = [0; 128];
    let told = sys::environment(c"TRANCHE_SLICE_SOCKET", &mut buffer);
    let fd =
        sys::connect(told.unwrap_or(IN_CONTAINER), left_ms(deadline_ns)).map_err(|error| match error {
            // No variable names a socket, and the container, if it is one, has no slice.
            Errno(libc::ENOENT | libc::ENOTDIR) if told.is_none() => ConnectionError::Refused,
            // Errors that do not pass with time.
            Errno(libc::EACCES | libc::EPERM | libc::ENAMETOOLONG) => ConnectionError::Refused,
            _ => ConnectionError::Away,
        })?;
    point("attach: connected");
    sys::send(fd.raw(), &ProcessRequest::hello(attached_slot(root), own).encode())
        .map_err(|_| ConnectionError::Away)?;
    point("attach: greeted");
    let (frame, fds) = sys::receive(fd.raw()).map_err(|_| ConnectionError::Away)?;
    let welcome = match (DaemonReply::decode(&frame), fds) {
        (Ok(DaemonReply::Welcome { slot, generation }), [Some(control), Some(usage), Some(bell)]) => {
            bell::hang(bell);
            Welcome { slot, generation, control, usage }
        }
        (Ok(DaemonReply::Refused(why)), _) => return Ok(Err(why)),
        _ => return Err(ConnectionError::Refused),
    };
    point("attach: welcomed");
    let id = sys::file_id(fd.raw()).map_err(|_| ConnectionError::Away)?;
    remember(root, fd, id);
    Ok(Ok(welcome))
}

/// The socket of a container's slice, for programs that are started in it without its variables.
const IN_CONTAINER: &CStr = c"/run/tranche/slice/attach.sock";

/// Slot of this process, if it is attached.
fn attached_slot(root: Root) -> Option<Slot> {
    let ready = root.word(RootWord::Ready).load(Acquire) != 0;
    ready.then(|| Slot::new(root.word(RootWord::Slot).load(Relaxed) as usize)).flatten()
}

fn remember(root: Root, fd: Fd, id: FileId) {
    let raw = fd.into_raw();
    root.word(RootWord::SocketDevice).store(id.device, Relaxed);
    root.word(RootWord::SocketInode).store(id.inode, Relaxed);
    root.word(RootWord::Socket).store(raw as u64 + 1, Relaxed);
    INHERITED_INODE.store(id.inode, Relaxed);
    INHERITED.store(raw, Relaxed);
}

/// The socket's descriptor, if it still refers to it: a program may have closed or reused it.
fn socket(root: Root) -> Option<i32> {
    let raw = root.word(RootWord::Socket).load(Relaxed).checked_sub(1)? as i32;
    let id = sys::file_id(raw).ok()?;
    let known =
        (root.word(RootWord::SocketDevice).load(Relaxed), root.word(RootWord::SocketInode).load(Relaxed));
    ((id.device, id.inode) == known).then_some(raw)
}

/// True if the daemon has closed the connection.
pub(crate) fn is_lost(root: Root) -> bool {
    socket(root).is_none_or(sys::has_ended)
}

/// True if the daemon has ended: the connection is closed, and the slice's socket refuses another.
///
/// A daemon that closes one connection still accepts others. No lock is held: a connection that another thread replaces
/// meanwhile seems closed, and then the socket decides.
#[cold]
pub(crate) fn has_daemon_ended(root: Root) -> bool {
    let refused = || {
        let mut buffer = [0; 128];
        let path = sys::environment(c"TRANCHE_SLICE_SOCKET", &mut buffer).unwrap_or(IN_CONTAINER);
        matches!(sys::connect(path, PROBE_MS), Err(Errno(libc::ECONNREFUSED)))
    };
    is_lost(root) && refused()
}

/// Longest wait for a place in the queue of the slice's socket, in milliseconds.
const PROBE_MS: u64 = 1;

fn close(root: Root) {
    if let Some(raw) = socket(root) {
        drop(Fd::from_raw(raw));
        INHERITED.store(-1, Relaxed);
    }
    root.word(RootWord::Socket).store(0, Relaxed);
}

/// Closes the parent's socket, recognised by its inode, and no file of the program under its number.
fn close_inherited() {
    let raw = INHERITED.swap(-1, Relaxed);
    if raw >= 0 && sys::file_id(raw).is_ok_and(|id| id.inode == INHERITED_INODE.load(Relaxed)) {
        drop(Fd::from_raw(raw));
    }
}

/// The daemon, over this process's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DaemonLine;

impl DaemonLine {
    /// Sends one request and receives its reply.
    fn exchange(self, request: ProcessRequest, deadline_ns: u64) -> Result<DaemonReply, ConnectionError> {
        let root = Root::get().ok_or(ConnectionError::Refused)?;
        let _turn = root.turn(deadline_ns).ok_or(ConnectionError::Away)?;
        let raw = socket(root).map_or_else(|| reopen(root, deadline_ns), Ok)?;
        point("ask: begin");
        let sent = sys::send(raw, &request.encode());
        point("ask: sent");
        let reply = sent.and_then(|()| sys::receive(raw));
        point("ask: answered");
        match reply.map(|(frame, _)| DaemonReply::decode(&frame)) {
            Ok(Ok(reply)) if !matches!(reply, DaemonReply::Welcome { .. }) => Ok(reply),
            // A late or malformed reply must not be taken for that of the next request.
            _ => {
                close(root);
                Err(ConnectionError::Away)
            }
        }
    }
}

impl DaemonLink for DaemonLine {
    fn ask(&self, device: DeviceSlot, want: Units, deadline_ns: u64) -> CreditResult {
        match self.exchange(ProcessRequest::Credit { device, want }, deadline_ns) {
            Ok(DaemonReply::Granted) => CreditResult::Granted,
            Ok(DaemonReply::Exhausted) => CreditResult::Exhausted,
            Ok(DaemonReply::Later) => {
                // The pause of a thread that waits for the lock, so that it gets its turn.
                sys::sleep_ms(1);
                CreditResult::Later
            }
            Err(ConnectionError::Away) => CreditResult::Away,
            Ok(_) | Err(ConnectionError::Refused) => CreditResult::Refused,
        }
    }

    fn share(&self, say: ShareReport, deadline_ns: u64) -> ShareReply {
        let request = match say {
            ShareReport::Export(device, key, units) => ProcessRequest::Export { device, key, units },
            ShareReport::Import(key) => ProcessRequest::Import { key },
            ShareReport::Drop(key) => ProcessRequest::Drop { key },
        };
        match self.exchange(request, deadline_ns) {
            Ok(DaemonReply::Granted) => ShareReply::Noted,
            Err(ConnectionError::Away) => ShareReply::Away,
            Ok(_) | Err(ConnectionError::Refused) => ShareReply::Unknown,
        }
    }

    fn now_ns(&self) -> u64 {
        sys::now_ns()
    }

    fn pause(&self) {
        sys::sleep_ms(20);
    }
}

/// Reconnects a process that is attached already. It must get its old slot, which holds its charges.
fn reopen(root: Root, deadline_ns: u64) -> Result<i32, ConnectionError> {
    let welcome = open(root, deadline_ns)?;
    let known = (root.word(RootWord::Slot).load(Relaxed), root.word(RootWord::Generation).load(Relaxed));
    if (welcome.slot.index() as u64, welcome.generation) != known {
        close(root);
        return Err(ConnectionError::Refused);
    }
    point("ask: connected anew");
    socket(root).ok_or(ConnectionError::Away)
}

/// Attaches again to the daemon that serves the slice now, to receive its wakeup eventfd.
#[cold]
pub(crate) fn renew(root: Root, daemon: u64) {
    let deadline_ns = sys::now_ns() + RENEWAL_NS;
    let Some(_turn) = root.turn(deadline_ns) else { return };
    if root.word(RootWord::Daemon).load(Relaxed) != daemon && reopen(root, deadline_ns).is_ok() {
        root.word(RootWord::Daemon).store(daemon, Release);
    }
}

/// Longest wait of a thread at the launch gate for a daemon that does not reply, in nanoseconds.
const RENEWAL_NS: u64 = 100_000_000;

fn left_ms(deadline_ns: u64) -> u64 {
    (deadline_ns.saturating_sub(sys::now_ns()) / 1_000_000).max(1)
}
