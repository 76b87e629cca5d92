//! All ways to choose some of a few.

use alloc::vec::Vec;

/// Every set of some of them.
pub(super) fn subsets<T: Copy>(all: &[T]) -> Vec<Vec<T>> {
    let chosen = |mask: usize| all.iter().enumerate().filter(move |(at, _)| mask >> at & 1 == 1);
    (1..1usize << all.len()).map(|mask| chosen(mask).map(|(_, one)| *one).collect()).collect()
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
    fn every_choice_is_made_once() {
        assert_eq!(subsets(&[1, 2, 3]).len(), 7);
        assert_eq!(combinations(&[1, 2, 3], 2), [[1, 2], [1, 3], [2, 3]]);
        assert_eq!(combinations(&[1, 2], 3), Vec::<Vec<i32>>::new());
        assert_eq!(combinations(&[1, 2], 0), vec![Vec::<i32>::new()]);
        for (all, count) in [(8, 4), (8, 8), (16, 5), (5, 1)] {
            let everything: Vec<usize> = (0..all).collect();
            assert_eq!(combinations(&everything, count).len(), choices(all, count), "{count} of {all}");
        }
    }
}
