//! What a slice used lately.

use crate::compute::terms::Window;
use crate::compute::time::{Instant, Nanos};
use crate::units::Permille;

const SECOND: u64 = 1_000_000_000;

/// GPU time by tenths of a second and by seconds, as far back as anybody asks.
#[derive(Clone, Debug)]
pub(super) struct History {
    tenths: Ring<10>,
    seconds: Ring<60>,
}

impl History {
    pub(super) const fn new() -> Self {
        Self { tenths: Ring::new(SECOND / 10), seconds: Ring::new(SECOND) }
    }

    pub(super) fn add(&mut self, now: Instant, used: Nanos) {
        self.tenths.add(now, used);
        self.seconds.add(now, used);
    }

    pub(super) fn share(&self, now: Instant, window: Window) -> Permille {
        match window {
            Window::Second => self.tenths.share(now),
            Window::Minute => self.seconds.share(now),
        }
    }
}

/// The last `N` whole buckets and the one that is being filled.
#[derive(Clone, Debug)]
struct Ring<const N: usize> {
    grain: u64,
    /// The number of the bucket that is being filled.
    at: u64,
    filling: u64,
    full: [u64; N],
}

impl<const N: usize> Ring<N> {
    const fn new(grain: u64) -> Self {
        Self { grain, at: 0, filling: 0, full: [0; N] }
    }

    fn add(&mut self, now: Instant, used: Nanos) {
        self.turn_to(now.nanos() / self.grain);
        self.filling = self.filling.saturating_add(used.get());
    }

    fn turn_to(&mut self, bucket: u64) {
        if bucket <= self.at {
            return;
        }
        let passed = bucket - self.at;
        for step in 0..passed.min(N as u64) {
            let slot = (self.at + step) % N as u64;
            self.full[slot as usize] = if step == 0 { self.filling } else { 0 };
        }
        if passed > N as u64 {
            self.full = [0; N];
        }
        (self.at, self.filling) = (bucket, 0);
    }

    fn share(&self, now: Instant) -> Permille {
        let mut still = self.clone();
        still.turn_to(now.nanos() / self.grain);
        let used: u64 = still.full.iter().sum();
        let share = used.saturating_mul(1000) / (self.grain * N as u64);
        Permille::try_from(u32::try_from(share).unwrap_or(1000).min(1000)).unwrap_or(Permille::WHOLE)
    }
}
