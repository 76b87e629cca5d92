//! Memory and compute of a job's members apart from a share, and the size that counts for them.
//!
//! A member counts as a user's slice does, by the larger of its memory and compute. Which GPU it gets is not known when
//! it is submitted, so its memory counts as on the GPU where it is the largest part. No member is bound to a GPU on which
//! it would be a larger one.

use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::amount::MilliGpus;
use super::size::Size;
use crate::request::{Fraction, Share};
use crate::units::{Bytes, Permille};

/// Memory and compute of each member on one GPU, where its share alone does not give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPart {
    /// Part that gives what is not given by itself; without it compute is in proportion to memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<Fraction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute: Option<Permille>,
}

/// Reason for which amounts are no part of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMemberPart {
    /// Neither a share nor memory.
    #[error(
        "the job does not say how much of a GPU a member takes: give a share with -g, or its memory with --memory"
    )]
    Missing,
    /// Whole GPUs together with memory or compute.
    #[error(
        "whole GPUs are given entirely, with all their memory and compute: leave --memory and --compute out, or ask for \
         a fraction"
    )]
    WholeGpus,
    /// Less memory than 1 MiB.
    #[error("a member of no GPU memory was submitted; the smallest is 1 MiB")]
    NoMemory,
    /// No compute at all.
    #[error("a member without any compute was submitted: give it at least 0.1 % with --compute")]
    NoCompute,
}

impl MemberPart {
    /// Size of a member with these amounts, and the part if they differ from a share. With memory the size is the least
    /// one, which the quota scheduler raises to the one that counts.
    ///
    /// # Errors
    /// If the amounts are nothing or contradict each other.
    pub fn of(
        share: Option<Size>,
        memory: Option<Bytes>,
        compute: Option<Permille>,
    ) -> Result<(Size, Option<Self>), BadMemberPart> {
        let share = match (share, memory, compute) {
            (Some(size), None, None) => return Ok((size, None)),
            (None, None, _) => return Err(BadMemberPart::Missing),
            (_, Some(memory), _) if memory.whole_mib() == 0 => return Err(BadMemberPart::NoMemory),
            (_, _, Some(Permille::ZERO)) => return Err(BadMemberPart::NoCompute),
            (Some(Size::Whole(_)), ..) => return Err(BadMemberPart::WholeGpus),
            (Some(Size::Part(fraction)), ..) => Some(fraction),
            (None, ..) => None,
        };
        let part = Self { share, memory, compute };
        Ok((size_of(part.with(Permille::ZERO)), Some(part)))
    }

    /// Share that gives what is not given by itself.
    pub const fn share(&self) -> Option<Fraction> {
        self.share
    }

    /// Memory of each member, if it is given.
    pub const fn memory(&self) -> Option<Bytes> {
        self.memory
    }

    /// Compute of each member, if it is given.
    pub const fn compute(&self) -> Option<Permille> {
        self.compute
    }

    /// Share of a member's slice, with the memory and compute that replace those of the share.
    pub(super) const fn amounts(&self) -> (Share, Option<Bytes>, Option<Permille>) {
        match (self.share, self.memory) {
            (Some(share), memory) => (Share::Fraction(share), memory, self.compute),
            (None, Some(memory)) => (Share::Memory(memory), None, self.compute),
            (None, None) => (Share::Memory(Bytes::ZERO), None, self.compute),
        }
    }

    /// Memory that a GPU has to have within the size that counts.
    pub(super) fn memory_within(&self, size: Size) -> Option<MemoryWithin> {
        self.memory.map(|memory| MemoryWithin { memory, part: size.of_each() })
    }

    /// The larger of memory and compute, where the memory is this part of a GPU.
    fn with(&self, memory: Permille) -> Permille {
        let share = self.share.map_or(Permille::ZERO, Fraction::permille);
        let memory = if self.memory.is_some() { memory } else { share };
        memory.max(self.compute.unwrap_or(share))
    }

    /// Size of a member on a GPU of this capacity; `None` if its memory is larger.
    pub(super) fn size_on(&self, capacity: Bytes) -> Option<Size> {
        let memory = self.memory.unwrap_or(Bytes::ZERO);
        (memory <= capacity).then(|| size_of(self.with(Permille::of(memory, capacity))))
    }
}

/// A part of a GPU as a size; all of it is one whole GPU.
fn size_of(part: Permille) -> Size {
    Fraction::try_from(part.get().max(1)).map_or(Size::Whole(NonZeroU32::MIN), Size::Part)
}

/// Memory within a part of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemoryWithin {
    pub(super) memory: Bytes,
    pub(super) part: MilliGpus,
}

impl MemoryWithin {
    /// Tests if this part of the GPU has the memory.
    pub(super) fn is_on(&self, capacity: Bytes) -> bool {
        self.memory <= capacity && Permille::of(self.memory, capacity).get() <= self.part.get()
    }
}
