//! Common parts of both regions: header, errors of a malformed one, indices of processes and devices.

use core::fmt;
use core::sync::atomic::Ordering::Acquire;

use crate::word::AtomicU64;
use crate::{ABI, MAX_DEVICES, MAX_SLOTS};

/// Indices of the header words at the start of both regions.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const ABI: usize = 1;
    pub(crate) const WORDS: usize = 2;
    pub(crate) const GENERATION: usize = 3;
}

/// Reason for which a region is not usable, with the offending figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRegion {
    /// Shorter than its layout; its length in words.
    TooShort(usize),
    /// Another kind of region, or none; its first word.
    Magic(u64),
    /// Laid out by another version of this crate; its ABI.
    Abi(u64),
    /// The length in its header differs from the layout's; in words.
    Length(u64),
    /// More devices than [`MAX_DEVICES`]; their number.
    Devices(u64),
}

impl fmt::Display for BadRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort(words) => write!(f, "the region has only {words} words"),
            Self::Magic(magic) => write!(f, "the region begins with {magic:#x}, which is not ours"),
            Self::Abi(abi) => write!(f, "the region has ABI {abi}, this build speaks {ABI}"),
            Self::Length(words) => write!(f, "the region says it has {words} words"),
            Self::Devices(count) => write!(f, "the region says it has {count} devices"),
        }
    }
}

impl core::error::Error for BadRegion {}

/// Checks that a mapping has `length` words, and a header of this kind, this ABI and that length.
pub(crate) fn check_header(words: &[AtomicU64], magic: u64, length: usize) -> Result<(), BadRegion> {
    if words.len() < length {
        return Err(BadRegion::TooShort(words.len()));
    }
    let field = |at: usize| words[at].load(Acquire);
    match (field(header::MAGIC), field(header::ABI), field(header::WORDS)) {
        (found, _, _) if found != magic => Err(BadRegion::Magic(found)),
        (_, abi, _) if abi != ABI => Err(BadRegion::Abi(abi)),
        (_, _, words) if words != length as u64 => Err(BadRegion::Length(words)),
        _ => Ok(()),
    }
}

/// Index of a process's slot in both regions of its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of that index; `None` from [`MAX_SLOTS`] on.
    pub fn new(index: usize) -> Option<Self> {
        (index < MAX_SLOTS).then_some(Self(index as u16))
    }

    /// Index from 0 to [`MAX_SLOTS`] - 1.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a device within its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceSlot(u8);

impl DeviceSlot {
    /// The device of that index; `None` from [`MAX_DEVICES`] on.
    pub fn new(index: usize) -> Option<Self> {
        (index < MAX_DEVICES).then_some(Self(index as u8))
    }

    /// Index from 0 to [`MAX_DEVICES`] - 1.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
