//! System calls that no library wraps safely: shared mappings, socket peers, futexes.
//!
//! Together with that of the privileged helper, the daemon's only unsafe code. Every function here makes one system
//! call, or a few that belong together, and converts the outcome to a `Result` at once.

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

/// Shared, writable mapping of a file, as words that other processes may change at any time.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
    guard: &'static guard::Range,
}

// SAFETY: a mapping belongs to the process, not to a thread, so `start` stays valid on any thread. The words are
// reached only as atomics, through `words`.
unsafe impl Send for Mapping {}
// SAFETY: all shared access goes through `words`, whose `&[AtomicU64]` is itself `Sync`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `words` words of a file that is at least that long.
    pub fn shared(file: &File, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<AtomicU64>();
        let (Some(length), true) = (NonZeroUsize::new(bytes), file.metadata()?.len() >= bytes as u64) else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its region"));
        };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the address hint is `None` and the flags lack MAP_FIXED, so the kernel picks an unused range and no
        // existing mapping is replaced. `length` is not zero and lies within the file, as checked above.
        let start = unsafe { nix::sys::mman::mmap(None, length, access, MapFlags::MAP_SHARED, file, 0)? };
        let guard = guard::watch(start.as_ptr() as usize, bytes)?;
        Ok(Self { start: start.cast(), words, guard })
    }

    /// The mapped words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned, and the mapping of `words` words lives until `self` is dropped, which the
        // returned borrow prevents. Every bit pattern is a valid `AtomicU64`. If a tenant truncates the file, the
        // guard below replaces lost pages by empty ones, so all addresses stay readable.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Returns true if the file was truncated since the last call, which loses its content.
    pub fn was_damaged(&self) -> bool {
        self.guard.was_damaged()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard.forget();
        // SAFETY: `shared` made the mapping with this start and length, and borrows of the words cannot outlive
        // `self`. A failure leaks address space and has no other effect.
        let _ = unsafe { nix::sys::mman::munmap(self.start.cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// Protects the daemon from a tenant that truncates its usage file. Touching a page that is no longer in the file
/// raises SIGBUS, which would end the daemon and the credit of all slices. The handler maps an empty private page
/// there instead; only the slice that did it loses its accounting.
mod guard {
    use std::io;
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

    /// Number of watched mappings: two for each slice.
    const RANGES: usize = 4096;

    /// A watched mapping; unused if it starts at 0.
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

        /// Stops watching the mapping.
        pub(super) fn forget(&self) {
            self.bytes.store(0, Ordering::Release);
            self.damaged.store(false, Ordering::Release);
            self.start.store(0, Ordering::Release);
        }

        /// Returns true if a page was lost since the last call.
        pub(super) fn was_damaged(&self) -> bool {
            self.damaged.swap(false, Ordering::AcqRel)
        }

        fn holds(&self, address: usize) -> bool {
            let start = self.start.load(Ordering::Acquire);
            start != 0 && (start..start + self.bytes.load(Ordering::Acquire)).contains(&address)
        }
    }

    /// Starts watching a mapping.
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
            // SAFETY: `lost_page` has the signature that SA_SIGINFO requires and uses only atomics and
            // async-signal-safe system calls.
            outcome = unsafe { sigaction(Signal::SIGBUS, &action) }.map(drop).map_err(Into::into);
        });
        outcome
    }

    extern "C" fn lost_page(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the handler is installed with SA_SIGINFO, so the kernel passes a valid siginfo, and for SIGBUS it
        // sets the address field.
        let address = unsafe { (*info).si_addr() } as usize;
        let range = WATCHED.iter().find(|range| range.holds(address));
        if range.is_none_or(|range| !put_empty_page(range, address)) {
            // A fault elsewhere: the default action applies when the instruction faults again.
            // SAFETY: `signal` is async-signal-safe, and SIG_DFL is a valid disposition for SIGBUS.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        }
    }

    fn put_empty_page(range: &Range, address: usize) -> bool {
        const PAGE: usize = 4096;
        let page = (address & !(PAGE - 1)) as *mut libc::c_void;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a mapping that this process made and still watches, so MAP_FIXED replaces only
        // that page, which has no content left behind it.
        let put = unsafe { libc::mmap(page, PAGE, access, how, -1, 0) };
        range.damaged.store(true, Ordering::Release);
        put == page
    }
}

/// A pidfd of the process at the other end of a socket, as of its `connect` (Linux 6.5). `Unsupported` on older
/// kernels.
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// From `asm-generic/socket.h`; the same on all architectures with NVIDIA drivers.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: RawFd = -1;
    let mut length = libc::socklen_t::try_from(size_of::<RawFd>()).unwrap_or(4);
    let place = (&raw mut fd).cast();
    // SAFETY: `place` points to a local that is `length` bytes long and outlives the call.
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

/// Supplementary groups of the process at the other end of a socket, as of its `connect`.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    /// Largest number of groups that the kernel lets a process have.
    const MOST: usize = 65536;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = libc::socklen_t::try_from(size_of_val(&*groups)).unwrap_or(libc::socklen_t::MAX);
        let place = groups.as_mut_ptr().cast();
        // SAFETY: `place` is the start of a vector of `length` bytes, in which every bit pattern is valid, and both
        // outlive the call.
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
            // The kernel has set the number of groups that there are.
            _ if count > groups.len() && count <= MOST => groups.resize(count, 0),
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

/// Owner of a file descriptor.
///
/// # Safety
/// `as_raw_fd` always returns the same descriptor, which stays open until the owner is dropped.
pub unsafe trait Owner: AsRawFd {}

// SAFETY: the standard library documents that an `OwnedFd` owns one descriptor until it is dropped; `Arc` keeps it alive.
unsafe impl Owner for Arc<OwnedFd> {}
// SAFETY: the standard library documents that a listener owns one descriptor until it is dropped.
unsafe impl Owner for UnixListener {}
// SAFETY: the standard library documents that a stream owns one descriptor until it is dropped.
unsafe impl Owner for UnixStream {}

/// Registers a descriptor for readability with the runtime. Writability causes no wakeups.
pub fn watch<T: Owner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `Owner` requires a constant, open descriptor, and no caller obtains the owner mutably from this
    // `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(owner, Interest::READABLE) }.map_err(Into::into)
}

/// Wakes all threads, in any process, that wait on the lower half of a word.
pub fn futex_wake_all(word: &AtomicU64) {
    const _: () = assert!(cfg!(target_endian = "little"), "the lower half is where the word is");
    // SAFETY: FUTEX_WAKE uses the address as a key and does not access the word through it; the word outlives the
    // call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Listening socket that the parent process passed under a descriptor number. A copy is taken; the number itself
/// stays open here and is closed in child processes.
pub fn inherited_listener(number: RawFd) -> io::Result<UnixListener> {
    use nix::sys::socket::{getsockopt, sockopt};
    // SAFETY: both calls take integers only, which the kernel validates, and the copied descriptor is owned here
    // alone.
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
        // SAFETY: the kernel has just created this descriptor, so it is open and has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn truncated_mapping_does_not_end_the_process() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::shared(&file, 1024).unwrap();
        mapping.words()[1000].store(7, Relaxed);
        file.set_len(0).unwrap();
        assert_eq!(mapping.words()[1000].load(Relaxed), 0);
        assert!(mapping.was_damaged() && !mapping.was_damaged());
    }

    #[test]
    fn file_shorter_than_its_region_is_rejected() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Mapping::shared(&file, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
