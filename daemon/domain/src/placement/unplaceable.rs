//! Reasons for which a demand cannot be placed.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use super::demand::Demand;
use super::room::GpuRoom;
use crate::cordon::Cordon;
use crate::id::{GpuSelector, GpuUuid};
use crate::units::Permille;

/// Reason for which a demand cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplaceable {
    /// The node has no GPU.
    NoGpus,
    /// No GPU matches the selector.
    UnknownGpu {
        /// Index or UUID that names no GPU.
        selector: GpuSelector,
        /// Index and UUID of each GPU of the node.
        known: Vec<(u32, GpuUuid)>,
    },
    /// A GPU is selected twice.
    Twice {
        /// Index as NVML counts GPUs.
        index: u32,
    },
    /// The selected GPU takes no slices.
    NotSliceable {
        /// Index as NVML counts GPUs.
        index: u32,
        /// Obstacle of the GPU, as a clause.
        reason: String,
    },
    /// The selected GPU is cordoned.
    Cordoned {
        /// Index as NVML counts GPUs.
        index: u32,
        /// The cordon in force.
        cordon: Cordon,
    },
    /// No GPU has enough left.
    NoRoom {
        /// Demand that did not fit.
        demand: Demand,
        /// The permitted GPUs at that time.
        rooms: Vec<GpuRoom>,
        /// Fit once others have ended.
        ever: Ever,
    },
}

/// Fit of a demand once others have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ever {
    /// The demand fits once other slices are gone.
    Later,
    /// The demand fits once other slices are gone and a GPU is uncordoned.
    Uncordoned,
    /// The demand does not fit on an empty node.
    Never,
}

impl fmt::Display for Unplaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpus => f.write_str("this node has no GPU to place it on; `tranche doctor` says why"),
            Self::UnknownGpu { selector, known } => {
                write!(f, "there is no GPU {selector} on this node; there is")?;
                list(f, known, |f, (index, uuid)| write!(f, " {index} ({uuid})"))
            }
            Self::Twice { index } => {
                write!(f, "GPU {index} is named twice: a slice has one part of each GPU")
            }
            Self::NotSliceable { index, reason } => write!(f, "GPU {index} takes no slices: {reason}"),
            Self::Cordoned { index, cordon } => {
                write!(
                    f,
                    "GPU {index} takes no further slices: it is {cordon}; `tranche gpu uncordon {index}` ends that"
                )
            }
            Self::NoRoom { demand, rooms, ever } => {
                write!(f, "no room for {demand}:")?;
                free(f, demand, rooms)?;
                f.write_str(match ever {
                    Ever::Later => {
                        "; it fits once others have ended (wait with `--wait`, or delete or shrink a slice)"
                    }
                    Ever::Uncordoned => {
                        "; it fits once a GPU takes slices again (`tranche gpu uncordon`, or wait with `--wait`)"
                    }
                    Ever::Never => "; it could not fit even if no other slice were there, so ask for less",
                })
            }
        }
    }
}

impl core::error::Error for Unplaceable {}

/// Maximum number of GPUs listed in a message.
const NAMED_GPUS: usize = 16;

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    each: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().take(NAMED_GPUS).enumerate() {
        f.write_str(if at == 0 { "" } else { "," })?;
        each(f, item)?;
    }
    match items.len().saturating_sub(NAMED_GPUS) {
        0 => Ok(()),
        more => write!(f, ", and {more} more"),
    }
}

/// Most open GPUs of which each is described; of more only the best.
const DESCRIBED_GPUS: usize = 2;

/// Room for the demand: on each of a few GPUs, else on the best; of whole GPUs their number.
/// Reasons of GPUs that take no slices follow, each once.
fn free(f: &mut fmt::Formatter<'_>, demand: &Demand, rooms: &[GpuRoom]) -> fmt::Result {
    let mut open: Vec<&GpuRoom> = rooms.iter().filter(|room| room.is_open()).collect();
    open.sort_by_key(|room| (Reverse((room.free, room.free_compute)), room.index));
    let is_many = open.len() > DESCRIBED_GPUS;
    let described = if is_many { 1 } else { open.len() };
    let mut between = "";
    if is_many && matches!(demand, Demand::Whole(_)) {
        let whole = open.iter().filter(|room| room.is_untouched()).count();
        write!(f, " {whole} of {} GPUs are wholly free", open.len())?;
        let kept = open.iter().filter(|room| room.kept > Permille::ZERO).count();
        if kept > 0 {
            write!(f, " (and {kept} kept for a job, wholly or in part)")?;
        }
        between = ",";
    } else {
        for room in &open[..described] {
            f.write_str(between)?;
            describe(f, room)?;
            between = ",";
        }
        if is_many {
            write!(f, ", the other {} have no more", open.len() - described)?;
        }
    }
    for (closure, indices) in closed(rooms) {
        let is_one = indices.len() == 1;
        write!(f, "{between} {}", if is_one { "GPU" } else { "GPUs" })?;
        list(f, &indices, |f, index| write!(f, " {index}"))?;
        match closure {
            Closure::Obstacle(why) => {
                write!(f, " {} no slices ({why})", if is_one { "takes" } else { "take" })?;
            }
            Closure::Cordon(cordon) => write!(f, " {} {cordon}", if is_one { "is" } else { "are" })?,
        }
        between = ",";
    }
    Ok(())
}

/// Reason for which a GPU takes no slices.
#[derive(PartialEq, Eq)]
enum Closure<'a> {
    Obstacle(&'a str),
    Cordon(&'a Cordon),
}

/// GPUs that take no slices, by the reason, in the order of their first.
fn closed(rooms: &[GpuRoom]) -> Vec<(Closure<'_>, Vec<u32>)> {
    let mut all: Vec<(Closure<'_>, Vec<u32>)> = Vec::new();
    for room in rooms {
        let closure = match (&room.obstacle, &room.cordon) {
            (Some(reason), _) => Closure::Obstacle(reason),
            (None, Some(cordon)) => Closure::Cordon(cordon),
            (None, None) => continue,
        };
        match all.iter_mut().find(|(known, _)| *known == closure) {
            Some((_, indices)) => indices.push(room.index),
            None => all.push((closure, vec![room.index])),
        }
    }
    all
}

fn describe(f: &mut fmt::Formatter<'_>, room: &GpuRoom) -> fmt::Result {
    write!(
        f,
        " GPU {} has {} of {} and {} of compute free",
        room.index, room.free, room.capacity, room.free_compute
    )?;
    if room.kept == Permille::ZERO { Ok(()) } else { write!(f, " (and {} kept for a job)", room.kept) }
}
