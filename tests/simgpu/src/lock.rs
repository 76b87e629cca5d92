//! A lock in shared memory that outlives whoever holds it.
//!
//! The word holds the stamp of the holding thread, so a waiter can see that the holder is dead and take over. No
//! pthread condition variable: killing one of its waiters was seen to stall the others.
#![forbid(unsafe_code)]

use std::hint;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

use crate::sys;
use crate::world::{self, Stamp};

/// How long a waiter sleeps before it looks whether the holder is dead. Bounds a lost wake-up, too.
const PATIENCE: Duration = Duration::from_millis(2);
const SPINS: u32 = 100;

/// Three words: the holder's stamp, a count to sleep on, and whether somebody sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock<'a> {
    pub(crate) holder: &'a AtomicU64,
    pub(crate) turns: &'a AtomicU64,
    pub(crate) contended: &'a AtomicU64,
}

/// A held lock; freed on drop.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    lock: Lock<'a>,
    /// Whether the last holder died holding it, so that what it guards may be half written.
    pub(crate) inherited: bool,
}

impl<'a> Lock<'a> {
    /// Takes the lock, waiting as long as a living thread holds it.
    pub(crate) fn hold(self) -> Held<'a> {
        let me = world::this_thread();
        for _ in 0..SPINS {
            if self.try_pass(0, me) {
                return Held { lock: self, inherited: false };
            }
            hint::spin_loop();
        }
        self.hold_with_patience(me)
    }

    fn hold_with_patience(self, me: Stamp) -> Held<'a> {
        loop {
            let turn = self.turns.load(Acquire) as u32;
            self.contended.store(1, Release);
            let holder = self.holder.load(Acquire);
            if holder == 0 && self.try_pass(0, me) {
                return Held { lock: self, inherited: false };
            }
            if holder != 0 {
                sys::sleep_on(self.turns, turn, PATIENCE);
            }
            let stuck = holder != 0 && self.holder.load(Acquire) == holder;
            if stuck && !world::thread_lives(Stamp(holder)) && self.try_pass(holder, me) {
                return Held { lock: self, inherited: true };
            }
        }
    }

    fn try_pass(self, from: u64, to: Stamp) -> bool {
        self.holder.compare_exchange(from, to.0, AcqRel, Relaxed).is_ok()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.holder.store(0, Release);
        if self.lock.contended.swap(0, AcqRel) != 0 {
            self.lock.turns.fetch_add(1, Release);
            sys::wake(self.lock.turns, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> [AtomicU64; 3] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    fn lock(words: &[AtomicU64; 3]) -> Lock<'_> {
        Lock { holder: &words[0], turns: &words[1], contended: &words[2] }
    }

    #[test]
    fn only_one_thread_at_a_time_is_inside() {
        let words = words();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let _held = lock(&words).hold();
                        let seen = count.load(Relaxed);
                        hint::spin_loop();
                        count.store(seen + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 20_000);
    }

    #[test]
    fn the_lock_of_a_dead_holder_is_taken_over_and_the_heir_knows() {
        let words = words();
        std::thread::scope(|scope| scope.spawn(|| std::mem::forget(lock(&words).hold())).join().unwrap());
        assert!(lock(&words).hold().inherited);
        assert!(!lock(&words).hold().inherited);
    }
}
