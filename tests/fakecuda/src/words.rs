//! Little-endian words in images of device code; one that lies beyond the end is no image.

use crate::status::{Outcome, Status};

/// The eight bytes at an offset.
pub(crate) fn word64(bytes: &[u8], at: usize) -> Outcome<u64> {
    let eight = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
    eight.map(u64::from_le_bytes).ok_or(Status::InvalidImage)
}

/// The four bytes at an offset.
pub(crate) fn word32(bytes: &[u8], at: usize) -> Outcome<u64> {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map(u32::from_le_bytes).map(u64::from).ok_or(Status::InvalidImage)
}

/// The two bytes at an offset.
pub(crate) fn word16(bytes: &[u8], at: usize) -> Outcome<u64> {
    let two = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    two.map(u16::from_le_bytes).map(u64::from).ok_or(Status::InvalidImage)
}
