//! The bytes of device memory, as host mappings.
//!
//! They are made when first written, so that a large allocation costs nothing.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::status::{Outcome, Status};
use crate::wall::{Host, copy};

/// Fills are made of patterns of at most this many bytes at a time.
const PAGE: u64 = 4096;

/// The bytes of one allocation or shared block.
pub(crate) struct Backing {
    size: u64,
    storage: Mutex<Storage>,
}

enum Storage {
    /// Nothing written yet: all zero.
    Untouched,
    /// Mapped by this library.
    Mapped { at: Host, file: Option<File> },
    /// The caller's own memory, registered with the driver.
    Borrowed(Host),
    /// Kept elsewhere while its GPU is given up; `None` if nothing was written yet.
    Away(Option<Host>),
}

impl Backing {
    /// Zeros that take no memory until written.
    pub(crate) fn sparse(size: u64) -> Self {
        Self { size, storage: Mutex::new(Storage::Untouched) }
    }

    /// Memory that the host can use at its own address too.
    pub(crate) fn mapped(size: u64) -> Outcome<Self> {
        let backing = Self::sparse(size);
        backing.host(0, size)?;
        Ok(backing)
    }

    /// Memory of the caller's.
    pub(crate) fn borrowed(at: Host, size: u64) -> Self {
        Self { size, storage: Mutex::new(Storage::Borrowed(at)) }
    }

    /// Bytes that another allocation shares through a file.
    pub(crate) fn from_file(file: File, size: u64) -> Outcome<Self> {
        let at = map(size, Some(&file))?;
        Ok(Self { size, storage: Mutex::new(Storage::Mapped { at, file: Some(file) }) })
    }

    /// Length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The host address of `offset..offset + bytes`; outside it is an invalid value.
    pub(crate) fn host(&self, offset: u64, bytes: u64) -> Outcome<Host> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.size) {
            return Err(Status::InvalidValue);
        }
        let mut storage = self.storage();
        if let Storage::Untouched = *storage {
            *storage = Storage::Mapped { at: map(self.size, None)?, file: None };
        }
        match *storage {
            Storage::Mapped { at, .. } | Storage::Borrowed(at) => Ok(Host::at(at.address() + offset)),
            Storage::Untouched | Storage::Away(_) => Err(Status::Unknown),
        }
    }

    /// Moves the bytes to where nothing reaches them. What a file shared with other processes is a copy from then on.
    pub(crate) fn leave(&self) -> Outcome {
        let mut storage = self.storage();
        let kept = match &*storage {
            Storage::Untouched => None,
            Storage::Mapped { at, file: None } => Some(moved(*at, self.size)?),
            Storage::Mapped { at, file: Some(_) } => {
                let kept = map(self.size, None)?;
                copy(*at, kept, self.size as usize);
                unmap(*at, self.size);
                Some(kept)
            }
            Storage::Borrowed(_) | Storage::Away(_) => return Ok(()),
        };
        *storage = Storage::Away(kept);
        Ok(())
    }

    /// Brings the bytes back that left.
    pub(crate) fn come_back(&self) -> Outcome {
        let mut storage = self.storage();
        if let Storage::Away(kept) = *storage {
            *storage = match kept {
                Some(kept) => Storage::Mapped { at: moved(kept, self.size)?, file: None },
                None => Storage::Untouched,
            };
        }
        Ok(())
    }

    /// The file other processes can map these bytes from, made at the first call.
    pub(crate) fn file(&self) -> Outcome<File> {
        let mut storage = self.storage();
        let before = match &*storage {
            Storage::Mapped { file: Some(file), .. } => {
                return file.try_clone().map_err(|_| Status::OperatingSystem);
            }
            Storage::Borrowed(_) | Storage::Away(_) => return Err(Status::InvalidValue),
            Storage::Mapped { at, file: None } => Some(*at),
            Storage::Untouched => None,
        };
        let file = memory_file(self.size)?;
        let at = map(self.size, Some(&file))?;
        if let Some(before) = before {
            copy(before, at, self.size as usize);
            unmap(before, self.size);
        }
        let handle = file.try_clone().map_err(|_| Status::OperatingSystem)?;
        *storage = Storage::Mapped { at, file: Some(file) };
        Ok(handle)
    }

    /// Fills `bytes` from `offset` with a pattern; zeros over whole pages stay free of charge.
    pub(crate) fn fill(&self, offset: u64, bytes: u64, pattern: &[u8]) -> Outcome {
        let zeros = pattern.iter().all(|byte| *byte == 0);
        if zeros && offset == 0 && bytes == self.size && self.forget() {
            return Ok(());
        }
        if zeros && matches!(*self.storage(), Storage::Untouched) {
            return self.in_bounds(offset, bytes);
        }
        let to = self.host(offset, bytes)?;
        let page: Vec<u8> = pattern.iter().copied().cycle().take(PAGE as usize).collect();
        let from = Host(page.as_ptr().cast_mut().cast());
        for done in (0..bytes).step_by(page.len()) {
            copy(from, Host::at(to.address() + done), (bytes - done).min(PAGE) as usize);
        }
        Ok(())
    }

    /// Tests if none of it has been written yet.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(*self.storage(), Storage::Untouched)
    }

    fn in_bounds(&self, offset: u64, bytes: u64) -> Outcome {
        offset.checked_add(bytes).filter(|end| *end <= self.size).map(|_| ()).ok_or(Status::InvalidValue)
    }

    /// Makes private bytes all zero again by dropping them; false for bytes of a file or of the caller.
    fn forget(&self) -> bool {
        match *self.storage() {
            Storage::Untouched => true,
            // SAFETY: an anonymous private mapping of this library of exactly this size; dropping its pages makes it
            // zero.
            Storage::Mapped { at, file: None } => unsafe {
                libc::madvise(at.0, self.size as usize, libc::MADV_DONTNEED) == 0
            },
            Storage::Mapped { file: Some(_), .. } | Storage::Borrowed(_) | Storage::Away(_) => false,
        }
    }

    fn storage(&self) -> MutexGuard<'_, Storage> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Storage::Mapped { at, .. } | Storage::Away(Some(at)) = *self.storage() {
            unmap(at, self.size);
        }
    }
}

fn map(size: u64, file: Option<&File>) -> Outcome<Host> {
    let length = usize::try_from(size).map_err(|_| Status::OutOfMemory)?;
    let (flags, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: no address is given, so no existing mapping can be touched; `fd` is open or -1 as the flags require.
    let at = unsafe { libc::mmap(null_mut(), length, protection, flags | libc::MAP_NORESERVE, fd, 0) };
    if at == libc::MAP_FAILED { Err(Status::OutOfMemory) } else { Ok(Host(at)) }
}

/// Moves private bytes to another address, at which they alone are mapped.
fn moved(at: Host, size: u64) -> Outcome<Host> {
    let (length, to) = (size as usize, map(size, None)?);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ranges came from `map` with this size, and their owner forgets the old address with this call; the
    // new range holds nothing yet, so that nothing is lost where the kernel replaces it.
    let moved = unsafe { libc::mremap(at.0, length, length, flags, to.0) };
    if moved == libc::MAP_FAILED {
        unmap(to, size);
        return Err(Status::OutOfMemory);
    }
    Ok(to)
}

fn unmap(at: Host, size: u64) {
    // SAFETY: `at` came from `map` with this size, and its owner forgets it with this call.
    unsafe { libc::munmap(at.0, size as usize) };
}

fn memory_file(size: u64) -> Outcome<File> {
    // SAFETY: the name is a zero-terminated constant.
    let fd = unsafe { libc::memfd_create(c"simulated-gpu-memory".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Status::OperatingSystem);
    }
    // SAFETY: a fresh descriptor, of which this is the only owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(size).map_err(|_| Status::OutOfMemory)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::Backing;
    use crate::wall::Host;

    #[test]
    fn bytes_survive_becoming_a_file() {
        let backing = Backing::sparse(1 << 20);
        backing.fill(4096, 8, &[1, 2]).unwrap();
        let twin = Backing::from_file(backing.file().unwrap(), 1 << 20).unwrap();
        assert_eq!(twin.host(4096, 8).unwrap().bytes(9).unwrap(), [1, 2, 1, 2, 1, 2, 1, 2, 0]);
        backing.fill(4096, 1, &[9]).unwrap();
        assert_eq!(twin.host(4096, 8).unwrap().read::<u8>().unwrap(), 9);
    }

    #[test]
    fn bytes_that_left_are_out_of_reach_and_come_back_whole() {
        let (written, empty, shared) =
            (Backing::sparse(1 << 20), Backing::sparse(1 << 50), Backing::sparse(1 << 20));
        written.fill(4096, 8, &[1, 2]).unwrap();
        shared.fill(8, 8, &[3]).unwrap();
        let twin = Backing::from_file(shared.file().unwrap(), 1 << 20).unwrap();
        for backing in [&written, &empty, &shared] {
            backing.leave().unwrap();
            assert!(backing.host(0, 1).is_err() && backing.file().is_err() && !backing.is_untouched());
        }
        for backing in [&written, &empty, &shared] {
            backing.come_back().unwrap();
        }
        assert_eq!(written.host(4096, 8).unwrap().bytes(9).unwrap(), [1, 2, 1, 2, 1, 2, 1, 2, 0]);
        assert!(empty.is_untouched());
        twin.fill(8, 8, &[4]).unwrap();
        assert_eq!(shared.host(8, 8).unwrap().bytes(8).unwrap(), [3; 8], "it is shared still");
    }

    #[test]
    fn outside_is_refused_and_all_zeros_cost_nothing() {
        let backing = Backing::sparse(1 << 50);
        backing.fill(0, 1 << 50, &[0]).unwrap();
        assert!(backing.host(1 << 50, 1).is_err());
        assert_eq!(Backing::borrowed(Host::NULL, 8).size(), 8);
    }
}
