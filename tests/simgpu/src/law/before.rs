//! Lanes with earlier work in them.

use crate::lane::Lane;

/// Set of lanes with earlier work. Most contexts use few, which cost no allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    few: [Option<Lane>; 4],
    more: Vec<Lane>,
    legacy: bool,
    blocking: bool,
}

impl Before {
    pub(super) fn admits(&self, lane: Lane) -> bool {
        match lane {
            Lane::Legacy => !self.legacy && !self.blocking,
            Lane::Blocking(_) => !self.legacy && !self.contains(lane),
            Lane::Free(_) => !self.contains(lane),
        }
    }

    /// True if all of the work is in one lane.
    pub(super) fn is_one_lane(&self) -> bool {
        let others = usize::from(self.legacy) + self.few.iter().flatten().count() + self.more.len();
        others == 1
    }

    fn contains(&self, lane: Lane) -> bool {
        self.few.contains(&Some(lane)) || self.more.contains(&lane)
    }

    pub(super) fn add(&mut self, lane: Lane) {
        match lane {
            Lane::Legacy => return self.legacy = true,
            Lane::Blocking(_) => self.blocking = true,
            Lane::Free(_) => {}
        }
        if self.contains(lane) {
            return;
        }
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(lane),
            None => self.more.push(lane),
        }
    }
}
