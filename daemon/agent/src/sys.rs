//! The kernel, where no library reaches it safely: shared mappings, peers of sockets, futexes.
//!
//! With that of the privileged helper, the only unsafe code of the daemon. Every function here is one system call, or the few that belong
//! together, and turns its answer into a `Result` at once.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nix::sys::mman::{MapFlags, ProtFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A file mapped shared and writable, as words that others may change at any time.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
    guard: &'static guard::Range,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only ever reached as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&[AtomicU64]` may be shared between threads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `words` words of a file that is at least that long.
    pub(crate) fn shared(file: &File, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<AtomicU64>();
        let (Some(length), true) = (NonZeroUsize::new(bytes), file.metadata()?.len() >= bytes as u64) else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its region"));
        };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so that nothing mapped before can be replaced; the length is
        // not zero and within the file.
        let start = unsafe { nix::sys::mman::mmap(None, length, access, MapFlags::MAP_SHARED, file, 0)? };
        let guard = guard::watch(start.as_ptr() as usize, bytes)?;
        Ok(Self { start: start.cast(), words, guard })
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and the mapping holds `words` words until `self` is dropped, which
        // the borrow prevents. All bit patterns are valid. Should a tenant truncate the file under us, the
        // guard below puts empty pages in its place, so that the addresses stay readable.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Mapping {
    /// Whether somebody truncated the file since this was last asked: what it said is lost.
    pub(crate) fn was_damaged(&self) -> bool {
        self.guard.was_damaged()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard.forget();
        // SAFETY: the mapping was made by `shared` with this start and length, and no borrow of it outlives
        // `self`. Failing to unmap leaks address space and nothing else.
        let _ = unsafe { nix::sys::mman::munmap(self.start.cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// Survives a tenant that truncates its usage file: touching a page that is no longer in the file raises
/// SIGBUS, which would end the daemon and with it the neighbours' credit. The handler puts an empty private
/// page there instead; the slice that did it has then lost its own accounting, and nobody else's.
mod guard {
    use std::io;
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

    /// Two mappings for each of so many slices.
    const RANGES: usize = 4096;

    /// A mapping that is watched; none where it starts at 0.
    #[derive(Debug)]
    pub(super) struct Range {
        start: AtomicUsize,
        bytes: AtomicUsize,
        damaged: AtomicBool,
    }

    static WATCHED: [Range; RANGES] = [const { Range::unused() }; RANGES];

    impl Range {
        const fn unused() -> Self {
            Self { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), damaged: AtomicBool::new(false) }
        }

        /// Stops watching.
        pub(super) fn forget(&self) {
            self.bytes.store(0, Ordering::Release);
            self.damaged.store(false, Ordering::Release);
            self.start.store(0, Ordering::Release);
        }

        /// Whether a page was lost since this was last asked.
        pub(super) fn was_damaged(&self) -> bool {
            self.damaged.swap(false, Ordering::AcqRel)
        }

        fn holds(&self, address: usize) -> bool {
            let start = self.start.load(Ordering::Acquire);
            start != 0 && (start..start + self.bytes.load(Ordering::Acquire)).contains(&address)
        }
    }

    /// Begins to watch a mapping.
    pub(super) fn watch(start: usize, bytes: usize) -> io::Result<&'static Range> {
        install()?;
        let claim = |range: &&Range| {
            range.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let full = || io::Error::other("more regions are mapped than can be watched");
        let range = WATCHED.iter().find(claim).ok_or_else(full)?;
        range.bytes.store(bytes, Ordering::Release);
        Ok(range)
    }

    fn install() -> io::Result<()> {
        static ONCE: Once = Once::new();
        let mut outcome = Ok(());
        ONCE.call_once(|| {
            let action =
                SigAction::new(SigHandler::SigAction(lost_page), SaFlags::SA_SIGINFO, SigSet::empty());
            // SAFETY: `lost_page` only uses atomics and system calls, which signal handlers may.
            outcome = unsafe { sigaction(Signal::SIGBUS, &action) }.map(drop).map_err(Into::into);
        });
        outcome
    }

    extern "C" fn lost_page(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo, whose address field SIGBUS fills in.
        let address = unsafe { (*info).si_addr() } as usize;
        let range = WATCHED.iter().find(|range| range.holds(address));
        if range.is_none_or(|range| !put_empty_page(range, address)) {
            // Not ours: the default action takes its course when the instruction faults again.
            // SAFETY: `signal` may be called in a handler; SIG_DFL is a valid disposition.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        }
    }

    fn put_empty_page(range: &Range, address: usize) -> bool {
        const PAGE: usize = 4096;
        let page = (address & !(PAGE - 1)) as *mut libc::c_void;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a mapping that we made and still watch, so that only our own page, which
        // no longer has anything behind it, is replaced.
        let put = unsafe { libc::mmap(page, PAGE, access, how, -1, 0) };
        range.damaged.store(true, Ordering::Release);
        put == page
    }
}

/// A handle on the process at the other end of a socket, as it was when it connected (Linux 6.5).
/// `Unsupported` where the kernel is older.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// From `asm-generic/socket.h`, the same on all architectures that have NVIDIA drivers.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: RawFd = -1;
    let mut length = libc::socklen_t::try_from(size_of::<RawFd>()).unwrap_or(4);
    let place = (&raw mut fd).cast();
    // SAFETY: `place` and `length` describe a local that is as large as said and outlives the call.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, place, &raw mut length)
    };
    match got {
        0 => owned(fd.into()),
        _ => Err(match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => io::ErrorKind::Unsupported.into(),
            error => error,
        }),
    }
}

/// The supplementary groups of the process at the other end of a socket, as they were when it connected.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    /// The most that the kernel lets a process have.
    const MOST: usize = 65536;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = libc::socklen_t::try_from(size_of_val(&*groups)).unwrap_or(libc::socklen_t::MAX);
        let place = groups.as_mut_ptr().cast();
        // SAFETY: `place` is the start of a vector of `length` bytes, all of which any bits may fill, and both outlive
        // the call.
        let got = unsafe {
            let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERGROUPS);
            libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut length)
        };
        let count = length as usize / size_of::<libc::gid_t>();
        match got {
            0 => {
                groups.truncate(count);
                return Ok(groups);
            }
            // There are more, and it said how many.
            _ if count > groups.len() && count <= MOST => groups.resize(count, 0),
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

/// What owns a descriptor.
///
/// # Safety
/// It gives the same descriptor whenever it is asked and keeps it open until it is dropped.
pub(crate) unsafe trait Owner: AsRawFd {}

// SAFETY: the standard library says so of all three.
unsafe impl Owner for Arc<OwnedFd> {}
// SAFETY: as above.
unsafe impl Owner for UnixListener {}
// SAFETY: as above.
unsafe impl Owner for UnixStream {}

/// Lets the runtime watch a descriptor for becoming readable. Nobody is woken because it can be written.
pub(crate) fn watch<T: Owner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `Owner` promises it, and `AsyncFd` never hands it out mutably here.
    unsafe { AsyncFd::register_with_interest(owner, Interest::READABLE) }.map_err(Into::into)
}

/// Wakes everybody who waits for the lower half of a word to change, in whatever process.
pub(crate) fn futex_wake_all(word: &AtomicU64) {
    const _: () = assert!(cfg!(target_endian = "little"), "the lower half is where the word is");
    // SAFETY: the kernel only takes the address for the name of a queue; the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// The socket behind a number that whoever started us left open for us to take calls at. The number itself stays open,
/// and is closed in what we start.
pub(crate) fn inherited_listener(number: RawFd) -> io::Result<UnixListener> {
    use nix::sys::socket::{getsockopt, sockopt};
    // SAFETY: both take integers only; the kernel checks them, and a copy is nobody's but ours.
    let copied = unsafe {
        libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3)
    };
    let listener = owned(copied.into())?;
    if !getsockopt(&listener, sockopt::AcceptConn)? {
        return Err(io::Error::other(format!("descriptor {number} takes no calls")));
    }
    Ok(listener.into())
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for us; nobody else knows its number.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_file_truncated_under_its_mapping_does_not_end_us() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::shared(&file, 1024).unwrap();
        mapping.words()[1000].store(7, Relaxed);
        file.set_len(0).unwrap();
        assert_eq!(mapping.words()[1000].load(Relaxed), 0);
        assert!(mapping.was_damaged() && !mapping.was_damaged());
    }

    #[test]
    fn a_file_shorter_than_its_region_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Mapping::shared(&file, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
