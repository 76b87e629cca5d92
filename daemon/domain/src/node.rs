//! The node as a whole: which slices there are and what of each GPU they are promised. The one door to
//! change that; everything a caller can do wrong comes back as a [`Refusal`].

mod cordons;
mod demand;
mod outside;
mod refusal;
mod resizing;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::cordon::Cordon;
use crate::id::{GpuUuid, SliceName};
use crate::jobs::MemberId;
use crate::placement::{self, Place, Room};
use crate::pod::PodContainer;
use crate::request::{Resize, SliceRequest};
use crate::slice::{Part, Slice};
use crate::units::{Bytes, Permille};
use demand::{demand, limit};

pub use refusal::Refusal;

/// A GPU that slices can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// NVML index.
    pub index: u32,
    /// UUID.
    pub uuid: GpuUuid,
    /// GPUs of the same island reach each other by NVLink.
    pub island: u32,
    /// What the driver can hand out.
    pub capacity: Bytes,
    /// Why no slice may be put here, if so.
    pub obstacle: Option<String>,
}

/// Who asks, when, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The user.
    pub uid: u32,
    /// Milliseconds since the Unix epoch.
    pub now_unix_ms: u64,
    /// The member of a job that is to live there.
    pub job: Option<MemberId>,
}

/// GPUs and the slices on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    gpus: Vec<Gpu>,
    slices: BTreeMap<SliceName, Slice>,
    /// What slices still hold beyond their caps after a shrink.
    excess: BTreeMap<(SliceName, GpuUuid), Bytes>,
    /// Also of GPUs that are not here now.
    cordons: BTreeMap<GpuUuid, Cordon>,
}

impl Node {
    /// A node without slices.
    pub const fn new(gpus: Vec<Gpu>) -> Self {
        Self { gpus, slices: BTreeMap::new(), excess: BTreeMap::new(), cordons: BTreeMap::new() }
    }

    /// Its GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Its slices by name.
    pub const fn slices(&self) -> &BTreeMap<SliceName, Slice> {
        &self.slices
    }

    /// A slice.
    pub fn slice(&self, name: &SliceName) -> Result<&Slice, Refusal> {
        self.slices.get(name).ok_or_else(|| Refusal::Unknown(name.clone()))
    }

    /// What is promised of a GPU, and therefore not free: the caps, and what a shrunk slice has yet to free.
    pub fn committed(&self, gpu: GpuUuid) -> (Bytes, Permille) {
        let parts = self.slices.values().filter_map(|slice| Some((slice, slice.part_of(gpu)?.cap)));
        parts.fold((Bytes::ZERO, Permille::ZERO), |(memory, compute), (slice, cap)| {
            let held = cap.saturating_add(self.excess(&slice.name, gpu));
            (memory.saturating_add(held), compute.checked_add(slice.compute).unwrap_or(Permille::WHOLE))
        })
    }

    /// Takes note of what a slice still holds of a GPU beyond its cap; says whether that is news.
    pub fn set_excess(&mut self, name: &SliceName, gpu: GpuUuid, excess: Bytes) -> bool {
        let key = (name.clone(), gpu);
        let before = if excess == Bytes::ZERO || !self.slices.contains_key(name) {
            self.excess.remove(&key)
        } else {
            self.excess.insert(key, excess)
        };
        before.unwrap_or(Bytes::ZERO) != excess
    }

    /// The same, where less than before is believed only as far as the driver confirms it: it `sees` so much beyond the
    /// cap. Says whether that is news.
    pub fn confirm_excess(&mut self, name: &SliceName, gpu: GpuUuid, excess: Bytes, sees: Bytes) -> bool {
        let unconfirmed = self.excess(name, gpu).min(sees);
        self.set_excess(name, gpu, excess.max(unconfirmed))
    }

    /// After a shrink: all that the slice was promised before stays promised to it, until less is confirmed.
    pub fn hold_back(&mut self, name: &SliceName, before: &Self) {
        let parts = self.slices.get(name).map(|slice| slice.parts.clone()).unwrap_or_default();
        for Part { gpu, cap } in parts {
            let former = before.slices.get(name).and_then(|slice| slice.part_of(gpu));
            let held = former.map_or(cap, |part| part.cap.saturating_add(before.excess(name, gpu)));
            self.set_excess(name, gpu, held.saturating_sub(cap));
        }
    }

    /// What a slice still holds of a GPU beyond its cap, as far as is known.
    pub fn excess(&self, name: &SliceName, gpu: GpuUuid) -> Bytes {
        self.excess.get(&(name.clone(), gpu)).copied().unwrap_or(Bytes::ZERO)
    }

    /// Takes note of what a GPU's obstacle is now; says whether that is news.
    pub fn set_obstacle(&mut self, gpu: GpuUuid, obstacle: Option<String>) -> bool {
        let known = self.gpus.iter_mut().find(|known| known.uuid == gpu);
        let Some(gpu) = known.filter(|known| known.obstacle != obstacle) else { return false };
        gpu.obstacle = obstacle;
        true
    }

    /// Whether a request would be granted now.
    pub fn check(&self, request: &SliceRequest) -> Result<(), Refusal> {
        self.plan(request).map(drop)
    }

    /// Makes a slice.
    pub fn create(&mut self, request: &SliceRequest, origin: Origin) -> Result<&Slice, Refusal> {
        let (places, compute, limit) = self.plan(request)?;
        let name = request.name.clone().unwrap_or_else(|| self.free_name());
        let slice = Slice {
            name: name.clone(),
            share: request.share,
            compute,
            limit,
            parts: places.iter().map(|place| Part { gpu: place.gpu, cap: place.memory }).collect(),
            mode: request.mode,
            priority: request.priority,
            frozen: false,
            ephemeral: request.ephemeral,
            pod: request.pod.clone(),
            job: origin.job,
            owner_uid: origin.uid,
            created_unix_ms: origin.now_unix_ms,
        };
        Ok(self.slices.entry(name).or_insert(slice))
    }

    /// Takes over a slice that an earlier daemon made, exactly as it was.
    pub fn adopt(&mut self, slice: Slice) -> Result<(), Refusal> {
        if self.slices.contains_key(&slice.name) {
            return Err(Refusal::Exists(slice.name));
        }
        for part in &slice.parts {
            let stranded = |reason| Refusal::Stranded { name: slice.name.clone(), gpu: part.gpu, reason };
            let room = self.rooms().into_iter().find(|room| room.uuid == part.gpu);
            match room {
                None => return Err(stranded("is not on this node any more")),
                Some(room) if part.cap > room.free => {
                    return Err(stranded("has less room than the slice was promised"));
                }
                Some(_) => {}
            }
        }
        self.slices.insert(slice.name.clone(), slice);
        Ok(())
    }

    /// Changes a slice where it is. A shrink below what is in use is granted: the ledger then refuses new
    /// memory until enough has been freed.
    pub fn resize(&mut self, name: &SliceName, resize: Resize) -> Result<&Slice, Refusal> {
        let next = self.resized(name, resize)?;
        let slice = self.slices.get_mut(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        *slice = next;
        Ok(slice)
    }

    /// Says whom a slice is for, or that it is for nobody in particular; says whether that is news.
    pub fn label(&mut self, name: &SliceName, pod: Option<PodContainer>) -> Result<bool, Refusal> {
        let slice = self.slices.get_mut(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let news = slice.pod != pod;
        slice.pod = pod;
        Ok(news)
    }

    /// A slice of which nobody said for whom it was made is a job's from now on.
    pub fn claim(&mut self, name: &SliceName, job: MemberId) {
        if let Some(slice) = self.slices.get_mut(name) {
            slice.job = slice.job.or(Some(job));
        }
    }

    /// Forgets a slice; what it was promised is free again.
    pub fn delete(&mut self, name: &SliceName) -> Result<Slice, Refusal> {
        let slice = self.slices.remove(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        self.excess.retain(|(owner, _), _| owner != name);
        Ok(slice)
    }

    /// The GPUs with what is free on them.
    pub fn rooms(&self) -> Vec<Room> {
        self.gpus.iter().map(|gpu| self.room(gpu)).collect()
    }

    fn room(&self, gpu: &Gpu) -> Room {
        let (memory, compute) = self.committed(gpu.uuid);
        Room {
            index: gpu.index,
            uuid: gpu.uuid,
            island: gpu.island,
            capacity: gpu.capacity,
            free: gpu.capacity.saturating_sub(memory),
            free_compute: Permille::WHOLE.saturating_sub(compute),
            occupied: self.slices.values().any(|slice| slice.part_of(gpu.uuid).is_some()),
            obstacle: gpu.obstacle.clone(),
            cordon: self.cordons.get(&gpu.uuid).cloned(),
        }
    }

    /// Where it would go, with its compute request and limit there.
    fn plan(&self, request: &SliceRequest) -> Result<(Vec<Place>, Permille, Permille), Refusal> {
        if let Some(name) = request.name.as_ref().filter(|name| self.slices.contains_key(*name)) {
            return Err(Refusal::Exists(name.clone()));
        }
        let demand = demand(request)?;
        let places = placement::place(&self.rooms(), demand, &request.gpus)?;
        let compute = places.first().map_or(Permille::ZERO, |place| place.compute);
        let limit = limit(request.mode, compute, request.limit, Permille::WHOLE)?;
        Ok((places, compute, limit))
    }

    /// `slice-1`, or the lowest number that is free.
    fn free_name(&self) -> SliceName {
        let numbered = (1u64..).filter_map(|n| alloc::format!("slice-{n}").parse::<SliceName>().ok());
        let mut free = numbered.filter(|name| !self.slices.contains_key(name));
        free.next().expect("there are more numbers than slices")
    }
}

/// The most GPUs in one slice; the shared regions have records for as many.
pub const MAX_GPUS: usize = 16;

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
