//! A lock that is one word: free is zero, so a forked child that finds zeroes finds it free.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// How a thread lets others run while it waits. It must not fail and must not take locks.
pub type Pause = fn();

/// Tries before a waiting thread lets others run: about what a table operation takes.
const SPINS: u32 = 64;

/// A lock over one word.
#[derive(Clone, Copy, Debug)]
pub struct Lock<'a> {
    word: &'a AtomicU64,
    pause: Pause,
}

impl<'a> Lock<'a> {
    /// The lock that `word` is.
    pub const fn at(word: &'a AtomicU64, pause: Pause) -> Self {
        Self { word, pause }
    }

    /// Waits until the lock is free and takes it.
    pub fn acquire(self) -> Guard<'a> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_acquire() {
                return guard;
            }
            spins += 1;
            if spins < SPINS { core::hint::spin_loop() } else { (self.pause)() }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(self) -> Option<Guard<'a>> {
        let taken = self.word.compare_exchange(0, 1, Acquire, Relaxed);
        taken.ok().map(|_| Guard(self.word))
    }
}

/// The lock is held while this lives.
#[must_use = "the lock is free again as soon as this is dropped"]
#[derive(Debug)]
pub struct Guard<'a>(&'a AtomicU64);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}
