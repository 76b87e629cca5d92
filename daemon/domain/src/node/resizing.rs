//! Resizing of a slice in place.

use alloc::vec::Vec;

use super::demand::{check_compute, limit};
use super::{Node, Refusal};
use crate::id::SliceName;
use crate::placement::MemoryDemand;
use crate::request::{ComputeMode, Resize, Share};
use crate::slice::{Part, Slice};
use crate::units::{Bytes, Permille};

impl Node {
    pub(super) fn resized(&self, name: &SliceName, resize: Resize) -> Result<Slice, Refusal> {
        let mut slice = self.slice(name)?.clone();
        let of_job = resize.concerns_size() || resize.priority.is_some() || resize.latency.is_some();
        if slice.job.is_some() && of_job {
            return Err(Refusal::OfJob(slice.name));
        }
        if let Some(park) = slice.parked.filter(|_| resize.concerns_size()) {
            return Err(Refusal::Parked { name: slice.name, stage: park.stage });
        }
        if resize.concerns_size() {
            self.resize_part(&mut slice, resize)?;
        }
        slice.limit = limit(slice.mode, slice.compute, resize.limit, slice.limit)?;
        slice.priority = resize.priority.unwrap_or(slice.priority);
        if let Some(latency) = resize.latency {
            self.admit_latency(&slice, latency)?;
            slice.latency = latency;
        }
        slice.frozen = resize.frozen.unwrap_or(slice.frozen);
        Ok(slice)
    }

    fn resize_part(&self, slice: &mut Slice, resize: Resize) -> Result<(), Refusal> {
        let name = &slice.name;
        if slice.share.gpus() > 1 {
            return Err(Refusal::WholeGpus(name.clone()));
        }
        let fraction = resize.fraction.map(|fraction| fraction.permille());
        let guaranteed = fraction.filter(|_| slice.mode != ComputeMode::BestEffort);
        let compute = resize.compute.or(guaranteed).unwrap_or(slice.compute);
        check_compute(compute, slice.mode)?;
        let memory = resize.memory.map(MemoryDemand::Bytes).or(fraction.map(MemoryDemand::Share));
        let sizes = slice.parts.iter().map(|part| self.part_resized(slice, *part, memory, compute));
        let parts: Vec<Part> = sizes.collect::<Result<_, _>>()?;

        slice.share = match (resize.fraction, resize.memory, parts.first()) {
            (Some(fraction), _, _) => Share::Fraction(fraction),
            (None, Some(_), Some(part)) => Share::Memory(part.cap),
            _ => slice.share,
        };
        slice.parts = parts;
        slice.compute = compute;
        Ok(())
    }

    /// One part of the slice with new memory, if memory and compute fit on its GPU.
    fn part_resized(
        &self,
        slice: &Slice,
        part: Part,
        memory: Option<MemoryDemand>,
        compute: Permille,
    ) -> Result<Part, Refusal> {
        let name = &slice.name;
        let stranded = Refusal::Stranded { name: name.clone(), gpu: part.gpu, reason: "is gone" };
        let gpu = self.gpus.iter().find(|gpu| gpu.uuid == part.gpu).ok_or(stranded)?;
        let room = match slice {
            Slice { rotates: true, .. } => {
                let kept = self.kept_now().get(&gpu.uuid).copied().unwrap_or(Permille::ZERO);
                Self::keeping(gpu, self.room_within(gpu), kept)
            }
            Slice { job: Some(_), .. } => self.room(gpu),
            _ => self.room_beside(gpu, &self.kept_now()),
        };
        let most_memory = room.free.saturating_add(part.cap).saturating_add(self.excess(name, gpu.uuid));
        let most_compute = room.free_compute.checked_add(slice.compute).unwrap_or(Permille::WHOLE);
        let memory = memory.map_or(part.cap, |memory| memory.on(gpu.capacity));
        if memory > most_memory || compute > most_compute {
            let (name, index) = (name.clone(), gpu.index);
            return Err(Refusal::CannotGrow { name, index, memory, compute, most_memory, most_compute });
        }
        if memory == Bytes::ZERO {
            return Err(Refusal::Contradiction("that fraction of this GPU is less than 1 MiB: ask for more"));
        }
        Ok(Part { cap: memory, ..part })
    }
}
