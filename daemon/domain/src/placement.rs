//! Placement of slices: best fit over the node; a fraction is never split over two GPUs.
//!
//! A part has to fit in memory and in compute. Among the GPUs where it fits, the table `BEST_FIT` decides;
//! whole GPUs come from the island that they leave fullest. Placement is deterministic.

mod demand;
mod room;
mod unplaceable;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::id::{GpuSelector, GpuUuid};
use crate::units::{Bytes, Permille};

pub use demand::{ComputeDemand, Demand, MemoryDemand};
pub use room::GpuRoom;
pub use unplaceable::{Ever, Unplaceable};

/// A chosen GPU, and the amounts taken of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPart {
    /// UUID of the GPU.
    pub gpu: GpuUuid,
    /// Memory; whole MiB unless the whole GPU is taken.
    pub memory: Bytes,
    /// Compute in permille.
    pub compute: Permille,
}

/// A GPU where a part fits.
struct PlacementCandidate<'a> {
    room: &'a GpuRoom,
    place: PlacedPart,
}

type Comparator = fn(&PlacementCandidate<'_>, &PlacementCandidate<'_>) -> Ordering;

/// Criteria of the best fit, most important first.
const BEST_FIT: [(&str, Comparator); 4] = [
    ("a GPU in use before an untouched one", |a, b| b.room.occupied.cmp(&a.room.occupied)),
    ("the least memory left over", |a, b| memory_left(a).cmp(&memory_left(b))),
    ("the least compute left over", |a, b| compute_left(a).cmp(&compute_left(b))),
    ("the lowest index", |a, b| a.room.index.cmp(&b.room.index)),
];

fn memory_left(candidate: &PlacementCandidate<'_>) -> Bytes {
    candidate.room.free.saturating_sub(candidate.place.memory)
}

fn compute_left(candidate: &PlacementCandidate<'_>) -> Permille {
    candidate.room.free_compute.saturating_sub(candidate.place.compute)
}

fn better(a: &PlacementCandidate<'_>, b: &PlacementCandidate<'_>) -> Ordering {
    BEST_FIT.iter().map(|(_, compare)| compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Places a demand, in index order.
///
/// One place for a part, one on each GPU if several are named, and one for each whole GPU.
pub fn place(rooms: &[GpuRoom], demand: Demand, on: &[GpuSelector]) -> Result<Vec<PlacedPart>, Unplaceable> {
    let considered = consider(rooms, on)?;
    let fit = |rooms: &[GpuRoom]| match demand {
        Demand::Part { memory, compute } if on.len() > 1 => fit_each(rooms, memory, compute),
        _ => fit(rooms, demand),
    };
    let refuse = || {
        let ever = ever(&considered, fit);
        // Of GPUs that are named, each has to take its part.
        match considered.iter().find_map(|room| Some((room.index, room.cordon.clone()?))) {
            Some((index, cordon)) if !on.is_empty() && ever != Ever::Never => {
                Unplaceable::Cordoned { index, cordon }
            }
            _ => Unplaceable::NoRoom { demand, rooms: considered.clone(), ever },
        }
    };
    fit(&considered).ok_or_else(refuse)
}

/// Fit of the demand on a node without slices or cordons.
fn ever(rooms: &[GpuRoom], fit: impl Fn(&[GpuRoom]) -> Option<Vec<PlacedPart>>) -> Ever {
    let empty: Vec<GpuRoom> = rooms.iter().map(emptied).collect();
    let open: Vec<GpuRoom> = empty.iter().map(|room| GpuRoom { cordon: None, ..room.clone() }).collect();
    match (fit(&empty), fit(&open)) {
        (Some(_), _) => Ever::Later,
        (None, Some(_)) => Ever::Uncordoned,
        (None, None) => Ever::Never,
    }
}

/// The GPUs that the selectors permit.
fn consider(rooms: &[GpuRoom], on: &[GpuSelector]) -> Result<Vec<GpuRoom>, Unplaceable> {
    if rooms.is_empty() {
        return Err(Unplaceable::NoGpus);
    }
    if on.is_empty() {
        return Ok(rooms.to_vec());
    }
    let named = select(rooms, on)?;
    named.iter().try_for_each(has_no_obstacle)?;
    Ok(named)
}

/// The selected GPUs, in index order.
pub(crate) fn select(rooms: &[GpuRoom], names: &[GpuSelector]) -> Result<Vec<GpuRoom>, Unplaceable> {
    let mut named: Vec<GpuRoom> = names.iter().map(|gpu| find(rooms, *gpu)).collect::<Result<_, _>>()?;
    named.sort_by_key(|room| room.index);
    match named.windows(2).find(|pair| pair[0].index == pair[1].index) {
        Some(pair) => Err(Unplaceable::Twice { index: pair[0].index }),
        None => Ok(named),
    }
}

fn find(rooms: &[GpuRoom], selector: GpuSelector) -> Result<GpuRoom, Unplaceable> {
    let named = |room: &&GpuRoom| selector.names(room.index, room.uuid);
    let unknown = || Unplaceable::UnknownGpu {
        selector,
        known: rooms.iter().map(|room| (room.index, room.uuid)).collect(),
    };
    rooms.iter().find(named).cloned().ok_or_else(unknown)
}

fn has_no_obstacle(room: &GpuRoom) -> Result<(), Unplaceable> {
    match &room.obstacle {
        Some(reason) => Err(Unplaceable::NotSliceable { index: room.index, reason: reason.clone() }),
        None => Ok(()),
    }
}

/// The GPU without its slices.
fn emptied(room: &GpuRoom) -> GpuRoom {
    GpuRoom {
        free: room.capacity,
        free_compute: Permille::WHOLE,
        kept: Permille::ZERO,
        occupied: false,
        ..room.clone()
    }
}

fn fit(rooms: &[GpuRoom], demand: Demand) -> Option<Vec<PlacedPart>> {
    match demand {
        Demand::Part { memory, compute } => fit_part(rooms, memory, compute).map(|place| alloc::vec![place]),
        Demand::Whole(count) => fit_whole(rooms, usize::try_from(count.get()).ok()?),
    }
}

fn fit_part(rooms: &[GpuRoom], memory: MemoryDemand, compute: ComputeDemand) -> Option<PlacedPart> {
    let open = rooms.iter().filter(|room| room.is_open());
    let candidates = open.map(|room| {
        let memory = memory.on(room.capacity);
        let compute = compute.on(memory, room.capacity);
        PlacementCandidate { room, place: PlacedPart { gpu: room.uuid, memory, compute } }
    });
    let fitting = candidates.filter(|PlacementCandidate { room, place }| {
        place.memory > Bytes::ZERO && place.memory <= room.free && place.compute <= room.free_compute
    });
    fitting.min_by(better).map(|candidate| candidate.place)
}

/// A part of each GPU, with equal compute on all: the maximum of their demands.
fn fit_each(rooms: &[GpuRoom], memory: MemoryDemand, compute: ComputeDemand) -> Option<Vec<PlacedPart>> {
    let part = |room: &GpuRoom| fit_part(core::slice::from_ref(room), memory, compute);
    let places: Vec<PlacedPart> = rooms.iter().map(part).collect::<Option<_>>()?;
    let compute = places.iter().map(|place| place.compute).max()?;
    let fits = rooms.iter().all(|room| compute <= room.free_compute);
    fits.then(|| places.into_iter().map(|place| PlacedPart { compute, ..place }).collect())
}

/// Whole GPUs of the smallest island with enough untouched ones.
///
/// If none has enough, of as few islands as possible.
fn fit_whole(rooms: &[GpuRoom], count: usize) -> Option<Vec<PlacedPart>> {
    let mut islands: BTreeMap<u32, Vec<&GpuRoom>> = BTreeMap::new();
    for room in rooms.iter().filter(|room| room.is_open() && room.is_untouched()) {
        islands.entry(room.island).or_default().push(room);
    }
    let mut islands: Vec<Vec<&GpuRoom>> = islands.into_values().collect();
    islands.sort_by_key(Vec::len); // stable: the lower island first among equals
    let mut chosen: Vec<&GpuRoom> = match islands.iter().find(|island| island.len() >= count) {
        Some(island) => island.iter().copied().take(count).collect(),
        None => islands.iter().rev().flatten().copied().take(count).collect(),
    };
    chosen.sort_by_key(|room| room.index);
    let whole =
        |room: &GpuRoom| PlacedPart { gpu: room.uuid, memory: room.capacity, compute: Permille::WHOLE };
    (chosen.len() == count).then(|| chosen.into_iter().map(whole).collect())
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
