//! The GPUs that jobs are put on: what of each is taken, will be free, and is kept for somebody.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::job::Size;
use super::project::Affinity;
use crate::id::GpuUuid;

/// A GPU as jobs see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// NVML index.
    pub index: u32,
    /// UUID.
    pub uuid: GpuUuid,
    /// GPUs of the same island reach each other by NVLink.
    pub island: u32,
    /// What of it is not for jobs: others' slices, or all of it where it takes no slices now.
    pub outside: MilliGpus,
}

/// A GPU's place in the list of GPUs.
pub(super) type Spot = usize;

/// The GPUs, with what jobs have of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    tiles: Vec<Tile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) gpu: Gpu,
    /// What jobs have that go on.
    pub(super) running: MilliGpus,
    /// What is promised to jobs that wait for others to leave.
    pub(super) claimed: MilliGpus,
    /// What jobs have that are on their way out.
    pub(super) stopping: MilliGpus,
}

/// When room has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At once.
    Now,
    /// When those have left that are on their way out.
    Soon,
}

impl Tile {
    /// What nobody has, wants back or was promised.
    pub(super) const fn free(&self, when: When) -> MilliGpus {
        let soon = MilliGpus::ONE.less(self.gpu.outside).less(self.running).less(self.claimed);
        match when {
            When::Soon => soon,
            When::Now => soon.less(self.stopping),
        }
    }

    /// What would be free soon, if those with so much of it left as well.
    pub(super) fn free_without(&self, gone: MilliGpus) -> MilliGpus {
        let taken = self.running.plus(self.claimed).less(gone).plus(self.gpu.outside);
        MilliGpus::ONE.less(taken)
    }

    /// Whether nobody is here at all, nor will be.
    const fn is_empty(&self, when: When) -> bool {
        self.free(when).get() == MilliGpus::ONE.get()
    }

    /// Whether somebody who was promised a part can take it now.
    pub(super) fn can_hold(&self, part: MilliGpus) -> bool {
        let taken = self.gpu.outside.plus(self.running).plus(self.stopping);
        taken.plus(part) <= MilliGpus::ONE
    }
}

impl Floor {
    /// GPUs with no jobs on them.
    pub fn new(gpus: Vec<Gpu>) -> Self {
        let nobody = MilliGpus::ZERO;
        let tile = |gpu| Tile { gpu, running: nobody, claimed: nobody, stopping: nobody };
        Self { tiles: gpus.into_iter().map(tile).collect() }
    }

    /// All that jobs could have if nobody else had anything.
    pub fn capacity(&self) -> MilliGpus {
        self.tiles.iter().map(|_| MilliGpus::ONE).sum()
    }

    /// The GPUs.
    pub fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        self.tiles.iter().map(|tile| &tile.gpu)
    }

    pub(super) fn tile(&self, spot: Spot) -> &Tile {
        &self.tiles[spot]
    }

    pub(super) fn tile_mut(&mut self, spot: Spot) -> &mut Tile {
        &mut self.tiles[spot]
    }

    pub(super) fn spot_of(&self, gpu: GpuUuid) -> Option<Spot> {
        self.tiles.iter().position(|tile| tile.gpu.uuid == gpu)
    }

    pub(super) fn uuids(&self, spots: &[Spot]) -> Vec<GpuUuid> {
        spots.iter().map(|spot| self.tiles[*spot].gpu.uuid).collect()
    }

    /// Takes note of what is not for jobs on a GPU.
    pub fn set_outside(&mut self, gpu: GpuUuid, outside: MilliGpus) {
        if let Some(spot) = self.spot_of(gpu) {
            self.tiles[spot].gpu.outside = outside;
        }
    }

    /// Where there is room: for a part on the fullest GPU that has it, beside others rather than on an empty one; for
    /// whole GPUs on the fullest island.
    pub(super) fn room(&self, size: Size, reach: &Reach<'_>, when: When) -> Option<Vec<Spot>> {
        match size {
            Size::Part(_) => self.part_room(size.of_each(), reach, when),
            Size::Whole(count) => self.whole_room(count.get() as usize, reach, when),
        }
    }

    fn part_room(&self, part: MilliGpus, reach: &Reach<'_>, when: When) -> Option<Vec<Spot>> {
        let empty = self.empty_of_islands(reach, when);
        let fits = self.reachable(reach).filter(|(_, tile)| tile.free(when) >= part);
        let snug = |(spot, tile): &(Spot, &Tile)| {
            let neighbours =
                if tile.is_empty(when) { empty.get(&tile.gpu.island).map_or(0, Vec::len) } else { 0 };
            (tile.free(when), neighbours, *spot)
        };
        fits.min_by_key(snug).map(|(spot, _)| alloc::vec![spot])
    }

    fn whole_room(&self, count: usize, reach: &Reach<'_>, when: When) -> Option<Vec<Spot>> {
        let islands = self.empty_of_islands(reach, when);
        let enough = islands.into_iter().filter(|(_, spots)| spots.len() >= count);
        let (_, mut spots) = enough.min_by_key(|(island, spots)| (spots.len(), *island))?;
        spots.truncate(count);
        Some(spots)
    }

    /// The GPUs with nobody on them, by island.
    fn empty_of_islands(&self, reach: &Reach<'_>, when: When) -> BTreeMap<u32, Vec<Spot>> {
        let empty = self.reachable(reach).filter(|(_, tile)| tile.is_empty(when));
        by_island(empty)
    }

    /// The GPUs that somebody may be put on, by island.
    pub(super) fn islands(&self, reach: &Reach<'_>) -> BTreeMap<u32, Vec<Spot>> {
        by_island(self.reachable(reach))
    }

    pub(super) fn reachable<'a>(&'a self, reach: &'a Reach<'_>) -> impl Iterator<Item = (Spot, &'a Tile)> {
        self.tiles.iter().enumerate().filter(|(spot, tile)| reach.includes(*spot, tile))
    }
}

fn by_island<'a>(tiles: impl Iterator<Item = (Spot, &'a Tile)>) -> BTreeMap<u32, Vec<Spot>> {
    tiles.fold(BTreeMap::new(), |mut islands: BTreeMap<u32, Vec<Spot>>, (spot, tile)| {
        islands.entry(tile.gpu.island).or_default().push(spot);
        islands
    })
}

/// Where somebody may be put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach<'a> {
    /// Only on GPUs of these indices.
    pub(super) affinity: Option<&'a Affinity>,
    /// Not on these, which are kept for somebody else.
    pub(super) kept: &'a [Spot],
}

impl Reach<'_> {
    fn includes(&self, spot: Spot, tile: &Tile) -> bool {
        !self.kept.contains(&spot) && self.affinity.is_none_or(|indices| indices.contains(&tile.gpu.index))
    }
}
