//! The node as a whole: which slices there are and what of each GPU they are promised. The one door to
//! change that; everything a caller can do wrong comes back as a [`Refusal`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::id::{GpuUuid, SliceName};
use crate::placement::{self, Compute, Demand, Ever, Memory, Place, Room, Unplaceable};
use crate::pod::PodContainer;
use crate::request::{ComputeMode, Resize, Share, SliceRequest};
use crate::slice::{Part, Slice};
use crate::units::{Bytes, Permille};

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

/// Who asks, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The user.
    pub uid: u32,
    /// Milliseconds since the Unix epoch.
    pub now_unix_ms: u64,
}

/// Why the node stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be placed.
    Unplaceable(Unplaceable),
    /// The name is taken.
    Exists(SliceName),
    /// No slice has that name.
    Unknown(SliceName),
    /// The parts of the request contradict each other.
    Contradiction(&'static str),
    /// A ceiling of compute below what is guaranteed.
    LimitBelowRequest {
        /// The ceiling.
        limit: Permille,
        /// What is guaranteed.
        request: Permille,
    },
    /// Whole GPUs are not resized.
    WholeGpus(SliceName),
    /// A slice cannot grow so far where it is.
    CannotGrow {
        /// The slice.
        name: SliceName,
        /// The index of its GPU.
        index: u32,
        /// What it would have.
        memory: Bytes,
        /// What it would have of the compute.
        compute: Permille,
        /// The most it could have.
        most_memory: Bytes,
        /// The most it could have of the compute.
        most_compute: Permille,
    },
    /// A slice from before is on a GPU that is not here, or not as large, any more.
    Stranded {
        /// The slice.
        name: SliceName,
        /// Its GPU.
        gpu: GpuUuid,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unplaceable(why) => why.fmt(f),
            Self::Exists(name) => {
                write!(f, "a slice named {name} exists already: choose another name, or delete that one")
            }
            Self::Unknown(name) => {
                write!(f, "there is no slice named {name}; `tranche slice list` shows those there are")
            }
            Self::Contradiction(why) => f.write_str(why),
            Self::LimitBelowRequest { limit, request } => write!(
                f,
                "a limit of {limit} is below the compute request of {request}, which the slice is guaranteed: \
                 raise the limit, or lower the request"
            ),
            Self::WholeGpus(name) => write!(
                f,
                "slice {name} is made of several whole GPUs, which cannot be resized: delete it and make another"
            ),
            Self::CannotGrow { name, index, memory, compute, most_memory, most_compute } => write!(
                f,
                "slice {name} cannot have {memory} and {compute} of compute: on GPU {index} it can have at most \
                 {most_memory} and {most_compute} of compute; a slice in being never moves to another GPU"
            ),
            Self::Stranded { name, gpu, reason } => {
                write!(f, "slice {name} cannot be served: its GPU {gpu} {reason}")
            }
        }
    }
}

impl core::error::Error for Refusal {}

impl From<Unplaceable> for Refusal {
    fn from(why: Unplaceable) -> Self {
        Self::Unplaceable(why)
    }
}

impl Refusal {
    /// Whether the same request can succeed later without anybody changing it.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Unplaceable(Unplaceable::NoRoom { ever: Ever::Later, .. }))
    }
}

/// GPUs and the slices on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    gpus: Vec<Gpu>,
    slices: BTreeMap<SliceName, Slice>,
    /// What slices still hold beyond their caps after a shrink.
    excess: BTreeMap<(SliceName, GpuUuid), Bytes>,
}

impl Node {
    /// A node without slices.
    pub const fn new(gpus: Vec<Gpu>) -> Self {
        Self { gpus, slices: BTreeMap::new(), excess: BTreeMap::new() }
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

    fn excess(&self, name: &SliceName, gpu: GpuUuid) -> Bytes {
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

    fn resized(&self, name: &SliceName, resize: Resize) -> Result<Slice, Refusal> {
        let mut slice = self.slice(name)?.clone();
        if resize.concerns_size() {
            self.resize_part(&mut slice, resize)?;
        }
        slice.limit = limit(slice.mode, slice.compute, resize.limit, slice.limit)?;
        slice.priority = resize.priority.unwrap_or(slice.priority);
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
        let memory = resize.memory.map(Memory::Bytes).or(fraction.map(Memory::Share));
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

    /// One part of a slice with other memory, if that and the compute fit where it is.
    fn part_resized(
        &self,
        slice: &Slice,
        part: Part,
        memory: Option<Memory>,
        compute: Permille,
    ) -> Result<Part, Refusal> {
        let name = &slice.name;
        let stranded = Refusal::Stranded { name: name.clone(), gpu: part.gpu, reason: "is gone" };
        let gpu = self.gpus.iter().find(|gpu| gpu.uuid == part.gpu).ok_or(stranded)?;
        let room = self.room(gpu);
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

    /// `slice-1`, or the lowest number that is free.
    fn free_name(&self) -> SliceName {
        let numbered = (1u64..).filter_map(|n| alloc::format!("slice-{n}").parse::<SliceName>().ok());
        let mut free = numbered.filter(|name| !self.slices.contains_key(name));
        free.next().expect("there are more numbers than slices")
    }
}

fn check_compute(compute: Permille, mode: ComputeMode) -> Result<(), Refusal> {
    match (compute == Permille::ZERO, mode == ComputeMode::BestEffort) {
        (true, false) => Err(Refusal::Contradiction(
            "a slice without any compute was asked for: give it at least 0.1 %, or make it best-effort",
        )),
        (false, true) => Err(Refusal::Contradiction(
            "a best-effort slice is guaranteed no compute, it runs when others do not: leave the compute request \
             out, or make the slice fair",
        )),
        _ => Ok(()),
    }
}

/// The ceiling of a slice's compute: the request itself where that is strict, else what was asked for, or
/// what there was.
fn limit(
    mode: ComputeMode,
    request: Permille,
    asked: Option<Permille>,
    before: Permille,
) -> Result<Permille, Refusal> {
    let strict = mode == ComputeMode::Strict;
    match asked {
        Some(Permille::ZERO) => Err(Refusal::Contradiction(
            "a limit of nothing would stop the slice's programs for good: `tranche slice freeze` stops them \
             for a while",
        )),
        Some(limit) if strict && limit != request => Err(Refusal::Contradiction(
            "the limit of a strict slice is its compute request: change that, or make the slice fair",
        )),
        _ if strict => Ok(request),
        _ => match asked.unwrap_or(before) {
            limit if limit < request => Err(Refusal::LimitBelowRequest { limit, request }),
            limit => Ok(limit),
        },
    }
}

/// What has to be placed for a request.
fn demand(request: &SliceRequest) -> Result<Demand, Refusal> {
    let idle_only = request.mode == ComputeMode::BestEffort;
    let asked = request.compute.or(idle_only.then_some(Permille::ZERO));
    if let Some(compute) = asked {
        check_compute(compute, request.mode)?;
    }
    if request.gpus.len() > MAX_GPUS {
        return Err(Refusal::Contradiction(TOO_MANY_GPUS));
    }
    let part = |memory, implied| Demand::Part {
        memory: request.memory.map_or(memory, Memory::Bytes),
        compute: asked.map_or(implied, Compute::Share),
    };
    match request.share {
        Share::Fraction(fraction) => {
            let share = fraction.permille();
            Ok(part(Memory::Share(share), Compute::Share(share)))
        }
        Share::Memory(bytes) => Ok(part(Memory::Bytes(bytes), Compute::LikeMemory)),
        Share::Whole(_) if request.memory.is_some() || request.compute.is_some() => {
            Err(Refusal::Contradiction(
                "whole GPUs are given entirely, with all their memory and compute: \
                 leave those out, or ask for a fraction",
            ))
        }
        Share::Whole(count) if count.get() as usize > MAX_GPUS => Err(Refusal::Contradiction(TOO_MANY_GPUS)),
        Share::Whole(count) if ![0, count.get() as usize].contains(&request.gpus.len()) => {
            Err(Refusal::Contradiction(
                "so many whole GPUs are asked for, and another number of them is named: \
                 name as many, or let the daemon choose",
            ))
        }
        Share::Whole(count) => Ok(Demand::Whole(count)),
    }
}

const TOO_MANY_GPUS: &str = "a slice has at most 16 GPUs: ask for fewer, or for several slices";

/// The most GPUs in one slice; the shared regions have records for as many.
pub const MAX_GPUS: usize = 16;

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
