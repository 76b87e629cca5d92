//! What a thread may launch without asking: two numbers of its own, compared and counted down by each launch.
//!
//! They lie in thread-local storage that is reached by one addition (initial-exec). A library that is opened late
//! finds little room for such storage, so there are sixteen bytes of it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tranche_policy::Grant;

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
    unused: u32,
}

fn words<'a>() -> &'a Words {
    let address: *const Words;
    // SAFETY: the thread pointer's first word is its own address on x86-64, and the other number is where in this
    // thread's storage the words are. Neither memory nor flags that anybody relies on are changed.
    unsafe {
        core::arch::asm!(
            "mov {address}, qword ptr fs:[0]",
            "add {address}, qword ptr [rip + tranche_thread@GOTTPOFF]",
            address = out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: sixteen bytes, aligned, of this thread's own storage, zero at first and valid as long as it runs;
    // nothing keeps the reference beyond a call.
    unsafe { &*address }
}

/// A number that no other thread has while this one lives.
pub(crate) fn number() -> u64 {
    core::ptr::from_ref(words()) as u64
}

/// Takes back what the thread may launch; says how many it has launched by itself.
pub(crate) fn spend() -> u32 {
    let words = words();
    let left = (words.left.swap(0, Relaxed) as i32).max(0) as u32;
    words.granted.swap(0, Relaxed).saturating_sub(left)
}

/// From now on the thread may launch so much by itself.
pub(crate) fn grant(grant: Grant) {
    let words = words();
    // This turn stands for no lease at all.
    let launches = if grant.turn == u32::MAX { 0 } else { grant.launches.min(i32::MAX as u32) };
    words.turn.store(grant.turn, Relaxed);
    words.granted.store(launches, Relaxed);
    words.left.store(launches, Relaxed);
}
