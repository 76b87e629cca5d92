//! System calls of the shim, none of them a cancellation point, all of them leaving `errno` alone.

mod call;
mod time;

use core::ffi::CStr;
use core::mem::{size_of, zeroed};
use core::sync::atomic::AtomicU64;

use libc::{c_int, c_long, c_void};
use tranche_shm::message::{FRAME_BYTES, Frame};

pub(crate) use call::Errno;
use call::call;
pub(crate) use time::{now_ns, pause, quick_now_ns, sleep_ms, sleep_ns, wait_while};

/// Least number of the shim's descriptors, apart from numbers that programs close or reuse.
///
/// The limit on descriptors permitting. Below 64: a process begins with a table of 64 (`NR_OPEN_DEFAULT`), and for a higher
/// number the kernel makes another, for which a program with threads waits until no thread reads the old one.
const HIGH: c_long = 48;

/// Identity of the open file behind a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    /// True for a file with contents; false for a device, pipe or socket.
    pub(crate) regular: bool,
}

/// A descriptor that is closed when dropped.
#[derive(Debug)]
pub(crate) struct Fd(c_int);

impl Fd {
    /// Returns the number and leaves the descriptor open.
    pub(crate) fn into_raw(self) -> c_int {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// Takes ownership of an open descriptor of the shim.
    pub(crate) const fn from_raw(raw: c_int) -> Self {
        Self(raw)
    }

    pub(crate) const fn raw(&self) -> c_int {
        self.0
    }

    /// Moves it above the numbers that programs use; keeps it where no higher number is free.
    pub(crate) fn moved_high(self) -> Self {
        for floor in [HIGH, HIGH / 2] {
            // SAFETY: fcntl on an open descriptor with an integer argument touches no memory.
            let moved = unsafe {
                call(libc::SYS_fcntl, [self.0 as c_long, libc::F_DUPFD_CLOEXEC as c_long, floor, 0, 0, 0])
            };
            if let Ok(moved) = moved {
                return Self(moved as c_int);
            }
        }
        self
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: close touches no memory; the descriptor is ours by construction.
        let _ = unsafe { call(libc::SYS_close, [self.0 as c_long, 0, 0, 0, 0, 0]) };
    }
}

/// Identity of the file behind `fd`; an error if it is not open.
pub(crate) fn file_id(fd: c_int) -> Result<FileId, Errno> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: fstat writes one `stat` of the kernel's layout, which on 64-bit machines is the libc crate's.
    unsafe { call(libc::SYS_fstat, [fd as c_long, (&raw mut stat) as c_long, 0, 0, 0, 0]) }?;
    Ok(FileId {
        device: stat.st_dev,
        inode: stat.st_ino,
        bytes: stat.st_size as u64,
        regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
    })
}

/// Connects to a unix socket; connecting, sending and receiving wait at most `patience_ms`.
pub(crate) fn connect(path: &CStr, patience_ms: u64) -> Result<Fd, Errno> {
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes numbers and touches no memory.
    let fd = unsafe { call(libc::SYS_socket, [libc::AF_UNIX as c_long, flags as c_long, 0, 0, 0, 0]) }?;
    let fd = Fd(fd as c_int).moved_high();
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let time = libc::timeval {
            tv_sec: (patience_ms / 1000) as i64,
            tv_usec: (patience_ms % 1000 * 1000) as i64,
        };
        // SAFETY: the kernel reads one timeval, a local that outlives the call.
        unsafe {
            let length = size_of::<libc::timeval>() as c_long;
            let option =
                [fd.0 as c_long, libc::SOL_SOCKET as c_long, option as c_long, (&raw const time) as c_long];
            call(libc::SYS_setsockopt, [option[0], option[1], option[2], option[3], length, 0])
        }?;
    }
    // SAFETY: all zeroes is a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let bytes = path.to_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the kernel reads one sockaddr_un of the length given.
    unsafe {
        let length = size_of::<libc::sockaddr_un>() as c_long;
        call(libc::SYS_connect, [fd.0 as c_long, (&raw const address) as c_long, length, 0, 0, 0])
    }?;
    Ok(fd)
}

/// Pid of this process in its own pid namespace.
pub(crate) fn pid() -> u32 {
    // SAFETY: getpid takes no arguments and touches no memory, so the zeroes passed are not read.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or_default() as u32
}

/// Sends a whole frame, without the signal that a closed peer would raise.
pub(crate) fn send(fd: c_int, frame: &Frame) -> Result<(), Errno> {
    let mut sent = 0;
    while sent < FRAME_BYTES {
        let rest = &frame[sent..];
        let flags = libc::MSG_NOSIGNAL as c_long;
        // SAFETY: the kernel reads `rest`, a live slice of the length given.
        let result = unsafe {
            call(libc::SYS_sendto, [fd as c_long, rest.as_ptr() as c_long, rest.len() as c_long, flags, 0, 0])
        };
        match result {
            Ok(count) => sent += count as usize,
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adds one to an eventfd. A full counter counts as success: a wakeup is pending already.
pub(crate) fn ring(fd: c_int) -> Result<(), Errno> {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes of a live local.
    let rung = unsafe { call(libc::SYS_write, [fd as c_long, (&raw const one) as c_long, 8, 0, 0, 0]) };
    match rung {
        Ok(_) | Err(Errno(libc::EAGAIN)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Receives a whole frame and at most three descriptors that come with it.
pub(crate) fn receive(fd: c_int) -> Result<(Frame, [Option<Fd>; 3]), Errno> {
    let mut frame = [0u8; FRAME_BYTES];
    let mut fds = [None, None, None];
    let mut got = 0;
    while got < FRAME_BYTES {
        match receive_part(fd, &mut frame[got..], &mut fds) {
            Ok(0) => return Err(Errno(libc::ECONNRESET)),
            Ok(count) => got += count,
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((frame, fds))
}

/// True if the peer of a connection has closed it.
pub(crate) fn has_ended(fd: c_int) -> bool {
    let mut byte = 0u8;
    let flags = (libc::MSG_PEEK | libc::MSG_DONTWAIT) as c_long;
    // SAFETY: the kernel writes at most one byte, into a live local.
    let peeked =
        unsafe { call(libc::SYS_recvfrom, [fd as c_long, (&raw mut byte) as c_long, 1, flags, 0, 0]) };
    !matches!(peeked, Ok(1) | Err(Errno(libc::EAGAIN | libc::EINTR)))
}

/// A control message with room for three descriptors, in the kernel's layout.
#[repr(C)]
struct Rights {
    header: libc::cmsghdr,
    fds: [c_int; 3],
}

fn receive_part(fd: c_int, into: &mut [u8], fds: &mut [Option<Fd>; 3]) -> Result<usize, Errno> {
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all-zero bytes are valid values of both types.
    let (mut rights, mut message): (Rights, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut rights).cast();
    message.msg_controllen = size_of::<Rights>();
    let flags = libc::MSG_CMSG_CLOEXEC as c_long;
    // SAFETY: the kernel writes into `into` and `rights`, through pointers and lengths taken from these live locals
    // above.
    let count =
        unsafe { call(libc::SYS_recvmsg, [fd as c_long, (&raw mut message) as c_long, flags, 0, 0, 0]) }?;
    if message.msg_controllen >= size_of::<libc::cmsghdr>()
        && rights.header.cmsg_level == libc::SOL_SOCKET
        && rights.header.cmsg_type == libc::SCM_RIGHTS
    {
        let bytes = rights.header.cmsg_len.saturating_sub(size_of::<libc::cmsghdr>());
        for (to, from) in fds.iter_mut().zip(rights.fds).take(bytes / size_of::<c_int>()) {
            *to = Some(Fd(from));
        }
    }
    Ok(count as usize)
}

/// Permitted access through a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingAccess {
    Read,
    ReadWrite,
}

/// Maps the first words of a shared file for as long as the process lives.
pub(crate) fn map_shared(
    fd: &Fd,
    words: usize,
    access: MappingAccess,
) -> Result<&'static [AtomicU64], Errno> {
    let bytes = words * size_of::<AtomicU64>();
    if file_id(fd.raw())?.bytes < bytes as u64 {
        return Err(Errno(libc::EINVAL));
    }
    let protection = match access {
        MappingAccess::Read => libc::PROT_READ,
        MappingAccess::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    };
    let address = map(bytes, protection, libc::MAP_SHARED, fd.raw())?;
    // SAFETY: `map` returned fresh memory of that length, page-aligned, never unmapped; words are atomic, so other
    // processes may write them. The daemon sizes its files once and the length was just checked, so no access faults.
    Ok(unsafe { core::slice::from_raw_parts(address.cast(), words) })
}

/// Maps pages of a shared mapping of ours at a second address, which a forked child does not have.
pub(crate) fn map_again(start: usize, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: with an old size of zero, mremap of a shared mapping makes a second mapping at a free address; the
    // first stays as it is.
    let again = unsafe {
        let flags = c_long::from(libc::MREMAP_MAYMOVE);
        call(libc::SYS_mremap, [start as c_long, 0, bytes as c_long, flags, 0, 0])
    }?;
    // SAFETY: the range is the mapping just made, which no other code has received yet.
    let hidden = unsafe {
        call(libc::SYS_madvise, [again, bytes as c_long, c_long::from(libc::MADV_DONTFORK), 0, 0, 0])
    };
    if let Err(error) = hidden {
        unmap(again as *mut c_void, bytes);
        return Err(error);
    }
    Ok(again as usize)
}

/// Ends a mapping made by [`map_again`], once no thread reads or writes through it.
pub(crate) fn unmap_again(start: usize, bytes: usize) {
    unmap(start as *mut c_void, bytes);
}

/// Maps zeroed private words that a forked child finds zeroed again.
///
/// Only the first `open` of them can be used before [`open_private`]: the rest are reserved addresses, which count
/// against an address-space limit alone, and which no `mlockall` fills.
pub(crate) fn map_private(words: usize, open: usize) -> Result<&'static [AtomicU64], Errno> {
    let bytes = words * size_of::<AtomicU64>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let address = map(bytes, libc::PROT_NONE, flags, -1)?;
    if !open_pages(address as usize, open * size_of::<AtomicU64>()) {
        unmap(address, bytes);
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: the range is the mapping just made, which no other code has received yet.
    let wiped = unsafe {
        call(
            libc::SYS_madvise,
            [address as c_long, bytes as c_long, libc::MADV_WIPEONFORK as c_long, 0, 0, 0],
        )
    };
    if let Err(error) = wiped {
        unmap(address, bytes);
        return Err(error);
    }
    // SAFETY: `map` returned fresh, page-aligned, anonymous and zeroed memory of that length, which is never
    // unmapped.
    Ok(unsafe { core::slice::from_raw_parts(address.cast(), words) })
}

/// Makes words of a private mapping accessible, and the rest of their pages with them.
pub(crate) fn open_private(words: &[AtomicU64]) -> bool {
    open_pages(words.as_ptr() as usize, size_of_val(words))
}

/// Backs words of a private mapping with memory.
///
/// Without that, each of their pages takes two faults: for the first read, and for the first write. Kernels before 5.14
/// leave it at those.
pub(crate) fn back(words: &[AtomicU64]) {
    let (first, length) = pages(words.as_ptr() as usize, size_of_val(words));
    // SAFETY: the pages hold words of a mapping of the shim; their contents stay as they are.
    let _ = unsafe {
        call(
            libc::SYS_madvise,
            [first as c_long, length as c_long, libc::MADV_POPULATE_WRITE as c_long, 0, 0, 0],
        )
    };
}

/// Address and length in bytes of the pages that hold a range of bytes.
const fn pages(start: usize, bytes: usize) -> (usize, usize) {
    const PAGE: usize = 4096;
    let first = start & !(PAGE - 1);
    (first, (start + bytes).next_multiple_of(PAGE) - first)
}

fn open_pages(start: usize, bytes: usize) -> bool {
    let (first, length) = pages(start, bytes);
    let access = (libc::PROT_READ | libc::PROT_WRITE) as c_long;
    // SAFETY: both callers name pages of a mapping of the shim, to which access is added and never removed.
    unsafe { call(libc::SYS_mprotect, [first as c_long, length as c_long, access, 0, 0, 0]) }.is_ok()
}

/// Unmaps private words to which no other reference exists yet.
pub(crate) fn unmap_unseen(words: &'static [AtomicU64]) {
    unmap(words.as_ptr() as *mut c_void, size_of_val(words));
}

fn map(bytes: usize, protection: c_int, flags: c_int, fd: c_int) -> Result<*mut c_void, Errno> {
    // SAFETY: without a fixed address, mmap takes free addresses only, to which no reference exists.
    let address = unsafe {
        call(libc::SYS_mmap, [0, bytes as c_long, protection as c_long, flags as c_long, fd as c_long, 0])
    }?;
    Ok(address as *mut c_void)
}

fn unmap(address: *mut c_void, bytes: usize) {
    // SAFETY: callers pass a mapping of theirs to which no reference exists any longer.
    let _ = unsafe { call(libc::SYS_munmap, [address as c_long, bytes as c_long, 0, 0, 0, 0]) };
}

/// Zeroed private memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct ZeroedRoom {
    address: *mut c_void,
    bytes: usize,
}

impl ZeroedRoom {
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let address = map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        Ok(Self { address, bytes })
    }

    /// Address of the first byte, on a page boundary.
    pub(crate) fn start<T>(&self) -> *mut T {
        self.address.cast()
    }
}

impl Drop for ZeroedRoom {
    fn drop(&mut self) {
        unmap(self.address, self.bytes);
    }
}

/// Passes a file's bytes to `read`; `None` if the file is absent or empty.
pub(crate) fn with_file<T>(name: &CStr, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: openat reads `name`, a CStr and thus terminated.
    let fd = unsafe {
        call(libc::SYS_openat, [libc::AT_FDCWD as c_long, name.as_ptr() as c_long, flags as c_long, 0, 0, 0])
    };
    let fd = Fd(fd.ok()? as c_int);
    let bytes = usize::try_from(file_id(fd.raw()).ok()?.bytes).ok().filter(|bytes| *bytes > 0)?;
    let address = map(bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd.raw()).ok()?;
    // SAFETY: the mapping was made above with the file's length. A program that truncates an image file while the
    // driver loads it would fault in the driver as well.
    let result = read(unsafe { core::slice::from_raw_parts(address.cast(), bytes) });
    unmap(address, bytes);
    Some(result)
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, and the command that registers for it once per process.
const ORDER_THREADS: c_long = 1 << 3;
const MAY_ORDER_THREADS: c_long = 1 << 4;

/// Registers for [`order_threads`]; false on kernels before 4.14 and in some sandboxes.
pub(crate) fn can_order_threads() -> bool {
    // SAFETY: membarrier takes numbers and touches no memory.
    unsafe { call(libc::SYS_membarrier, [MAY_ORDER_THREADS, 0, 0, 0, 0, 0]) }.is_ok()
}

/// Makes every other thread of the process pass a full memory barrier.
pub(crate) fn order_threads() {
    // SAFETY: membarrier takes numbers and touches no memory. It fails only without the registration, which
    // succeeded.
    let _ = unsafe { call(libc::SYS_membarrier, [ORDER_THREADS, 0, 0, 0, 0, 0]) };
}

/// A variable of the environment, copied into `buffer` with its final zero.
pub(crate) fn environment<'a>(name: &CStr, buffer: &'a mut [u8]) -> Option<&'a CStr> {
    // SAFETY: `name` is a CStr and thus terminated. The result is terminated too and is copied at once, as a later
    // setenv may move it.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    let bytes = value.to_bytes_with_nul();
    buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
    CStr::from_bytes_with_nul(&buffer[..bytes.len()]).ok()
}
