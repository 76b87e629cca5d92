//! System calls of the shim, none of them a cancellation point, all of them leaving `errno` alone.

mod call;
mod mapping;
mod time;

use core::ffi::CStr;
use core::mem::{size_of, zeroed};

use libc::{c_int, c_long};
use tranche_shm::message::{FRAME_BYTES, Frame};

pub(crate) use call::Errno;
use call::call;
pub(crate) use mapping::{
    MappingAccess, ZeroedRoom, back, map_again, map_private, map_shared, open_private, unmap_again,
    unmap_unseen, with_file,
};
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
