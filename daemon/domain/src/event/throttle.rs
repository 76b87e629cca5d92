//! Who makes the same thing happen again and again is heard of seldom: a tenant must not fill the history.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::Kind;
use crate::id::SliceName;

/// How many of a kind are heard at once.
const BURST: u32 = 16;
/// After which time one more is.
const REFILL: Duration = Duration::from_secs(2);
/// Of how many kinds and slices it is known how often they happened; more than that have to share.
const MOST: usize = 4096;

/// What happened how often lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttle(BTreeMap<(Kind, Option<SliceName>), Bucket>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    left: u32,
    since: Duration,
    held_back: u64,
}

/// Whether an event is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It is, and so many like it were not since the last that was.
    Heard {
        /// How many.
        held_back: u64,
    },
    /// It is not.
    HeldBack,
}

impl Throttle {
    /// Something happens now, at a time on a clock that is never set back.
    pub fn pass(&mut self, kind: &Kind, slice: Option<&SliceName>, now: Duration) -> Pass {
        self.tidy(now);
        let slice = slice.filter(|_| self.0.len() < MOST);
        let full = Bucket { left: BURST, since: now, held_back: 0 };
        let bucket = self.0.entry((kind.clone(), slice.cloned())).or_insert(full);
        bucket.refill(now);
        match bucket.left.checked_sub(1) {
            Some(left) => {
                bucket.left = left;
                Pass::Heard { held_back: core::mem::take(&mut bucket.held_back) }
            }
            None => {
                bucket.held_back = bucket.held_back.saturating_add(1);
                Pass::HeldBack
            }
        }
    }

    /// Forgets what is as if it had never happened, where there is much.
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
    fn a_slice_that_makes_noise_keeps_no_other_from_being_heard() {
        let (mut throttle, now) = (Throttle::default(), Duration::ZERO);
        let (loud, calm) = ("loud".parse().unwrap(), "calm".parse().unwrap());
        for _ in 0..1000 {
            throttle.pass(&Kind::Refused, Some(&loud), now);
        }
        assert_eq!(throttle.pass(&Kind::Refused, Some(&loud), now), Pass::HeldBack);
        assert_eq!(throttle.pass(&Kind::Refused, Some(&calm), now), Pass::Heard { held_back: 0 });
        assert_eq!(throttle.pass(&Kind::UsageTampered, Some(&loud), now), Pass::Heard { held_back: 0 });
        let later = now + 2 * REFILL;
        let held_back = 1001 - u64::from(BURST);
        assert_eq!(throttle.pass(&Kind::Refused, Some(&loud), later), Pass::Heard { held_back });
    }

    proptest! {
        #[test]
        fn none_is_lost_from_the_count_and_few_are_heard(gaps in proptest::collection::vec(0u64..900, 1..400)) {
            let (mut throttle, mut now) = (Throttle::default(), Duration::ZERO);
            let (mut heard, mut told) = (0, 0);
            for gap in &gaps {
                now += Duration::from_millis(*gap);
                if let Pass::Heard { held_back } = throttle.pass(&Kind::Refused, None, now) {
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
