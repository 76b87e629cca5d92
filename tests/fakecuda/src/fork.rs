//! A forked child has no usable CUDA: like the real driver, every call there answers "not initialised".
//!
//! The parent's locks may be held by threads that the child does not have, so the mark is tested first.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static CHILD: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// Tests if this process came out of a fork after the driver was initialised.
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// Registers the handler that marks a forked child.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: `mark` lives as long as the library, which is never unloaded (see `build.rs`), and does
        // nothing but an atomic store, which is allowed after a fork.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(mark)) };
    });
}

extern "C" fn mark() {
    CHILD.store(true, Ordering::Relaxed);
}
