//! Mappings: shared regions, private words and rooms, and files that are read whole.

use core::ffi::CStr;
use core::mem::size_of;
use core::sync::atomic::AtomicU64;

use libc::{c_int, c_long, c_void};

use super::call::{Errno, call};
use super::{Fd, file_id};

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
    let hidden = unsafe { advise(again as usize, bytes, libc::MADV_DONTFORK) };
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
    let wiped = unsafe { advise(address as usize, bytes, libc::MADV_WIPEONFORK) };
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
    let _ = unsafe { advise(first, length, libc::MADV_POPULATE_WRITE) };
}

/// Advises the kernel about pages.
///
/// # Safety
/// They must be of a mapping of the shim, whose use the advice must permit.
unsafe fn advise(start: usize, bytes: usize, advice: c_int) -> Result<c_long, Errno> {
    // SAFETY: the pages are the shim's and the advice permits their use, by this function's contract.
    unsafe { call(libc::SYS_madvise, [start as c_long, bytes as c_long, advice as c_long, 0, 0, 0]) }
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
