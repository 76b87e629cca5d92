//! The gate of the entry points, shut while the process is locked.
//!
//! A call that comes to the shut gate waits; one that is inside continues. What is called from inside, as a function that
//! the program gave, passes: a lock waits for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};

static SHUT: AtomicBool = AtomicBool::new(false);
/// Calls inside, of all threads.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Held while the gate is opened, and while a call sees it shut and falls asleep.
static WAITING: Mutex<()> = Mutex::new(());
static OPENED: Condvar = Condvar::new();

thread_local! {
    /// Calls inside of which this thread is.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A call that is inside; leaves when dropped.
pub(crate) struct Inside {
    counted: bool,
}

/// Enters, or waits until the gate is open. No gate is there where the driver cannot lock processes.
pub(crate) fn enter() -> Inside {
    if !crate::personality::has_checkpoints() {
        return Inside { counted: false };
    }
    // A thread that is ending has no depth any more; its calls are single ones.
    let outermost = DEPTH.try_with(Cell::get).unwrap_or(0) == 0;
    if outermost {
        pass();
        set_depth(1);
    }
    Inside { counted: outermost }
}

fn pass() {
    loop {
        INSIDE.fetch_add(1, SeqCst);
        if !SHUT.load(SeqCst) {
            return;
        }
        INSIDE.fetch_sub(1, SeqCst);
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        while SHUT.load(SeqCst) {
            waiting = OPENED.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn set_depth(depth: usize) {
    let _ = DEPTH.try_with(|known| known.set(depth));
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.counted {
            set_depth(0);
            INSIDE.fetch_sub(1, SeqCst);
        }
    }
}

/// Lets all calls of this thread pass: it belongs to the driver.
pub(crate) fn exempt_this_thread() {
    set_depth(1);
}

/// Shuts the gate; calls that are inside stay there.
pub(crate) fn shut() {
    SHUT.store(true, SeqCst);
}

/// Opens the gate for all that wait.
pub(crate) fn open() {
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    SHUT.store(false, SeqCst);
    drop(waiting);
    OPENED.notify_all();
}

/// Tests if no call is inside.
pub(crate) fn is_empty() -> bool {
    INSIDE.load(SeqCst) == 0
}
