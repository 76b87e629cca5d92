//! Counters of slices, continued where a slice of the same name is created later.
//!
//! Names such as those of pods recur. Counters that restarted from zero would lose what was counted since they were
//! last scraped. The counters of a bounded number of ended slices are retained.

use std::collections::{BTreeMap, VecDeque};

use tranche_domain::id::SliceName;

/// Number of ended slices whose values are retained.
const ENDED: usize = 1024;

/// One value for each live slice, and for the slices that ended last.
#[derive(Debug)]
pub struct Retained<T> {
    by_name: BTreeMap<SliceName, T>,
    /// Names in the order in which the slices ended.
    ended: VecDeque<SliceName>,
}

impl<T> Default for Retained<T> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), ended: VecDeque::new() }
    }
}

impl<T: Default> Retained<T> {
    /// Creates the value of a slice, or continues the retained one.
    pub fn begin(&mut self, name: &SliceName) {
        self.ended.retain(|ended| ended != name);
        self.by_name.entry(name.clone()).or_default();
    }

    /// Value of a live or retained slice.
    pub fn of(&mut self, name: &SliceName) -> Option<&mut T> {
        self.by_name.get_mut(name)
    }

    /// Shared reference to the value of a live or retained slice.
    pub fn get(&self, name: &SliceName) -> Option<&T> {
        self.by_name.get(name)
    }

    /// Marks a slice as ended; the oldest retained value may be dropped.
    pub fn end(&mut self, name: &SliceName) {
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
    fn recreated_slice_continues_its_counter() {
        let mut counts = Retained::<u64>::default();
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
    fn only_the_oldest_ended_slices_are_dropped() {
        let mut counts = Retained::<u64>::default();
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
