//! The node: its slices, and the memory and compute committed on each GPU. All changes go through [`Node`];
//! invalid requests return a [`Refusal`].

mod cordons;
mod demand;
mod latency;
mod outside;
mod parking;
mod refusal;
mod resizing;
mod rotating;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::cordon::Cordon;
use crate::id::{GpuUuid, SliceName};
use crate::jobs::MemberId;
use crate::overcommit::Overcommit;
use crate::park::Park;
use crate::placement::{GpuRoom, MemoryDemand, PlacedPart};
use crate::pod::PodContainer;
use crate::request::{Resize, SliceRequest};
use crate::slice::{Part, Slice};
use crate::units::{Bytes, Permille};
use demand::{demand, limit};

pub use demand::MAX_GPUS;
pub use outside::DEVICE_PLUGIN_PREFIX;
pub use refusal::Refusal;

/// A GPU that slices can be created on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// Island number; GPUs of the same island are connected by NVLink.
    pub island: u32,
    /// Memory that the driver can allocate.
    pub capacity: Bytes,
    /// Reason for which no slice may be placed here, if any.
    pub obstacle: Option<String>,
}

/// Creator and time of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Uid of the creator.
    pub uid: u32,
    /// Milliseconds since the Unix epoch.
    pub now_unix_ms: u64,
    /// The job member that the slice is created for.
    pub job: Option<MemberId>,
}

/// GPUs and the slices on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    gpus: Vec<Gpu>,
    slices: BTreeMap<SliceName, Slice>,
    /// Memory held beyond the caps after a shrink, by slice and GPU.
    excess: BTreeMap<(SliceName, GpuUuid), Bytes>,
    /// Cordons, including those of GPUs that are absent.
    cordons: BTreeMap<GpuUuid, Cordon>,
    /// GPUs that are kept for jobs; only their slices may take them.
    kept: KeptGpus,
    /// Sum of caps that rotating slices may reach.
    overcommit: Overcommit,
}

/// Parts of GPUs that are kept for jobs and for granted requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptGpus {
    /// Parts that are kept whatever slices there are.
    pub parts: BTreeMap<GpuUuid, Permille>,
    /// Part of each of these GPUs that is kept until a member has its slice.
    pub starting: Vec<(MemberId, Vec<GpuUuid>, Permille)>,
}

/// Memory and compute of a GPU.
type Amount = (Bytes, Permille);

/// The sum of two amounts; compute beyond a whole GPU counts as a whole one.
fn add(a: Amount, b: Amount) -> Amount {
    (a.0.saturating_add(b.0), a.1.checked_add(b.1).unwrap_or(Permille::WHOLE))
}

/// Plan for a new slice.
struct SlicePlan {
    places: Vec<PlacedPart>,
    compute: Permille,
    limit: Permille,
    /// True if it is parked until its first stay.
    waits: bool,
}

impl Node {
    /// A node without slices.
    pub const fn new(gpus: Vec<Gpu>) -> Self {
        Self {
            gpus,
            slices: BTreeMap::new(),
            excess: BTreeMap::new(),
            cordons: BTreeMap::new(),
            kept: KeptGpus { parts: BTreeMap::new(), starting: Vec::new() },
            overcommit: Overcommit::NONE,
        }
    }

    /// All GPUs, in index order.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// All slices, by name.
    pub const fn slices(&self) -> &BTreeMap<SliceName, Slice> {
        &self.slices
    }

    /// The slice with this name.
    pub fn slice(&self, name: &SliceName) -> Result<&Slice, Refusal> {
        self.slices.get(name).ok_or_else(|| Refusal::Unknown(name.clone()))
    }

    /// Memory and compute of a GPU that are not free.
    ///
    /// The caps, what shrunk slices have yet to release, and the room that is kept for the stays of rotating slices.
    pub fn committed(&self, gpu: GpuUuid) -> (Bytes, Permille) {
        add(self.of_others(gpu), self.of_rotating(gpu))
    }

    /// Sets the memory that a slice holds beyond its cap on a GPU; returns whether that changed.
    pub fn set_excess(&mut self, name: &SliceName, gpu: GpuUuid, excess: Bytes) -> bool {
        let key = (name.clone(), gpu);
        let before = if excess == Bytes::ZERO || !self.slices.contains_key(name) {
            self.excess.remove(&key)
        } else {
            self.excess.insert(key, excess)
        };
        before.unwrap_or(Bytes::ZERO) != excess
    }

    /// Like [`Node::set_excess`], but lowers the excess only as far as the driver confirms.
    ///
    /// `sees` is the excess that the driver reports.
    pub fn confirm_excess(&mut self, name: &SliceName, gpu: GpuUuid, excess: Bytes, sees: Bytes) -> bool {
        let unconfirmed = self.excess(name, gpu).min(sees);
        self.set_excess(name, gpu, excess.max(unconfirmed))
    }

    /// Keeps the former commitment of a shrunk slice until a lower use is confirmed.
    pub fn hold_back(&mut self, name: &SliceName, before: &Self) {
        let parts = self.slices.get(name).map(|slice| slice.parts.clone()).unwrap_or_default();
        for Part { gpu, cap } in parts {
            let former = before.slices.get(name).and_then(|slice| slice.part_of(gpu));
            let held = former.map_or(cap, |part| part.cap.saturating_add(before.excess(name, gpu)));
            self.set_excess(name, gpu, held.saturating_sub(cap));
        }
    }

    /// Memory that a slice is known to hold beyond its cap on a GPU.
    pub fn excess(&self, name: &SliceName, gpu: GpuUuid) -> Bytes {
        self.excess.get(&(name.clone(), gpu)).copied().unwrap_or(Bytes::ZERO)
    }

    /// Sets or clears a GPU's obstacle; returns whether that changed.
    pub fn set_obstacle(&mut self, gpu: GpuUuid, obstacle: Option<String>) -> bool {
        let known = self.gpus.iter_mut().find(|known| known.uuid == gpu);
        let Some(gpu) = known.filter(|known| known.obstacle != obstacle) else { return false };
        gpu.obstacle = obstacle;
        true
    }

    /// Sets the GPUs that are kept for jobs.
    pub fn set_kept(&mut self, kept: KeptGpus) {
        self.kept = kept;
    }

    /// Checks whether a request would be granted now, without a change.
    pub fn check(&self, request: &SliceRequest) -> Result<(), Refusal> {
        self.plan(request, false).map(drop)
    }

    /// Places and enters a slice.
    pub fn create(&mut self, request: &SliceRequest, origin: Origin) -> Result<&Slice, Refusal> {
        let SlicePlan { places, compute, limit, waits } = self.plan(request, origin.job.is_some())?;
        let name = request.name.clone().unwrap_or_else(|| self.free_name());
        let slice = Slice {
            name: name.clone(),
            share: request.share,
            compute,
            limit,
            parts: places.iter().map(|place| Part { gpu: place.gpu, cap: place.memory }).collect(),
            mode: request.mode,
            priority: request.priority,
            latency: request.latency,
            gang: request.gang.clone(),
            frozen: false,
            parked: waits.then_some(Park::awaiting(origin.now_unix_ms)),
            returned: false,
            ephemeral: request.ephemeral,
            rotates: request.rotates,
            several_containers: request.several_containers,
            park_idle: request.park_idle,
            pod: request.pod.clone(),
            job: origin.job,
            project: request.project.clone(),
            owner_uid: origin.uid,
            created_unix_ms: origin.now_unix_ms,
        };
        Ok(self.slices.entry(name).or_insert(slice))
    }

    /// Restores a slice of an earlier daemon unchanged.
    pub fn adopt(&mut self, slice: Slice) -> Result<(), Refusal> {
        if self.slices.contains_key(&slice.name) {
            return Err(Refusal::Exists(slice.name));
        }
        for part in &slice.parts {
            let stranded = |reason| Refusal::Stranded { name: slice.name.clone(), gpu: part.gpu, reason };
            let gpu = self.gpus.iter().find(|gpu| gpu.uuid == part.gpu);
            match gpu.map(|gpu| if slice.rotates { self.room_now(gpu) } else { self.room(gpu) }) {
                None => return Err(stranded("is not on this node any more")),
                Some(room) if part.cap > room.free && !slice.is_away() => {
                    return Err(stranded("has less room than the slice was promised"));
                }
                Some(_) => {}
            }
        }
        self.slices.insert(slice.name.clone(), slice);
        Ok(())
    }

    /// Changes a slice in place. A shrink below the current use is accepted; the ledger then rejects
    /// allocations until enough is freed.
    pub fn resize(&mut self, name: &SliceName, resize: Resize) -> Result<&Slice, Refusal> {
        let next = self.resized(name, resize)?;
        let slice = self.slices.get_mut(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        *slice = next;
        Ok(slice)
    }

    /// Sets or clears the pod of a slice; returns whether that changed.
    pub fn label(&mut self, name: &SliceName, pod: Option<PodContainer>) -> Result<bool, Refusal> {
        let slice = self.slices.get_mut(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let news = slice.pod != pod;
        slice.pod = pod;
        Ok(news)
    }

    /// Assigns a slice without a job to a job member.
    pub fn claim(&mut self, name: &SliceName, job: MemberId) {
        if let Some(slice) = self.slices.get_mut(name) {
            slice.job = slice.job.or(Some(job));
        }
    }

    /// Removes a slice and frees its commitments.
    pub fn delete(&mut self, name: &SliceName) -> Result<Slice, Refusal> {
        let slice = self.slices.remove(name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
        self.excess.retain(|(owner, _), _| owner != name);
        Ok(slice)
    }

    /// All GPUs with their free memory and compute.
    pub fn rooms(&self) -> Vec<GpuRoom> {
        self.gpus.iter().map(|gpu| self.room(gpu)).collect()
    }

    /// All GPUs as a new slice finds them: without the parts that are kept for jobs, unless it is a job's.
    fn rooms_for(&self, is_job: bool) -> Vec<GpuRoom> {
        let kept = if is_job { BTreeMap::new() } else { self.kept_now() };
        self.gpus.iter().map(|gpu| self.room_beside(gpu, &kept)).collect()
    }

    /// Part of each GPU that is kept for slices which are not there yet.
    fn kept_now(&self) -> BTreeMap<GpuUuid, Permille> {
        let mut kept = self.kept.parts.clone();
        if self.kept.starting.is_empty() {
            return kept;
        }
        let present = self.slices.values().filter(|slice| !slice.is_away());
        let started: BTreeSet<MemberId> = present.filter_map(|slice| slice.job).collect();
        for (_, gpus, part) in self.kept.starting.iter().filter(|(member, ..)| !started.contains(member)) {
            for gpu in gpus {
                let sum = kept.entry(*gpu).or_insert(Permille::ZERO);
                *sum = sum.checked_add(*part).unwrap_or(Permille::WHOLE);
            }
        }
        kept
    }

    fn room_beside(&self, gpu: &Gpu, kept: &BTreeMap<GpuUuid, Permille>) -> GpuRoom {
        let kept = kept.get(&gpu.uuid).copied().unwrap_or(Permille::ZERO);
        Self::keeping(gpu, self.room(gpu), kept)
    }

    /// A room without a part that is kept for jobs.
    fn keeping(gpu: &Gpu, room: GpuRoom, kept: Permille) -> GpuRoom {
        GpuRoom {
            free: room.free.saturating_sub(MemoryDemand::Share(kept).on(gpu.capacity)),
            free_compute: room.free_compute.saturating_sub(kept),
            kept,
            ..room
        }
    }

    fn room(&self, gpu: &Gpu) -> GpuRoom {
        self.room_without(gpu, self.committed(gpu.uuid))
    }

    fn room_without(&self, gpu: &Gpu, (memory, compute): Amount) -> GpuRoom {
        GpuRoom {
            index: gpu.index,
            uuid: gpu.uuid,
            island: gpu.island,
            capacity: gpu.capacity,
            free: gpu.capacity.saturating_sub(memory),
            free_compute: Permille::WHOLE.saturating_sub(compute),
            occupied: self.slices.values().any(|slice| !slice.is_away() && slice.part_of(gpu.uuid).is_some()),
            kept: Permille::ZERO,
            obstacle: gpu.obstacle.clone(),
            cordon: self.cordons.get(&gpu.uuid).cloned(),
        }
    }

    /// Plan for a request.
    fn plan(&self, request: &SliceRequest, is_job: bool) -> Result<SlicePlan, Refusal> {
        if let Some(name) = request.name.as_ref().filter(|name| self.slices.contains_key(*name)) {
            return Err(Refusal::Exists(name.clone()));
        }
        let demand = demand(request)?;
        let (places, waits) = if request.rotates {
            self.place_rotating(request, demand)?
        } else {
            (self.place(request, demand, &self.rooms_for(is_job))?, false)
        };
        let compute = places.first().map_or(Permille::ZERO, |place| place.compute);
        let limit = limit(request.mode, compute, request.limit, Permille::WHOLE)?;
        Ok(SlicePlan { places, compute, limit, waits })
    }

    /// `slice-N` with the lowest free number.
    fn free_name(&self) -> SliceName {
        let numbered = (1u64..).filter_map(|n| alloc::format!("slice-{n}").parse::<SliceName>().ok());
        let mut free = numbered.filter(|name| !self.slices.contains_key(name));
        free.next().expect("there are more numbers than slices")
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
pub(crate) mod tests;
