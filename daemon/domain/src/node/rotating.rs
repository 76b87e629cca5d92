//! Slices that rotate: more of them than a GPU has room for.
//!
//! Laws:
//! - Room for the largest rotating slice of a GPU is kept from all others, so that each can have its stay.
//! - The caps of all slices of a GPU together are within the overcommit when a rotating one is created or grows.

use alloc::vec::Vec;

use super::{Amount, Gpu, Node, Refusal, add};
use crate::id::{GpuUuid, SliceName};
use crate::jobs::MilliGpus;
use crate::overcommit::Overcommit;
use crate::park::{Park, ParkStage};
use crate::placement::{Demand, GpuRoom, PlacedPart};
use crate::request::SliceRequest;
use crate::slice::Slice;
use crate::units::{Bytes, Permille};

/// The larger memory and the larger compute of two amounts.
fn most(a: Amount, b: Amount) -> Amount {
    (a.0.max(b.0), a.1.max(b.1))
}

impl Node {
    /// Sets the sum of caps that rotating slices may reach on a GPU.
    pub const fn set_overcommit(&mut self, overcommit: Overcommit) {
        self.overcommit = overcommit;
    }

    /// Memory and compute that a slice takes of a GPU, there or away.
    pub(super) fn amount(&self, slice: &Slice, gpu: GpuUuid) -> Option<Amount> {
        let held = slice.part_of(gpu)?.cap.saturating_add(self.excess(&slice.name, gpu));
        Some((held, slice.compute))
    }

    /// Sum of what slices take of a GPU.
    fn sum(&self, gpu: GpuUuid, which: impl Fn(&Slice) -> bool) -> Amount {
        let amounts =
            self.slices.values().filter(|slice| which(slice)).filter_map(|slice| self.amount(slice, gpu));
        amounts.fold((Bytes::ZERO, Permille::ZERO), add)
    }

    /// Part of a GPU that rotating slices take.
    ///
    /// That of those that are there, or room for the largest of all, if that is more.
    pub(super) fn of_rotating(&self, gpu: GpuUuid) -> Amount {
        let rotating = self.slices.values().filter(|slice| slice.rotates);
        let largest = rotating.filter_map(|slice| self.amount(slice, gpu));
        largest.fold(self.sum(gpu, |slice| slice.rotates && !slice.is_away()), most)
    }

    /// Part of a GPU that other slices take.
    pub(super) fn of_others(&self, gpu: GpuUuid) -> Amount {
        self.sum(gpu, |slice| !slice.rotates && !slice.is_away())
    }

    /// The part of a GPU that rotating slices take, the larger of memory and compute.
    pub(super) fn rotating_part(&self, gpu: GpuUuid, capacity: Bytes) -> MilliGpus {
        let (memory, compute) = self.of_rotating(gpu);
        let memory = (u128::from(memory.get()) * 1000).div_ceil(u128::from(capacity.get().max(1)));
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        MilliGpus::new(memory.max(compute.get()).min(MilliGpus::ONE.get()))
    }

    /// A GPU as a rotating slice finds it that comes now.
    pub(super) fn room_now(&self, gpu: &Gpu) -> GpuRoom {
        let taken =
            add(self.of_others(gpu.uuid), self.sum(gpu.uuid, |slice| slice.rotates && !slice.is_away()));
        self.room_without(gpu, taken)
    }

    /// The same within the overcommit.
    pub(super) fn room_within(&self, gpu: &Gpu) -> GpuRoom {
        self.bounded(gpu, self.room_now(gpu))
    }

    /// A GPU as a rotating slice finds it that waits for its first stay, within the overcommit.
    fn room_in_time(&self, gpu: &Gpu) -> GpuRoom {
        let kept = self.kept_now().get(&gpu.uuid).copied().unwrap_or(Permille::ZERO);
        let room = Self::keeping(gpu, self.room_without(gpu, self.of_others(gpu.uuid)), kept);
        self.bounded(gpu, room)
    }

    fn bounded(&self, gpu: &Gpu, room: GpuRoom) -> GpuRoom {
        let promised = self.sum(gpu.uuid, |_| true).0;
        let left = self.overcommit.of(gpu.capacity).saturating_sub(promised);
        GpuRoom { free: room.free.min(left), ..room }
    }

    /// Places a rotating slice; true if it is to wait for its first stay.
    pub(super) fn place_rotating(
        &self,
        request: &SliceRequest,
        demand: Demand,
    ) -> Result<(Vec<PlacedPart>, bool), Refusal> {
        if self.overcommit == Overcommit::NONE {
            return Err(Refusal::NoRotation);
        }
        check(request)?;
        let kept = self.kept_now();
        let now = self.gpus.iter().map(|gpu| {
            let kept = kept.get(&gpu.uuid).copied().unwrap_or(Permille::ZERO);
            Self::keeping(gpu, self.room_within(gpu), kept)
        });
        if let Ok(places) = self.place(request, demand, &now.collect::<Vec<_>>()) {
            return Ok((places, false));
        }
        let in_time: Vec<GpuRoom> = self.gpus.iter().map(|gpu| self.room_in_time(gpu)).collect();
        match self.place(request, demand, &in_time) {
            Ok(places) => Ok((places, true)),
            Err(Refusal::Unplaceable(why)) => {
                Err(Refusal::NoRoomToRotate { why, overcommit: self.overcommit })
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Tests if a parked slice could come back now.
    pub fn may_return(&self, name: &SliceName) -> bool {
        self.slices.get(name).is_some_and(|slice| slice.is_away() && self.room_to_return(slice).is_ok())
    }

    /// Supposes that a slice is parked, or that it is on its GPUs, in a plan.
    pub(crate) fn suppose(&mut self, name: &SliceName, is_away: bool) {
        if let Some(slice) = self.slices.get_mut(name) {
            slice.parked = is_away.then_some(Park::awaiting(0));
        }
    }
}

impl Park {
    /// State of a rotating slice that waits for its first stay, with nothing in host memory.
    pub(super) const fn awaiting(now_unix_ms: u64) -> Self {
        Self { stage: ParkStage::Parked, host: Bytes::ZERO, since_unix_ms: now_unix_ms, wakes: true }
    }
}

/// Rejects what a slice cannot have that is not always on its GPUs.
fn check(request: &SliceRequest) -> Result<(), Refusal> {
    let refused = match request {
        SliceRequest { latency: Some(_), .. } => {
            "a rotating slice is away from its GPU for whole stays of others, so no latency can be held for it: leave \
             out --latency or --rotate"
        }
        SliceRequest { gang: Some(_), .. } => {
            "the slices of a gang are on their GPUs together, and rotating ones are not: leave out --gang or --rotate"
        }
        SliceRequest { project: Some(_), .. } => {
            "a rotating slice is on its GPU for a part of the time, which no quota counts: it is made for users of no \
             project alone; leave out --rotate"
        }
        _ => return Ok(()),
    };
    Err(Refusal::Contradiction(refused))
}

#[cfg(test)]
#[path = "rotating_tests.rs"]
mod tests;
