//! Recent use of a GPU by a slice.

use crate::compute::terms::Window;
use crate::compute::time::{Instant, Nanos};
use crate::units::Permille;

const SECOND: u64 = 1_000_000_000;

/// GPU time of the last second by tenths and of the last minute by seconds.
#[derive(Clone, Debug)]
pub(super) struct UseHistory {
    tenths: Ring<10, { SECOND / 10 }>,
    seconds: Ring<60, SECOND>,
}

impl UseHistory {
    pub(super) const fn new() -> Self {
        Self { tenths: Ring::new(), seconds: Ring::new() }
    }

    /// Adds use between two moments, the first of which is not before the end of the last addition.
    pub(super) fn add(&mut self, from: Instant, to: Instant, used: Nanos) {
        self.tenths.add(from, to, used);
        self.seconds.add(from, to, used);
    }

    pub(super) fn share(&self, now: Instant, window: Window) -> Permille {
        match window {
            Window::Second => self.tenths.share(now),
            Window::Minute => self.seconds.share(now),
        }
    }
}

/// The last `N` whole buckets of `GRAIN` nanoseconds and the one that is being filled.
#[derive(Clone, Debug)]
struct Ring<const N: usize, const GRAIN: u64> {
    /// Number of the bucket that is being filled.
    at: u64,
    filling: u64,
    full: [u64; N],
}

impl<const N: usize, const GRAIN: u64> Ring<N, GRAIN> {
    const fn new() -> Self {
        Self { at: 0, filling: 0, full: [0; N] }
    }

    /// Each bucket gets its part: one long interval would overfill the last one.
    fn add(&mut self, from: Instant, to: Instant, used: Nanos) {
        let (first, last) = (from.nanos() / GRAIN, to.nanos() / GRAIN);
        if first == last {
            self.turn_to(last);
            self.filling = self.filling.saturating_add(used.get());
            return;
        }
        let length = to.since(from);
        let until = |moment: u64| used.scaled(Instant::from_nanos(moment).since(from).get(), length.get());
        let first = first.max(last.saturating_sub(N as u64));
        for bucket in first..=last {
            let begin = (bucket * GRAIN).max(from.nanos());
            let end = (bucket * GRAIN).saturating_add(GRAIN).min(to.nanos());
            self.turn_to(bucket);
            self.filling = self.filling.saturating_add((until(end) - until(begin)).get());
        }
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
        still.turn_to(now.nanos() / GRAIN);
        let used: u64 = still.full.iter().sum();
        let share = used.saturating_mul(1000) / (GRAIN * N as u64);
        Permille::try_from(u32::try_from(share).unwrap_or(1000).min(1000)).unwrap_or(Permille::WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_used_lies_where_it_was_used_however_seldom_one_looks(
            looks in prop::collection::vec(1u64..3_000_000_000, 1..40),
            part in 0u64..=1000,
        ) {
            let mut history = UseHistory::new();
            let mut now = Instant::from_nanos(123_456_789);
            for passed in looks {
                let from = now;
                now = now + Nanos::new(passed);
                history.add(from, now, Nanos::new(passed).scaled(part, 1000));
            }
            if now.nanos() > 2 * SECOND {
                let told = u64::from(history.share(now, Window::Second).get());
                prop_assert!(told <= part && told + 1 >= part, "{told} of {part}");
            }
        }
    }
}
