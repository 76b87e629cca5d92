//! Who used the GPU, where several may have.

use alloc::vec::Vec;

use crate::compute::time::Nanos;

/// What each of several slices is charged for a time that passed, given how long each had work outstanding. Where
/// that is more than passed, they were busy at once, and those share alike in what was counted twice.
pub(super) fn split(passed: Nanos, busy: &[Nanos]) -> Vec<Nanos> {
    let mut charged: Vec<Nanos> = busy.iter().map(|busy| (*busy).min(passed)).collect();
    loop {
        let excess = charged.iter().copied().sum::<Nanos>() - passed;
        let sharers = charged.iter().filter(|charged| **charged > Nanos::ZERO).count() as u64;
        if excess == Nanos::ZERO || sharers == 0 {
            return charged;
        }
        let each = Nanos::new(excess.get().div_ceil(sharers));
        charged.iter_mut().for_each(|charged| *charged = *charged - each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(times: &[u64]) -> Vec<Nanos> {
        times.iter().copied().map(Nanos::millis).collect()
    }

    #[test]
    fn time_that_two_had_work_outstanding_is_split_between_them() {
        assert_eq!(split(Nanos::millis(10), &ms(&[10, 4])), ms(&[8, 2]));
        assert_eq!(split(Nanos::millis(10), &ms(&[6, 4, 0])), ms(&[6, 4, 0]));
    }

    proptest! {
        #[test]
        fn nobody_is_charged_for_more_than_passed_or_than_it_was_busy(
            passed in 0u64..1_000_000,
            busy in prop::collection::vec(0u64..1_000_000, 0..9),
        ) {
            let busy: Vec<Nanos> = busy.into_iter().map(Nanos::new).collect();
            let charged = split(Nanos::new(passed), &busy);
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
            let sum = split(whole, &busy).into_iter().sum::<Nanos>();
            prop_assert!(whole - sum <= Nanos::new(100), "{} of {}", sum, whole);
        }
    }
}
