//! The slice's bell: how a process says that the daemon had better look at it, without a message.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use crate::sys::{self, Fd};

/// The bell's number, and which file it was when it came. Unlike the root this survives a fork, and may: a child's
/// bell is its parent's.
static BELL: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Takes a bell and lets the one before go.
pub(crate) fn hang(bell: Fd) {
    let bell = bell.moved_high();
    let Ok(id) = sys::file_id(bell.raw()) else { return };
    if let Some(former) = raw() {
        drop(Fd::from_raw(former));
    }
    INODE.store(id.inode, Relaxed);
    BELL.store(bell.into_raw(), Relaxed);
}

/// Rings; says whether there was anything to ring.
pub(crate) fn ring() -> bool {
    raw().is_some_and(|bell| sys::ring(bell).is_ok())
}

/// The number, if it still stands for such a file: a program may have closed it, or put another one there.
fn raw() -> Option<i32> {
    let raw = BELL.load(Relaxed);
    let is_it = |id: sys::FileId| id.inode == INODE.load(Relaxed) && !id.regular;
    (raw >= 0 && sys::file_id(raw).is_ok_and(is_it)).then_some(raw)
}
