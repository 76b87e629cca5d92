//! A lock in shared memory that outlives its holder.
//!
//! The word holds the stamp of the holding thread, so a waiter can see that the holder is dead, or stopped by
//! a signal or a debugger, and take over. A stopped one may resume one day, in the midst of what it was
//! doing: on release it then finds that the lock is not its own any more and sets a flag, on which the next
//! holder makes the sums anew. No pthread condition variable: killing one of its waiters was seen to stall
//! the others.
#![forbid(unsafe_code)]

use std::hint;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

use crate::sys;
use crate::world::{self, Stamp};

/// Longest sleep of a waiter before it checks for a dead holder. Bounds a lost wakeup, too.
const PATIENCE: Duration = Duration::from_millis(2);
const SPINS: u32 = 100;

/// A waiter sleeps until the lock is free.
const CONTENDED: u64 = 1;
/// A thread that had lost the lock resumed inside it.
const SPOILED: u64 = 2;

/// Three words: the holder's stamp, a count to sleep on, and flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock<'a> {
    pub(crate) holder: &'a AtomicU64,
    pub(crate) turns: &'a AtomicU64,
    pub(crate) flags: &'a AtomicU64,
}

/// A held lock; freed on drop.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    lock: Lock<'a>,
    me: Stamp,
    /// True if a holder was interrupted inside, so that what the lock guards may be half written.
    pub(crate) inherited: bool,
}

impl<'a> Lock<'a> {
    /// Takes the lock, waiting as long as a running thread holds it.
    pub(crate) fn hold(self) -> Held<'a> {
        let me = world::this_thread();
        let taken_over = !self.try_spin(me) && self.wait(me);
        let spoiled = self.flags.load(Acquire) & SPOILED != 0;
        if spoiled {
            self.flags.fetch_and(!SPOILED, AcqRel);
        }
        Held { lock: self, me, inherited: taken_over || spoiled }
    }

    fn try_spin(self, me: Stamp) -> bool {
        for _ in 0..SPINS {
            if self.try_pass(0, me) {
                return true;
            }
            hint::spin_loop();
        }
        false
    }

    /// Waits until the lock is this thread's. Returns true if it was taken from another one.
    fn wait(self, me: Stamp) -> bool {
        loop {
            let turn = self.turns.load(Acquire) as u32;
            self.flags.fetch_or(CONTENDED, AcqRel);
            let holder = self.holder.load(Acquire);
            if holder == 0 {
                if self.try_pass(0, me) {
                    return false;
                }
                continue;
            }
            sys::sleep_on(self.turns, turn, PATIENCE);
            let stuck = self.holder.load(Acquire) == holder;
            if stuck && !world::thread_runs(Stamp(holder)) && self.try_pass(holder, me) {
                return true;
            }
        }
    }

    fn try_pass(self, from: u64, to: Stamp) -> bool {
        self.holder.compare_exchange(from, to.0, AcqRel, Relaxed).is_ok()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.lock.holder.compare_exchange(self.me.0, 0, AcqRel, Relaxed).is_err() {
            self.lock.flags.fetch_or(SPOILED, AcqRel);
            return;
        }
        if self.lock.flags.load(Acquire) & CONTENDED != 0 {
            self.lock.flags.fetch_and(!CONTENDED, AcqRel);
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
        Lock { holder: &words[0], turns: &words[1], flags: &words[2] }
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

    #[test]
    fn whoever_lost_the_lock_and_goes_on_makes_the_next_one_check_everything() {
        let words = words();
        let stopped = lock(&words).hold();
        words[0].store(Stamp::new(1, 1).0, Release);
        drop(stopped);
        assert_eq!(words[0].load(Acquire), Stamp::new(1, 1).0, "the heir keeps the lock");
        words[0].store(0, Release);
        assert!(lock(&words).hold().inherited);
        assert!(!lock(&words).hold().inherited);
    }
}
