//! Rate limit for events of one kind and slice, so that a tenant cannot flood the history.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::EventKind;
use crate::id::SliceName;

/// Number of events that pass at once.
const BURST: u32 = 16;
/// Interval after which one more passes.
const REFILL: Duration = Duration::from_secs(2);
/// Maximum number of buckets; further slices share one for each kind.
const MOST: usize = 4096;

/// Token buckets by kind and slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttle(BTreeMap<(EventKind, Option<SliceName>), Bucket>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    left: u32,
    since: Duration,
    held_back: u64,
}

/// Treatment of an event that recurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleDecision {
    /// The event is recorded.
    Heard {
        /// Number of events dropped since the last one that passed.
        held_back: u64,
    },
    /// The event is dropped.
    HeldBack,
}

impl Throttle {
    /// Decides about an event at `now`, a time on a monotonic clock.
    pub fn pass(&mut self, kind: &EventKind, slice: Option<&SliceName>, now: Duration) -> ThrottleDecision {
        self.tidy(now);
        let slice = slice.filter(|_| self.0.len() < MOST);
        let full = Bucket { left: BURST, since: now, held_back: 0 };
        let bucket = self.0.entry((kind.clone(), slice.cloned())).or_insert(full);
        bucket.refill(now);
        match bucket.left.checked_sub(1) {
            Some(left) => {
                bucket.left = left;
                ThrottleDecision::Heard { held_back: core::mem::take(&mut bucket.held_back) }
            }
            None => {
                bucket.held_back = bucket.held_back.saturating_add(1);
                ThrottleDecision::HeldBack
            }
        }
    }

    /// Drops full buckets once there are too many.
    fn tidy(&mut self, now: Duration) {
        if self.0.len() < MOST {
            return;
        }
        self.0.retain(|_, bucket| {
            bucket.refill(now);
            bucket.left < BURST || bucket.held_back > 0
        });
    }
}

impl Bucket {
    fn refill(&mut self, now: Duration) {
        let since = now.saturating_sub(self.since);
        let more = u32::try_from(since.as_millis() / REFILL.as_millis()).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn flooding_slice_does_not_throttle_others() {
        let (mut throttle, now) = (Throttle::default(), Duration::ZERO);
        let (loud, calm) = ("loud".parse().unwrap(), "calm".parse().unwrap());
        for _ in 0..1000 {
            throttle.pass(&EventKind::Refused, Some(&loud), now);
        }
        assert_eq!(throttle.pass(&EventKind::Refused, Some(&loud), now), ThrottleDecision::HeldBack);
        assert_eq!(
            throttle.pass(&EventKind::Refused, Some(&calm), now),
            ThrottleDecision::Heard { held_back: 0 }
        );
        assert_eq!(
            throttle.pass(&EventKind::UsageTampered, Some(&loud), now),
            ThrottleDecision::Heard { held_back: 0 }
        );
        let later = now + 2 * REFILL;
        let held_back = 1001 - u64::from(BURST);
        assert_eq!(
            throttle.pass(&EventKind::Refused, Some(&loud), later),
            ThrottleDecision::Heard { held_back }
        );
    }

    proptest! {
        #[test]
        fn all_events_are_counted_and_few_pass(gaps in proptest::collection::vec(0u64..900, 1..400)) {
            let (mut throttle, mut now) = (Throttle::default(), Duration::ZERO);
            let (mut heard, mut told) = (0, 0);
            for gap in &gaps {
                now += Duration::from_millis(*gap);
                if let ThrottleDecision::Heard { held_back } = throttle.pass(&EventKind::Refused, None, now) {
                    heard += 1;
                    told += held_back;
                }
            }
            let left = throttle.0.values().map(|bucket| bucket.held_back).sum::<u64>();
            prop_assert_eq!(heard + told + left, gaps.len() as u64);
            prop_assert!(heard <= u64::from(BURST) + (now.as_millis() / REFILL.as_millis()) as u64);
        }
    }
}
