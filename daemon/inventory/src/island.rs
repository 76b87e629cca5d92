//! Islands: groups of GPUs connected by NVLink.

/// Numbers the islands of `count` GPUs in order of appearance. Links are transitive: in a cube of eight not
/// every pair has a direct link, and yet the eight are one island.
pub(crate) fn number(count: usize, linked: impl Fn(usize, usize) -> bool) -> Vec<u32> {
    let mut island: Vec<Option<u32>> = vec![None; count];
    let mut next = 0;
    for first in 0..count {
        if island[first].is_some() {
            continue;
        }
        let mut reached = vec![first];
        while let Some(at) = reached.pop() {
            island[at] = Some(next);
            reached.extend((0..count).filter(|&other| island[other].is_none() && linked(at, other)));
        }
        next += 1;
    }
    island
        .into_iter()
        .map(|number| number.expect("every GPU was the first of an island or reached"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::number;
    use proptest::prelude::*;

    #[test]
    fn two_rings_of_four_are_two_islands() {
        let next = |a: usize, b: usize| (a + 1) % 4 == b % 4 || (b + 1) % 4 == a % 4;
        let ring = |a: usize, b: usize| a / 4 == b / 4 && next(a, b);
        assert_eq!(number(8, ring), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn gpus_without_links_are_islands_of_one() {
        assert_eq!(number(3, |_, _| false), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn linked_gpus_share_an_island(links in proptest::collection::vec((0usize..9, 0usize..9), 0..20)) {
            let linked = |a, b| links.contains(&(a, b)) || links.contains(&(b, a));
            let islands = number(9, linked);
            for &(a, b) in &links {
                prop_assert_eq!(islands[a], islands[b]);
            }
        }
    }
}
