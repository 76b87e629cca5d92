//! The wakeup eventfd, by which a process signals the daemon to read its compute record.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use crate::sys::{self, Fd};

/// Descriptor of the eventfd, and its file's identity on arrival.
///
/// Unlike the root this survives a fork, as it may: a child's eventfd is its parent's.
static BELL: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Keeps a new eventfd and closes the one before.
pub(crate) fn hang(bell: Fd) {
    let bell = bell.moved_high();
    let Ok(id) = sys::file_id(bell.raw()) else { return };
    if let Some(former) = raw() {
        drop(Fd::from_raw(former));
    }
    INODE.store(id.inode, Relaxed);
    BELL.store(bell.into_raw(), Relaxed);
}

/// Signals the daemon; false if there is no eventfd.
pub(crate) fn ring() -> bool {
    raw().is_some_and(|bell| sys::ring(bell).is_ok())
}

/// The descriptor, if it still refers to that file: a program may have closed or reused it.
fn raw() -> Option<i32> {
    let raw = BELL.load(Relaxed);
    let is_it = |id: sys::FileId| id.inode == INODE.load(Relaxed) && !id.regular;
    (raw >= 0 && sys::file_id(raw).is_ok_and(is_it)).then_some(raw)
}
