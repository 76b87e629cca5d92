//! Attribution of GPU time where several slices had work outstanding.

use crate::compute::time::Nanos;

/// Turns busy times of several slices within `passed` into charges.
///
/// Where their sum is more than `passed` they were busy at once, and share alike in the time that was counted twice.
pub(super) fn split(passed: Nanos, busy: &mut [Nanos]) {
    busy.iter_mut().for_each(|busy| *busy = (*busy).min(passed));
    loop {
        let excess = busy.iter().copied().sum::<Nanos>() - passed;
        let sharers = busy.iter().filter(|busy| **busy > Nanos::ZERO).count() as u64;
        if excess == Nanos::ZERO || sharers == 0 {
            return;
        }
        let each = Nanos::new(excess.get().div_ceil(sharers));
        busy.iter_mut().for_each(|busy| *busy = *busy - each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ms(times: &[u64]) -> Vec<Nanos> {
        times.iter().copied().map(Nanos::millis).collect()
    }

    fn charged(passed: Nanos, busy: &[Nanos]) -> Vec<Nanos> {
        let mut charged = busy.to_vec();
        split(passed, &mut charged);
        charged
    }

    #[test]
    fn time_that_two_had_work_outstanding_is_split_between_them() {
        assert_eq!(charged(Nanos::millis(10), &ms(&[10, 4])), ms(&[8, 2]));
        assert_eq!(charged(Nanos::millis(10), &ms(&[6, 4, 0])), ms(&[6, 4, 0]));
    }

    proptest! {
        #[test]
        fn nobody_is_charged_for_more_than_passed_or_than_it_was_busy(
            passed in 0u64..1_000_000,
            busy in prop::collection::vec(0u64..1_000_000, 0..9),
        ) {
            let busy: Vec<Nanos> = busy.into_iter().map(Nanos::new).collect();
            let charged = charged(Nanos::new(passed), &busy);
            prop_assert!(charged.iter().copied().sum::<Nanos>() <= Nanos::new(passed));
            prop_assert!(charged.iter().zip(&busy).all(|(charged, busy)| charged <= busy));
        }

        #[test]
        fn at_most_a_nanosecond_each_is_lost_where_the_gpu_was_never_idle(
            passed in 100u64..1_000_000,
            busy in prop::collection::vec(0u64..1_000_000, 1..9),
        ) {
            let whole = Nanos::new(passed);
            let busy: Vec<Nanos> = busy.into_iter().map(Nanos::new).chain([whole]).collect();
            let sum = charged(whole, &busy).into_iter().sum::<Nanos>();
            prop_assert!(whole - sum <= Nanos::new(100), "{} of {}", sum, whole);
        }
    }
}
