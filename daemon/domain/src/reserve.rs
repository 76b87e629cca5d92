//! Context reserve of one slice, raised to the observed cost of its contexts.
//!
//! Only the slice's own processes raise its reserve: a process that inflates its memory in the driver's list
//! affects no other slice, and that up to a bound and for a limited time.

use core::time::Duration;

use crate::units::Bytes;

/// Time after which an observation expires: at least one window, at most two.
pub const WINDOW: Duration = Duration::from_secs(600);

/// Maximum cost of a context in this window and the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenReserve {
    began: Duration,
    current: Bytes,
    previous: Bytes,
}

impl SeenReserve {
    /// Records the cost of one context at `now`, a time on a monotonic clock.
    pub fn see(&mut self, cost: Bytes, now: Duration) {
        self.advance(now);
        self.current = self.current.max(cost);
    }

    /// Reserve for a context of this slice.
    ///
    /// It is at least `measured`, the general reserve of the GPU, and at most twice that.
    pub fn reserve(&mut self, measured: Bytes, now: Duration) -> Bytes {
        self.advance(now);
        measured.max(self.current.max(self.previous).min(most(measured)))
    }

    /// Tests if no observation is in force.
    pub fn is_blank(&self) -> bool {
        self.current.max(self.previous) == Bytes::ZERO
    }

    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.began);
        if passed < WINDOW {
            return;
        }
        self.previous = if passed < WINDOW.saturating_mul(2) { self.current } else { Bytes::ZERO };
        self.current = Bytes::ZERO;
        self.began = now;
    }
}

/// Maximum reserve of a slice, for a general reserve of `measured`.
pub fn most(measured: Bytes) -> Bytes {
    measured.saturating_add(measured)
}

/// Cost of one context: `charged` and `beyond` divided by the number of contexts.
///
/// The number follows from `reserved`, the reserve of each.
pub fn cost_of_each(charged: Bytes, reserved: Bytes, beyond: Bytes) -> Bytes {
    let contexts = charged.get().div_ceil(reserved.get().max(1)).max(1);
    Bytes::new(charged.saturating_add(beyond).get().div_ceil(contexts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEASURED: Bytes = Bytes::mib(310);

    #[test]
    fn seen_reserve_not_seen_again_returns_to_measured() {
        let mut seen = SeenReserve::default();
        seen.see(Bytes::mib(400), Duration::from_secs(5));
        assert_eq!(seen.reserve(MEASURED, WINDOW), Bytes::mib(400));
        assert_eq!(seen.reserve(MEASURED, WINDOW * 2 - Duration::from_secs(1)), Bytes::mib(400));
        assert_eq!(seen.reserve(MEASURED, WINDOW * 2), MEASURED);
    }

    #[test]
    fn seen_reserve_falls_to_what_is_still_seen() {
        let mut seen = SeenReserve::default();
        seen.see(Bytes::mib(600), Duration::ZERO);
        for second in 0..3 * WINDOW.as_secs() {
            seen.see(Bytes::mib(350), Duration::from_secs(second));
        }
        assert_eq!(seen.reserve(MEASURED, WINDOW * 3), Bytes::mib(350));
    }

    #[test]
    fn two_contexts_of_a_process_are_two() {
        let cost = |charged, beyond| cost_of_each(Bytes::mib(charged), MEASURED, Bytes::mib(beyond));
        assert_eq!(cost(310, 90), Bytes::mib(400));
        assert_eq!(cost(620, 0), MEASURED);
        assert_eq!(cost(620, 180), Bytes::mib(400));
        assert_eq!(cost_of_each(Bytes::ZERO, Bytes::ZERO, Bytes::mib(7)), Bytes::mib(7));
    }

    proptest! {
        #[test]
        fn reserve_stays_between_measured_and_twice_that(
            measured in 0..u64::MAX, seen in prop::collection::vec((0..u64::MAX, 0..5000u64), 0..20),
        ) {
            let (mut reserve, mut now) = (SeenReserve::default(), Duration::ZERO);
            for (cost, later) in seen {
                now += Duration::from_secs(later);
                reserve.see(Bytes::new(cost), now);
                let reserved = reserve.reserve(Bytes::new(measured), now);
                prop_assert!(reserved >= Bytes::new(measured) && reserved <= most(Bytes::new(measured)));
            }
            let later = now + WINDOW * 2;
            prop_assert_eq!(reserve.reserve(Bytes::new(measured), later), Bytes::new(measured));
        }
    }
}
