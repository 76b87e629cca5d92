//! System calls without a safe wrapper: mounts, signals by pidfd, packets with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// A descriptor of a file through a detached read-only mount. Opening it through `/proc/self/fd` gives read
/// access, and no descriptor derived from that can be reopened for writing, even by root in a container.
/// Needs CAP_SYS_ADMIN and Linux 5.12.
///
/// # Errors
/// If the kernel fails.
pub fn detach_read_only(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    detach(file, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV, 0)
}

/// Like [`detach_read_only`], through a writable mount, whatever mount the file was opened through.
pub(crate) fn detach_writable(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    detach(file, libc::MOUNT_ATTR_NODEV, libc::MOUNT_ATTR_RDONLY)
}

fn detach(file: BorrowedFd<'_>, set: u64, clear: u64) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::O_CLOEXEC.cast_unsigned() | libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the descriptor is open for the duration of the borrow, and the empty path is a static C string.
    let tree = owned(unsafe { libc::syscall(libc::SYS_open_tree, file.as_raw_fd(), c"".as_ptr(), flags) })?;
    let attributes = libc::mount_attr {
        attr_set: set | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
        attr_clr: clear,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: `tree` is open, the empty path is a static C string, and the size passed is that of
    // `attributes`, which outlives the call.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if set == 0 { Ok(tree) } else { Err(io::Error::last_os_error()) }
}

/// A pidfd of the process with this pid; it keeps referring to that process if the pid is reused.
///
/// # Errors
/// If the kernel fails.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and accesses no memory of the caller.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0u32) })
}

/// Signals the process of a pidfd, and never another.
///
/// The receiver finds `SI_QUEUE` and the pid 0 as the origin: `tranche run` does not pass on a signal that the daemon sends to
/// each process of its slice.
///
/// # Errors
/// If the kernel fails.
pub fn send_signal(process: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    // SAFETY: a siginfo_t is a C struct of integers, of which all may be zero.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    (info.si_signo, info.si_code) = (signal as i32, libc::SI_QUEUE);
    // SAFETY: the descriptor is open for the duration of the borrow, and the siginfo lives until the call returns.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as i32, &raw const info, 0u32)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a packet, with a descriptor if given.
///
/// # Errors
/// If the kernel fails, or the peer has closed the socket.
pub fn send(socket: &OwnedFd, packet: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let numbers: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if numbers.is_empty() { &[][..] } else { &rights[..] };
    let parts = [IoSlice::new(packet)];
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Receives one packet with its descriptors; `None` once the peer has closed the socket. The length of a packet that
/// does not fit into the buffer is returned as zero.
///
/// # Errors
/// If the kernel fails.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            message => break message?,
        }
    };
    let mut descriptors = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            // SAFETY: the kernel has just created these descriptors for this message, each is converted once,
            // and nothing else in the process has their numbers.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    // Packets are never empty; a length of zero is the end of the stream.
    let is_whole = !message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
    match message.bytes {
        0 => Ok(None),
        length => Ok(Some((if is_whole { length } else { 0 }, descriptors))),
    }
}

/// Closes all inherited descriptors from `first` on.
pub(crate) fn close_inherited(first: libc::c_uint) -> io::Result<()> {
    // SAFETY: called at the start of the helper, before it opens anything, so no `OwnedFd` of the process is
    // closed.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just created this descriptor for the caller; nothing else has its number.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
