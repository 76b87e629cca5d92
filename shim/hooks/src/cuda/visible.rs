//! `CUDA_VISIBLE_DEVICES` during `cuInit`: the program's text, translated to the node's devices.
//!
//! The driver reads the variable once, in `cuInit`, and takes an index for one of the node. So for the length of that
//! call the variable names by UUID the devices that the program's own text selects of the slice, and then it is the
//! program's again. The slice's devices come from the daemon: the text can only leave out some.
//!
//! Other threads, and children that they start meanwhile, read the UUIDs, which mean the same devices to them. A
//! thread that sets the variable meanwhile is too late for the driver, and its text stays.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tranche_policy::{ENTRY_BYTES, Guard, Ledger, Lock, VARIABLE, Visible, uuid::Uuid};
use tranche_shm::MAX_DEVICES;

use crate::environment;
use crate::root::{Root, RootWord};
use crate::sys;

/// The shim's entry. It is never moved, because a child may be forked while the environment refers to it.
static ENTRY: [AtomicU8; ENTRY_BYTES] = [const { AtomicU8::new(0) }; ENTRY_BYTES];

fn ours() -> *mut c_char {
    ENTRY.as_ptr().cast_mut().cast()
}

/// Runs `begin`, the driver's start, with the slice's devices that the program selects.
pub(crate) fn within<T>(ledger: &Ledger<'static>, begin: impl FnOnce() -> T) -> T {
    let Some(root) = Root::get() else { return begin() };
    enter(root, ledger);
    let result = begin();
    leave(root);
    result
}

fn enter(root: Root, ledger: &Ledger<'static>) {
    let _alone = lock(root);
    if root.word(RootWord::Beginners).fetch_add(1, Relaxed) > 0 {
        return;
    }
    let own = environment::entry(VARIABLE);
    // SAFETY: an entry that was just found in the environment is null or ends with a zero.
    let visible = unsafe { chosen(own, ledger) };
    for (place, byte) in ENTRY.iter().zip(visible.entry()) {
        place.store(byte, Relaxed);
    }
    root.word(RootWord::OwnEntry).store(own as u64, Relaxed);
    // SAFETY: the entry is `NAME=text`, ends with a zero and is never freed.
    unsafe { environment::put(ours()) };
}

fn leave(root: Root) {
    let _alone = lock(root);
    if root.word(RootWord::Beginners).fetch_sub(1, Relaxed) > 1 || environment::entry(VARIABLE) != ours() {
        return;
    }
    match root.word(RootWord::OwnEntry).load(Relaxed) as *mut c_char {
        own if own.is_null() => environment::remove(VARIABLE),
        // SAFETY: it is the program's own entry, where the program put it and, as ours still stood in its place, left
        // it.
        own => unsafe { environment::put(own) },
    }
}

/// Takes the lock over the entry, under which no thread waits.
fn lock(root: Root) -> Guard<'static> {
    Lock::at(root.word(RootWord::Beginning), sys::pause).acquire()
}

/// # Safety
/// `own` must be null or end with a zero.
unsafe fn chosen(own: *mut c_char, ledger: &Ledger<'static>) -> Visible {
    let control = ledger.tenant().control;
    let mut devices: [Uuid; MAX_DEVICES] = [[0; 16]; MAX_DEVICES];
    for (place, slot) in devices.iter_mut().zip(control.devices()) {
        *place = control.limits(slot).uuid;
    }
    // SAFETY: not null here, and terminated by this function's contract.
    let own = (!own.is_null()).then(|| unsafe { CStr::from_ptr(own) });
    let text = own.and_then(|entry| entry.to_bytes().get(VARIABLE.count_bytes() + 1..));
    Visible::of(text, &devices[..control.device_count()])
}
