//! All ways to choose some of a few.

use alloc::vec::Vec;

/// Every set of some of them that is enough, and would not be without any one of its own. What is enough for some has to
/// be enough for more.
pub(super) fn least_sets<T: Copy>(all: &[T], enough: impl Fn(&[T]) -> bool) -> Vec<Vec<T>> {
    let (mut sets, mut masks, mut set) = (Vec::new(), Vec::new(), Vec::with_capacity(all.len()));
    // Where not even all are enough there is nothing to look for, and that is the most common case.
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

/// In how many ways `count` can be chosen of `all`.
pub(super) fn choices(all: usize, count: usize) -> usize {
    (0..count.min(all - count)).fold(1usize, |ways, at| ways.saturating_mul(all - at) / (at + 1))
}

/// Every choice of `count` of them, in order.
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
    fn sets_with_anybody_to_spare_are_left_out() {
        let sum = |least: u32| move |set: &[u32]| set.iter().sum::<u32>() >= least;
        assert_eq!(least_sets(&[1, 2, 3], sum(3)), [vec![1, 2], vec![3]]);
        assert_eq!(least_sets(&[1, 2, 3], sum(1)), [vec![1], vec![2], vec![3]]);
        assert_eq!(least_sets(&[1, 2, 3], sum(6)), [vec![1, 2, 3]]);
        assert_eq!(least_sets(&[1, 2, 3], sum(7)), Vec::<Vec<u32>>::new());
    }

    #[test]
    fn every_choice_is_made_once() {
        assert_eq!(combinations(&[1, 2, 3], 2), [[1, 2], [1, 3], [2, 3]]);
        assert_eq!(combinations(&[1, 2], 3), Vec::<Vec<i32>>::new());
        assert_eq!(combinations(&[1, 2], 0), vec![Vec::<i32>::new()]);
        for (all, count) in [(8, 4), (8, 8), (16, 5), (5, 1)] {
            let everything: Vec<usize> = (0..all).collect();
            assert_eq!(combinations(&everything, count).len(), choices(all, count), "{count} of {all}");
        }
    }
}
