//! Subsets and combinations of small sets.

use alloc::vec::Vec;

/// All minimal sets that satisfy `enough`. `enough` has to be monotonic: a superset of a sufficient set is
/// sufficient.
pub(super) fn least_sets<T: Copy>(all: &[T], enough: impl Fn(&[T]) -> bool) -> Vec<Vec<T>> {
    let (mut sets, mut masks, mut set) = (Vec::new(), Vec::new(), Vec::with_capacity(all.len()));
    // In the most common case the whole set is insufficient and no subset needs to be tried.
    let most = if enough(all) { 1usize << all.len() } else { 0 };
    for mask in 1..most {
        if masks.iter().any(|least| mask & least == *least) {
            continue;
        }
        set.clear();
        set.extend(all.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, one)| *one));
        if enough(&set) {
            masks.push(mask);
            sets.push(set.clone());
        }
    }
    sets
}

/// Binomial coefficient of `all` over `count`, saturating; an upper bound once it has saturated.
pub(super) fn choices(all: usize, count: usize) -> usize {
    (0..count.min(all - count)).fold(1usize, |ways, at| ways.saturating_mul(all - at) / (at + 1))
}

/// All combinations of `count` elements, in order.
pub(super) fn combinations<T: Copy>(all: &[T], count: usize) -> Vec<Vec<T>> {
    if count == 0 {
        return alloc::vec![Vec::new()];
    }
    let with_first = |at: usize| {
        let rest = combinations(&all[at + 1..], count - 1).into_iter();
        rest.map(move |rest| core::iter::once(all[at]).chain(rest).collect())
    };
    (0..(all.len() + 1).saturating_sub(count)).flat_map(with_first).collect()
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn only_minimal_sets_are_returned() {
        let sum = |least: u32| move |set: &[u32]| set.iter().sum::<u32>() >= least;
        assert_eq!(least_sets(&[1, 2, 3], sum(3)), [vec![1, 2], vec![3]]);
        assert_eq!(least_sets(&[1, 2, 3], sum(1)), [vec![1], vec![2], vec![3]]);
        assert_eq!(least_sets(&[1, 2, 3], sum(6)), [vec![1, 2, 3]]);
        assert_eq!(least_sets(&[1, 2, 3], sum(7)), Vec::<Vec<u32>>::new());
    }

    #[test]
    fn every_combination_occurs_once() {
        assert_eq!(combinations(&[1, 2, 3], 2), [[1, 2], [1, 3], [2, 3]]);
        assert_eq!(combinations(&[1, 2], 3), Vec::<Vec<i32>>::new());
        assert_eq!(combinations(&[1, 2], 0), vec![Vec::<i32>::new()]);
        for (all, count) in [(8, 4), (8, 8), (16, 5), (5, 1)] {
            let everything: Vec<usize> = (0..all).collect();
            assert_eq!(combinations(&everything, count).len(), choices(all, count), "{count} of {all}");
        }
    }
}
