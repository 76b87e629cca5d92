//! Why something cannot be placed, and whether waiting can help.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Demand, Room};
use crate::cordon::Cordon;
use crate::id::{GpuSelector, GpuUuid};

/// Why something cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplaceable {
    /// The node has no GPU.
    NoGpus,
    /// No GPU answers to that selector.
    UnknownGpu {
        /// What was asked for.
        selector: GpuSelector,
        /// What there is.
        known: Vec<(u32, GpuUuid)>,
    },
    /// A GPU is named twice.
    Twice {
        /// Its index.
        index: u32,
    },
    /// The GPU asked for takes no slices.
    NotSliceable {
        /// Its index.
        index: u32,
        /// Why.
        reason: String,
    },
    /// The GPU asked for takes no further slices, because an operator said so.
    Cordoned {
        /// Its index.
        index: u32,
        /// Who said so, when and why.
        cordon: Cordon,
    },
    /// It does not fit.
    NoRoom {
        /// What was to be placed.
        demand: Demand,
        /// The GPUs that were considered, as they were.
        rooms: Vec<Room>,
        /// Whether it would fit if no other slice were there.
        ever: Ever,
    },
}

/// Whether waiting can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ever {
    /// It fits once others are gone.
    Later,
    /// It fits once others are gone and a GPU is uncordoned.
    Uncordoned,
    /// It does not fit even on the empty node.
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

/// The most GPUs that a message names one by one.
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

fn describe(f: &mut fmt::Formatter<'_>, room: &Room) -> fmt::Result {
    match (&room.obstacle, &room.cordon) {
        (Some(reason), _) => write!(f, " GPU {} takes no slices ({reason})", room.index),
        (None, Some(cordon)) => write!(f, " GPU {} is {cordon}", room.index),
        (None, None) => write!(
            f,
            " GPU {} has {} of {} and {} of compute free",
            room.index, room.free, room.capacity, room.free_compute
        ),
    }
}
