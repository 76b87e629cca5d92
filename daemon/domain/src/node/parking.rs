//! Slices that leave their GPUs and come back.
//!
//! Law: the memory and compute of a slice are free for others only while none of its processes can hold device memory,
//! and they are committed again before the first of them is restored.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Gpu, Node, Refusal};
use crate::id::{GpuUuid, SliceName};
use crate::park::{Park, ParkStage};
use crate::slice::{Part, Slice};
use crate::units::{Bytes, Permille};

impl Node {
    /// Host memory that is set aside for slices that are parked, or on their way.
    pub fn parked_host(&self) -> Bytes {
        let parks = self.slices.values().filter_map(|slice| slice.parked);
        parks.fold(Bytes::ZERO, |sum, park| sum.saturating_add(park.host))
    }

    /// Begins to park a slice, with `host` bytes of host memory set aside of a budget for all slices.
    /// Its part of the GPUs stays committed until [`Node::finish_parking`]. One that `wakes` returns at its next call.
    pub fn begin_parking(
        &mut self,
        name: &SliceName,
        host: Bytes,
        budget: Bytes,
        now_unix_ms: u64,
        wakes: bool,
    ) -> Result<(), Refusal> {
        let slice = self.slice(name)?;
        if let Some(Park { stage, .. }) = slice.parked {
            return Err(Refusal::Parked { name: name.clone(), stage });
        }
        let taken = self.parked_host();
        if taken.checked_add(host).is_none_or(|sum| sum > budget) {
            return Err(Refusal::NoHostMemory { name: name.clone(), needed: host, taken, budget });
        }
        self.set_park(name, Some(Park { stage: ParkStage::Parking, host, since_unix_ms: now_unix_ms, wakes }))
    }

    /// Frees the slice's part of its GPUs: none of its processes holds device memory now.
    pub fn finish_parking(&mut self, name: &SliceName) -> Result<(), Refusal> {
        let park = self.slice(name)?.parked.filter(|park| park.stage == ParkStage::Parking);
        let park = park.ok_or_else(|| Refusal::NotParked(name.clone()))?;
        self.excess.retain(|(owner, _), _| owner != name);
        self.set_park(name, Some(Park { stage: ParkStage::Parked, ..park }))
    }

    /// Checks whether a parked slice could come back now, without a change.
    pub fn check_return(&self, name: &SliceName) -> Result<(), Refusal> {
        let slice = self.slice(name)?;
        match slice.parked {
            None => Err(Refusal::NotParked(name.clone())),
            Some(Park { stage: ParkStage::Parked, .. }) => self.room_to_return(slice),
            Some(Park { stage, .. }) => Err(Refusal::Parked { name: name.clone(), stage }),
        }
    }

    /// Slices that hold a part of one of these GPUs.
    pub fn holders(&self, gpus: &[GpuUuid]) -> Vec<SliceName> {
        let here = self.slices.values().filter(|slice| !slice.is_away());
        let here = here.filter(|slice| gpus.iter().any(|gpu| slice.part_of(*gpu).is_some()));
        here.map(|slice| slice.name.clone()).collect()
    }

    /// Commits the slice's part of its GPUs again, before the first of its processes is restored.
    pub fn begin_unparking(&mut self, name: &SliceName) -> Result<(), Refusal> {
        self.check_return(name)?;
        let park = self.slice(name)?.parked.ok_or_else(|| Refusal::NotParked(name.clone()))?;
        self.set_park(name, Some(Park { stage: ParkStage::Unparking, ..park }))
    }

    /// Returns the slice to its GPUs for good, and frees its host memory. Its part of them has to be committed.
    pub fn finish_unparking(&mut self, name: &SliceName) -> Result<(), Refusal> {
        if let Some(Park { stage: stage @ ParkStage::Parked, .. }) = self.slice(name)?.parked {
            return Err(Refusal::Parked { name: name.clone(), stage });
        }
        let slice = self.slices.get_mut(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        slice.returned |= slice.parked.take().is_some();
        Ok(())
    }

    /// Takes back [`Node::begin_parking`] before any of the slice's processes was touched.
    pub fn withdraw_parking(&mut self, name: &SliceName) -> Result<(), Refusal> {
        self.set_park(name, None)
    }

    fn set_park(&mut self, name: &SliceName, park: Option<Park>) -> Result<(), Refusal> {
        let slice = self.slices.get_mut(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        slice.parked = park;
        Ok(())
    }

    /// Checks that every GPU of a parked slice has room for it.
    pub(super) fn room_to_return(&self, slice: &Slice) -> Result<(), Refusal> {
        let kept = if slice.job.is_some() { BTreeMap::new() } else { self.kept_now() };
        for Part { gpu, cap } in &slice.parts {
            let name = slice.name.clone();
            let known = self.gpus.iter().find(|known| known.uuid == *gpu);
            // The room of the largest rotating slice is kept for its return; what is kept for jobs lies beside it.
            let room = |gpu: &Gpu| match slice.rotates {
                true => Self::keeping(
                    gpu,
                    self.room_now(gpu),
                    kept.get(&gpu.uuid).copied().unwrap_or(Permille::ZERO),
                ),
                false => self.room_beside(gpu, &kept),
            };
            let Some(room) = known.map(room) else {
                return Err(Refusal::Stranded { name, gpu: *gpu, reason: "is not on this node any more" });
            };
            let index = room.index;
            if let Some(reason) = room.obstacle {
                return Err(Refusal::ObstacleToReturn { name, index, reason });
            }
            if let Some(cordon) = room.cordon {
                return Err(Refusal::CordonedToReturn { name, index, cordon: Box::new(cordon) });
            }
            if room.free < *cap || room.free_compute < slice.compute {
                return Err(Refusal::NoRoomToReturn {
                    name,
                    index,
                    memory: *cap,
                    compute: slice.compute,
                    free: room.free,
                    free_compute: room.free_compute,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "parking_tests.rs"]
mod tests;
