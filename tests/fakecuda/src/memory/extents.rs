//! Free stretches of a number line: device addresses, or the room left inside one block.

use std::collections::BTreeMap;

/// Free stretches by start; neighbours are always merged.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// One free stretch of this start and length.
    pub(crate) fn new(start: u64, length: u64) -> Self {
        Self { free: BTreeMap::from([(start, length)]) }
    }

    /// Takes the first stretch of `length` whose start is a multiple of `align`.
    pub(crate) fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        let (start, room, at) = self.free.iter().find_map(|(start, room)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(length)? <= start + room).then_some((*start, *room, at))
        })?;
        self.cut(start, room, at, length);
        Some(at)
    }

    /// Takes exactly `at..at + length` if it is free.
    pub(crate) fn take_at(&mut self, at: u64, length: u64) -> Option<u64> {
        let (start, room) = self.free.range(..=at).next_back().map(|(start, room)| (*start, *room))?;
        if at.checked_add(length)? > start + room {
            return None;
        }
        self.cut(start, room, at, length);
        Some(at)
    }

    fn cut(&mut self, start: u64, room: u64, at: u64, length: u64) {
        self.free.remove(&start);
        for (begin, end) in [(start, at), (at + length, start + room)] {
            if begin < end {
                self.free.insert(begin, end - begin);
            }
        }
    }

    /// Gives a taken stretch back.
    pub(crate) fn give(&mut self, start: u64, length: u64) {
        let (mut start, mut length) = (start, length);
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        if let Some((before, room)) = self.free.range(..start).next_back().map(|(b, r)| (*b, *r))
            && before + room == start
        {
            self.free.remove(&before);
            (start, length) = (before, room + length);
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::Extents;

    #[test]
    fn what_is_given_back_in_any_order_is_whole_again() {
        let mut line = Extents::new(0, 100);
        let taken: Vec<u64> = (0..10).map(|_| line.take(10, 10).unwrap()).collect();
        assert_eq!(line.take(1, 1), None);
        for index in [3, 1, 2, 9, 0, 8, 4, 7, 6, 5] {
            line.give(taken[index], 10);
        }
        assert_eq!(line.take(100, 1), Some(0));
    }

    #[test]
    fn a_start_is_aligned_and_the_gap_before_it_stays_free() {
        let mut line = Extents::new(1, 100);
        assert_eq!(line.take(10, 64), Some(64));
        assert_eq!(line.take(63, 1), Some(1));
        assert_eq!(line.take_at(70, 1), None);
        assert_eq!(line.take_at(80, 5), Some(80));
    }
}
