//! What a thread may launch without asking: two numbers of its own, compared and counted down by each launch.
//!
//! They lie in thread-local storage that is reached by one addition (initial-exec). A library that is opened late
//! finds little room for such storage, so there are sixteen bytes of it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tranche_policy::{Grant, Spent};
use tranche_shm::DeviceSlot;

use crate::machine;

core::arch::global_asm!(
    ".section .tbss.tranche_thread, \"awT\", @nobits",
    ".hidden tranche_thread",
    ".globl tranche_thread",
    ".type tranche_thread, @object",
    ".size tranche_thread, 16",
    ".balign 16",
    "tranche_thread:",
    ".zero 16",
    ".previous",
);

/// The words, in the order in which [`crate::launch::jump`] reads them.
#[repr(C)]
struct Words {
    /// The turn of the lease under which the rest holds.
    turn: AtomicU32,
    /// Launches left; below zero, as a signed number, once somebody has asked for one too many.
    left: AtomicU32,
    /// Launches granted.
    granted: AtomicU32,
    /// One more than the number of the device for which they were; 0 if they are not counted.
    device: AtomicU32,
}

fn words<'a>() -> &'a Words {
    // SAFETY: sixteen bytes, aligned, of this thread's own storage, zero at first and valid as long as it runs;
    // nothing keeps the reference beyond a call.
    unsafe { &*machine::storage().cast::<Words>() }
}

/// A number that no other thread has while this one lives.
pub(crate) fn number() -> u64 {
    core::ptr::from_ref(words()) as u64
}

/// Takes back what the thread may launch; says how many it has launched by itself.
pub(crate) fn spend() -> Spent {
    let words = words();
    let left = (take(&words.left) as i32).max(0) as u32;
    let device = (words.device.load(Relaxed) as usize).checked_sub(1).and_then(DeviceSlot::new);
    Spent { launches: take(&words.granted).saturating_sub(left), device }
}

/// Only this thread writes there, so that it need not be one step to the machine.
fn take(word: &AtomicU32) -> u32 {
    let taken = word.load(Relaxed);
    word.store(0, Relaxed);
    taken
}

/// From now on the thread may launch so much by itself.
pub(crate) fn grant(grant: Grant) {
    let words = words();
    // This turn stands for no lease at all.
    let launches = if grant.turn == u32::MAX { 0 } else { grant.launches.min(i32::MAX as u32) };
    words.turn.store(grant.turn, Relaxed);
    words.granted.store(launches, Relaxed);
    words.device.store(grant.device.map_or(0, |device| device.index() as u32 + 1), Relaxed);
    words.left.store(launches, Relaxed);
}
