//! Attribution of GPU time where several slices had work outstanding.

use crate::compute::time::Nanos;

/// Use of a GPU by one slice within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// Time in which it had work outstanding. None of it is left after the charge.
    pub(super) busy: Nanos,
    /// Time that it has before those beside it, as its work began first. What it had so is deducted.
    pub(super) first: Nanos,
    /// Contexts in which it has work, each with time slices of its own; 0 counts as 1.
    pub(super) contexts: u32,
    /// Time since its work should have ended. While others were busy, they ran, and only its marker waited for them.
    pub(super) late: Nanos,
    /// Part of the time that is charged to it.
    pub(super) charged: Nanos,
}

impl Use {
    /// Part of the time beside others that the hardware gives it, of the sum of all such parts.
    fn weight(&self) -> u128 {
        u128::from(self.contexts.max(1))
    }
}

/// Turns busy times of several slices within `passed` into charges.
///
/// Where their sum is more than `passed` they were busy at once. What is `late` gives way to the others; then each has its
/// `first` before them, and all share in the rest of the time that was counted twice as the hardware divides it: alike for
/// each context.
pub(super) fn split(passed: Nanos, uses: &mut [Use]) {
    uses.iter_mut().for_each(|own| own.busy = own.busy.min(passed));
    let mut excess = busy(uses) - passed;
    for own in uses.iter_mut() {
        let less = own.late.min(own.busy).min(excess);
        own.busy = own.busy - less;
        excess = excess - less;
    }
    let mut left = passed;
    for own in uses.iter_mut().filter(|_| excess > Nanos::ZERO) {
        own.charged = own.busy.min(own.first).min(left);
        own.busy = own.busy - own.charged;
        own.first = own.first - own.charged.min(excess);
        left = left - own.charged;
    }
    lower(uses, excess.min(passed - left), |own| own.charged == Nanos::ZERO);
    lower(uses, busy(uses) - left, |_| true);
    uses.iter_mut().for_each(|own| own.charged += core::mem::take(&mut own.busy));
}

/// Lowers busy times by an excess in total. Each context keeps as much as any other where they last.
fn lower(uses: &mut [Use], mut excess: Nanos, of: impl Fn(&Use) -> bool) {
    let pays = |own: &Use| own.busy > Nanos::ZERO && of(own);
    while excess > Nanos::ZERO {
        let weights = uses.iter().filter(|own| pays(own)).map(Use::weight);
        let (payers, all) = weights.fold((0, 0), |(payers, all), own| (payers + 1, all + own));
        if payers == 0 {
            return;
        }
        let whole = u128::from(excess.get());
        for own in uses.iter_mut().filter(|own| pays(own)) {
            let part = match payers {
                1 => whole,
                _ => (whole * (all - own.weight())).div_ceil(all * (payers - 1)),
            };
            let less = own.busy.min(Nanos::new(u64::try_from(part).unwrap_or(u64::MAX)));
            own.busy = own.busy - less;
            excess = excess - less;
        }
    }
}

fn busy(uses: &[Use]) -> Nanos {
    uses.iter().map(|own| own.busy).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ms(times: &[u64]) -> Vec<Nanos> {
        times.iter().copied().map(Nanos::millis).collect()
    }

    #[test]
    fn work_that_should_have_ended_gives_way_to_that_of_others() {
        let late =
            |busy, late| Use { busy: Nanos::millis(busy), late: Nanos::millis(late), ..Use::default() };
        let charged = |mut uses: Vec<Use>| {
            split(Nanos::millis(10), &mut uses);
            uses.into_iter().map(|own| own.charged).collect::<Vec<_>>()
        };
        assert_eq!(charged(vec![late(10, 8), late(10, 0)]), ms(&[1, 9]));
        assert_eq!(charged(vec![late(10, 8), late(4, 0)]), ms(&[6, 4]));
        // Alone it is charged all the same.
        assert_eq!(charged(vec![late(10, 8), late(0, 0)]), ms(&[10, 0]));
    }

    /// Charges, and what is left to each that it has first.
    fn split_of(passed: Nanos, busy: &[Nanos], first: &[Nanos]) -> (Vec<Nanos>, Vec<Nanos>) {
        let first = first.iter().copied().chain(core::iter::repeat(Nanos::ZERO));
        let uses = busy.iter().zip(first).map(|(busy, first)| Use { busy: *busy, first, ..Use::default() });
        let mut uses: Vec<Use> = uses.collect();
        split(passed, &mut uses);
        uses.into_iter().map(|own| (own.charged, own.first)).unzip()
    }

    fn charged(passed: Nanos, busy: &[Nanos]) -> Vec<Nanos> {
        split_of(passed, busy, &[]).0
    }

    #[test]
    fn time_that_two_had_work_outstanding_is_split_between_them() {
        assert_eq!(charged(Nanos::millis(10), &ms(&[10, 4])), ms(&[8, 2]));
        assert_eq!(charged(Nanos::millis(10), &ms(&[6, 4, 0])), ms(&[6, 4, 0]));
    }

    #[test]
    fn each_context_has_as_much_of_the_time_as_any_other() {
        let charged = |busy: [u64; 3], contexts: [u32; 3]| {
            let uses = busy.iter().zip(contexts);
            let uses =
                uses.map(|(busy, contexts)| Use { busy: Nanos::millis(*busy), contexts, ..Use::default() });
            let mut uses: Vec<Use> = uses.collect();
            split(Nanos::millis(12), &mut uses);
            uses.into_iter().map(|own| own.charged).collect::<Vec<_>>()
        };
        assert_eq!(charged([12, 12, 0], [3, 1, 5]), ms(&[9, 3, 0]));
        assert_eq!(charged([12, 12, 12], [1, 2, 3]), ms(&[2, 4, 6]));
        // Alone it has all of it.
        assert_eq!(charged([12, 0, 0], [4, 1, 1]), ms(&[12, 0, 0]));
    }

    #[test]
    fn a_slice_whose_work_began_first_has_that_much_before_the_other() {
        assert_eq!(split_of(Nanos::millis(10), &ms(&[3, 10]), &ms(&[5])), (ms(&[3, 7]), ms(&[2, 0])));
        assert_eq!(split_of(Nanos::millis(10), &ms(&[10, 6]), &ms(&[2])), (ms(&[8, 2]), ms(&[0, 0])));
        // Alone it uses up nothing of it.
        assert_eq!(split_of(Nanos::millis(10), &ms(&[3, 0]), &ms(&[5])), (ms(&[3, 0]), ms(&[5, 0])));
    }

    fn any_uses(count: core::ops::Range<usize>) -> impl Strategy<Value = Vec<Use>> {
        let times = (0u64..1_000_000, 0u64..2_000_000, 0u64..2_000_000, any::<u32>());
        let one = times.prop_map(|(busy, first, late, contexts)| {
            let [busy, first, late] = [busy, first, late].map(Nanos::new);
            Use { busy, first, late, contexts, charged: Nanos::ZERO }
        });
        prop::collection::vec(one, count)
    }

    proptest! {
        #[test]
        fn none_is_charged_for_more_than_passed_or_than_it_was_busy(
            passed in 0u64..1_000_000,
            mut uses in any_uses(0..9),
        ) {
            let busy: Vec<Nanos> = uses.iter().map(|own| own.busy).collect();
            split(Nanos::new(passed), &mut uses);
            prop_assert!(uses.iter().map(|own| own.charged).sum::<Nanos>() <= Nanos::new(passed));
            prop_assert!(uses.iter().zip(&busy).all(|(own, busy)| own.charged <= *busy));
        }

        #[test]
        fn at_most_a_nanosecond_each_is_lost_where_the_gpu_was_never_idle(
            passed in 100u64..1_000_000,
            mut uses in any_uses(1..9),
        ) {
            let whole = Nanos::new(passed);
            uses.push(Use { busy: whole, ..Use::default() });
            split(whole, &mut uses);
            let sum = uses.iter().map(|own| own.charged).sum::<Nanos>();
            prop_assert!(whole - sum <= Nanos::new(100), "{} of {}", sum, whole);
        }
    }
}
