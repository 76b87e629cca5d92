//! Reasons for which a demand cannot be placed.

use alloc::string::String;
use alloc::vec::Vec;
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
                list(f, rooms, describe)?;
                f.write_str(match ever {
                    Ever::Later => {
                        "; it fits once others have ended (ask to wait, or delete or shrink a slice)"
                    }
                    Ever::Uncordoned => {
                        "; it fits once a GPU takes slices again (`tranche gpu uncordon`, or ask to wait)"
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

fn describe(f: &mut fmt::Formatter<'_>, room: &GpuRoom) -> fmt::Result {
    match (&room.obstacle, &room.cordon) {
        (Some(reason), _) => write!(f, " GPU {} takes no slices ({reason})", room.index),
        (None, Some(cordon)) => write!(f, " GPU {} is {cordon}", room.index),
        (None, None) => {
            write!(
                f,
                " GPU {} has {} of {} and {} of compute free",
                room.index, room.free, room.capacity, room.free_compute
            )?;
            if room.kept == Permille::ZERO {
                Ok(())
            } else {
                write!(f, " (and {} kept for a job)", room.kept)
            }
        }
    }
}
