//! A lock that is one word: free is even, so a forked child that finds zeroes finds it free.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// How a thread lets others run while it waits. It must not fail and must not take locks.
pub type Pause = fn();

/// Tries before a waiting thread lets others run: about what a table operation takes.
const SPINS: u32 = 64;

/// A lock over one word: odd while it is held, and another even number each time it is free again, so that
/// who only looks can tell that nobody wrote meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Lock<'a> {
    word: &'a AtomicU64,
    pause: Pause,
}

impl<'a> Lock<'a> {
    /// The lock that `word` is.
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
    #[inline(always)]
    pub fn try_acquire(self) -> Option<Guard<'a>> {
        let free = self.word.load(Relaxed) & !1;
        self.word.compare_exchange(free, free | 1, Acquire, Relaxed).ok()?;
        // Whoever sees what is written from here on sees that the lock is held: see `unwatched`.
        fence(Release);
        Some(Guard { word: self.word, free })
    }

    /// What `look` sees without taking the lock, if nobody held it meanwhile. It may see halves of things, but
    /// then its answer is thrown away.
    #[inline(always)]
    pub fn unwatched<T>(self, look: impl FnOnce() -> T) -> Option<T> {
        let before = self.word.load(Acquire);
        if before & 1 != 0 {
            return None;
        }
        let seen = look();
        // If any load above saw a holder's store, this fence meets the one in `try_acquire`, and the load below
        // sees that the lock was taken.
        fence(Acquire);
        (self.word.load(Relaxed) == before).then_some(seen)
    }
}

/// The lock is held while this lives.
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
