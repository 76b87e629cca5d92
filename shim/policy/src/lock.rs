//! A lock that is one word: free is even, so a forked child that finds zeroes finds it free.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// How a thread lets others run while it waits, with how often it has done so before. It must not fail and must not take
/// locks. After some times it has to sleep: a thread of a higher priority keeps the holder from running otherwise.
pub type Pause = fn(u32);

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
        // A thread that sees what is written from here on sees that the lock is held: see `Glance`.
        fence(Release);
        Some(Guard { word: self.word, free })
    }

    /// A look without the lock, at a moment when no thread holds it.
    #[inline(always)]
    pub fn glance(self) -> Option<Glance<'a>> {
        let before = self.word.load(Acquire);
        (before & 1 == 0).then_some(Glance { word: self.word, before })
    }
}

/// A look at what the lock is over, without taking that. Who looks may see halves of things. It is no closure that is
/// called in between, because the compiler makes a function of its own of one that looks in many places.
#[must_use = "what was seen is good only if no thread wrote meanwhile"]
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    word: &'a AtomicU64,
    before: u64,
}

impl Glance<'_> {
    /// Says that no thread held the lock since, so that what was seen was so.
    #[inline(always)]
    pub fn was_undisturbed(self) -> bool {
        // If any load before saw a holder's store, this fence meets the one in `try_acquire`, and the load below
        // sees that the lock was taken.
        fence(Acquire);
        self.word.load(Relaxed) == self.before
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The most often that a thread had waited before, and how often until the holder lets go.
    static WAITED: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn waiting_thread_pauses_with_a_growing_count_until_the_lock_is_free() {
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
