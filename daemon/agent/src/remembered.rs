//! What is counted by slices' names, and goes on where a slice of the same name comes again.
//!
//! Slices come and go, and the names of some come again with each pod. Counters that began anew each time would lose
//! what was counted since they were last read. So those of ended slices are kept, as many as are worth keeping.

use std::collections::{BTreeMap, VecDeque};

use tranche_domain::id::SliceName;

/// How many ended slices are remembered.
const ENDED: usize = 1024;

/// Something for each slice, and for those that ended last.
#[derive(Debug)]
pub(crate) struct Remembered<T> {
    by_name: BTreeMap<SliceName, T>,
    /// The first one ended first.
    ended: VecDeque<SliceName>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), ended: VecDeque::new() }
    }
}

impl<T: Default> Remembered<T> {
    /// A slice is there from now on.
    pub(crate) fn begin(&mut self, name: &SliceName) {
        self.ended.retain(|ended| ended != name);
        self.by_name.entry(name.clone()).or_default();
    }

    /// Of a slice that is there or is remembered.
    pub(crate) fn of(&mut self, name: &SliceName) -> Option<&mut T> {
        self.by_name.get_mut(name)
    }

    /// The same, to be read.
    pub(crate) fn get(&self, name: &SliceName) -> Option<&T> {
        self.by_name.get(name)
    }

    /// A slice ended.
    pub(crate) fn end(&mut self, name: &SliceName) {
        if !self.by_name.contains_key(name) || self.ended.contains(name) {
            return;
        }
        self.ended.push_back(name.clone());
        if self.ended.len() > ENDED
            && let Some(first) = self.ended.pop_front()
        {
            self.by_name.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> SliceName {
        format!("s{number}").parse().unwrap()
    }

    #[test]
    fn a_slice_that_comes_again_goes_on_where_it_was() {
        let mut counts = Remembered::<u64>::default();
        counts.begin(&name(1));
        *counts.of(&name(1)).unwrap() += 5;
        counts.end(&name(1));
        counts.end(&name(1));
        counts.begin(&name(1));
        *counts.of(&name(1)).unwrap() += 1;
        assert_eq!(counts.get(&name(1)), Some(&6));
        assert!(counts.get(&name(2)).is_none() && counts.of(&name(2)).is_none());
    }

    #[test]
    fn those_that_ended_long_ago_are_forgotten_and_those_that_are_there_never() {
        let mut counts = Remembered::<u64>::default();
        counts.begin(&name(0));
        *counts.of(&name(0)).unwrap() = 7;
        for number in 1..=3 * ENDED {
            counts.begin(&name(number));
            *counts.of(&name(number)).unwrap() = 1;
            counts.end(&name(number));
        }
        assert_eq!(counts.by_name.len(), ENDED + 1);
        assert_eq!((counts.get(&name(0)), counts.get(&name(1))), (Some(&7), None));
        assert_eq!(counts.get(&name(3 * ENDED)), Some(&1));
    }
}
