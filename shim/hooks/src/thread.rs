//! Launches that a thread may make without the gate: its own numbers, decremented by each launch.
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

/// Bits of [`ThreadWords::device`] that hold a device.
const DEVICE_BITS: u32 = 8;
const DEVICE_MASK: u32 = (1 << DEVICE_BITS) - 1;
const _: () = assert!(tranche_shm::MAX_DEVICES < DEVICE_MASK as usize);

/// The words, in the order in which `jump!` reads them.
#[repr(C)]
struct ThreadWords {
    /// Turn of the lease under which the others are valid.
    turn: AtomicU32,
    /// Launches left; below zero, as a signed number, once a launch exceeded the grant.
    left: AtomicU32,
    /// Launches of the last grant.
    granted: AtomicU32,
    /// In the lower eight bits the number of the device of these launches, plus one; 0 without a count.
    ///
    /// Above them is the serial number of the thread; 0 until it is needed.
    device: AtomicU32,
}

fn words<'a>() -> &'a ThreadWords {
    // SAFETY: sixteen bytes, aligned, of this thread's own storage, zero at first and valid as long as it runs;
    // callers use the reference within one call.
    unsafe { &*machine::storage().cast::<ThreadWords>() }
}

/// A number that no other living thread has.
pub(crate) fn number() -> u64 {
    core::ptr::from_ref(words()) as u64
}

/// A number that no other living thread has, nor thousands before in the same storage.
pub(crate) fn queue_number() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let device = &words().device;
    let mut serial = device.load(Relaxed) >> DEVICE_BITS;
    if serial == 0 {
        serial = (NEXT.fetch_add(1, Relaxed) & (u32::MAX >> DEVICE_BITS)).max(1);
        device.store(device.load(Relaxed) | serial << DEVICE_BITS, Relaxed);
    }
    // Addresses of programs end below, and the bits above are those of kinds of queues.
    number() | u64::from(serial & 0x3fff) << 48
}

/// Withdraws the thread's grant and returns how many launches it used.
pub(crate) fn spend() -> Spent {
    let words = words();
    let left = (take(&words.left) as i32).max(0) as u32;
    let device = words.device.load(Relaxed) & DEVICE_MASK;
    let device = (device as usize).checked_sub(1).and_then(DeviceSlot::new);
    Spent { launches: take(&words.granted).saturating_sub(left), device }
}

/// Only this thread writes the word, so load and store need not be one atomic step.
fn take(word: &AtomicU32) -> u32 {
    let taken = word.load(Relaxed);
    word.store(0, Relaxed);
    taken
}

/// Grants the thread launches that bypass the gate's slow path.
pub(crate) fn grant(grant: Grant) {
    let words = words();
    // This turn belongs to no lease.
    let launches = if grant.turn == u32::MAX { 0 } else { grant.launches.min(i32::MAX as u32) };
    words.turn.store(grant.turn, Relaxed);
    words.granted.store(launches, Relaxed);
    let serial = words.device.load(Relaxed) & !DEVICE_MASK;
    words.device.store(serial | grant.device.map_or(0, |device| device.index() as u32 + 1), Relaxed);
    words.left.store(launches, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_the_storage_of_another_has_a_number_of_its_own() {
        let numbers = || {
            let numbers = (queue_number(), queue_number());
            grant(Grant { turn: 1, launches: 5, device: DeviceSlot::new(3) });
            assert_eq!(spend(), Spent { launches: 0, device: DeviceSlot::new(3) });
            assert_eq!((queue_number(), queue_number()), numbers);
            (number(), numbers.0)
        };
        let each: Vec<_> = (0..20).map(|_| std::thread::spawn(numbers).join().unwrap()).collect();
        for (at, (storage, queue)) in each.iter().enumerate() {
            assert!(each[..at].iter().all(|(_, other)| other != queue), "{storage:x}: {each:x?}");
        }
        assert!(each.windows(2).any(|two| two[0].0 == two[1].0), "no storage was used twice: {each:x?}");
    }
}
