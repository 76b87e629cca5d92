//! System calls that no library reaches safely: mounts, signals by pidfd, received descriptors.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// A descriptor that names a file through a detached mount of its own that nobody can write through. Opening it by
/// `/proc/self/fd` gives the file for reading, and no descriptor made from that can be opened for writing again, by
/// root in a container either. Needs CAP_SYS_ADMIN and Linux 5.12.
///
/// # Errors
/// The kernel's.
pub fn detach_read_only(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    detach(file, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV, 0)
}

/// The same, through a mount that this process can write through, whatever the one is that the file was opened through.
pub(crate) fn detach_writable(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    detach(file, libc::MOUNT_ATTR_NODEV, libc::MOUNT_ATTR_RDONLY)
}

fn detach(file: BorrowedFd<'_>, set: u64, clear: u64) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::O_CLOEXEC.cast_unsigned() | libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the descriptor is open for the time of the borrow, and the empty path is NUL-terminated and static.
    let tree = owned(unsafe { libc::syscall(libc::SYS_open_tree, file.as_raw_fd(), c"".as_ptr(), flags) })?;
    let attributes = libc::mount_attr {
        attr_set: set | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
        attr_clr: clear,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: `tree` is open, the empty path is NUL-terminated and static, and `attributes` is of the size that is passed
    // and outlives the call.
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

/// A handle on the process of that pid, which stays that process's even when the pid is used again.
///
/// # Errors
/// The kernel's.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: `pidfd_open` takes two integers; the kernel checks them.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0u32) })
}

/// Sends a signal to the process that a pidfd names, and to no other.
///
/// # Errors
/// The kernel's.
pub fn send_signal(process: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the time of the borrow; no siginfo is passed.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as i32, no_info, 0u32)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives one packet with the descriptors that came with it; nothing once the other end is gone.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
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
            // SAFETY: the kernel has just made these descriptors for this message, each is taken over once, and nothing
            // else in this process knows their numbers.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    // A packet is never empty: that is the end.
    let is_whole = !message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
    match message.bytes {
        0 => Ok(None),
        length => Ok(Some((if is_whole { length } else { 0 }, descriptors))),
    }
}

/// Closes every descriptor from `first` on that the program was started with.
pub(crate) fn close_inherited(first: libc::c_uint) -> io::Result<()> {
    // SAFETY: called at the start of the helper's process, before it has opened anything: no `OwnedFd` of it has such a
    // number.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for the caller; nothing else knows its number.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
