//! A lock in one word: even means free, so a forked child, which finds zeroes, finds it free.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// Lets other threads run while the caller waits.
///
/// Its argument is the number of earlier pauses of this wait.
/// It must not fail and must not take locks. After some pauses it has to sleep: else a waiting thread of a higher
/// priority could keep the holder from running.
pub type Pause = fn(u32);

/// Tries before a waiting thread lets others run: about the length of a table operation.
const SPINS: u32 = 64;

/// A lock over one word: odd while it is held, and another even number each time it is free again.
///
/// A reader without the lock compares the numbers to detect that a thread wrote meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Lock<'a> {
    word: &'a AtomicU64,
    pause: Pause,
}

impl<'a> Lock<'a> {
    /// The lock whose state is in `word`.
    #[inline(always)]
    pub const fn at(word: &'a AtomicU64, pause: Pause) -> Self {
        Self { word, pause }
    }

    /// Waits until the lock is free and takes it.
    #[inline(always)]
    pub fn acquire(self) -> Guard<'a> {
        match self.try_acquire() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(self) -> Guard<'a> {
        let mut spins = 0u32;
        loop {
            if let Some(guard) = self.try_acquire() {
                return guard;
            }
            spins = spins.saturating_add(1);
            if spins < SPINS { core::hint::spin_loop() } else { (self.pause)(spins - SPINS) }
        }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_acquire(self) -> Option<Guard<'a>> {
        let free = self.word.load(Relaxed) & !1;
        self.word.compare_exchange(free, free | 1, Acquire, Relaxed).ok()?;
        // A thread that reads a store made from here on reads that the lock is held: see `UnlockedRead`.
        fence(Release);
        Some(Guard { word: self.word, free })
    }

    /// Begins a read without the lock; `None` while a thread holds it.
    #[inline(always)]
    pub fn glance(self) -> Option<UnlockedRead<'a>> {
        let before = self.word.load(Acquire);
        (before & 1 == 0).then_some(UnlockedRead { word: self.word, before })
    }
}

/// A read of locked data without the lock, which may find half-written values.
///
/// It is no closure that is called in between, because the compiler emits a function for a closure with many reads.
#[must_use = "what was seen is good only if no thread wrote meanwhile"]
#[derive(Clone, Copy, Debug)]
pub struct UnlockedRead<'a> {
    word: &'a AtomicU64,
    before: u64,
}

impl UnlockedRead<'_> {
    /// True if no thread held the lock since, so that the values read belong together.
    #[inline(always)]
    pub fn was_undisturbed(self) -> bool {
        // If any load before read a holder's store, this fence pairs with the one in `try_acquire`, and the load
        // below reads that the lock was taken.
        fence(Acquire);
        self.word.load(Relaxed) == self.before
    }
}

/// Ownership of the lock until it is dropped.
#[must_use = "the lock is free again as soon as this is dropped"]
#[derive(Debug)]
pub struct Guard<'a> {
    word: &'a AtomicU64,
    free: u64,
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.word.store(self.free.wrapping_add(2), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most often that a thread had waited before, and how often until the holder lets go.
    static WAITED: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn waiting_thread_pauses_with_growing_counts() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        let lock = Lock::at(&WORD, |before| {
            let expected = WAITED.fetch_add(1, Relaxed);
            assert_eq!(u64::from(before), expected);
            std::thread::yield_now();
        });
        let held = lock.acquire();
        let waiter = std::thread::spawn(move || drop(lock.acquire()));
        while WAITED.load(Relaxed) < 200 {
            std::thread::yield_now();
        }
        drop(held);
        waiter.join().unwrap();
        assert_eq!(WORD.load(Relaxed) % 2, 0);
    }
}
