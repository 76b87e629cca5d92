//! Fat binaries: several images of the same code.
//!
//! The driver uses the one that fits its device.
//! A member that begins as a Zstandard frame (RFC 8878), as those of `nvcc` 12.8 and newer do, is decompressed. How older
//! compilers compress members is not public: such a member is taken to have every kernel that is looked up in it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::io::Read;

use crate::status::{Outcome, Status};
use crate::words::{word16, word32, word64};

/// Kinds of members of a fat binary: source text for the driver's compiler, and binaries.
const PTX: u64 = 1;
const BINARY: u64 = 2;
/// First bytes of a Zstandard frame.
const FRAME: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Most bytes of a member, decompressed.
const MOST: u64 = 1 << 30;
/// Shortest header that names the architecture.
const WITH_ARCHITECTURE: usize = 32;

/// One image of the code.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    kind: u64,
    /// Ten times the compute capability; 0 if the header does not name it.
    architecture: u64,
    bytes: &'a [u8],
}

/// Members of a fat binary, those that fit a device before the others.
///
/// `device` is ten times its compute capability.
/// Binaries fit devices of their generation that are not older, text is compiled for any that is not.
pub(crate) fn members(file: &[u8], device: u32) -> Outcome<Vec<Member<'_>>> {
    let (mut at, mut found) = (word16(file, 6)? as usize, Vec::new());
    while at + 16 <= file.len() {
        let (header, size) = (word32(file, at + 4)? as usize, word64(file, at + 8)?);
        let size = usize::try_from(size).map_err(|_| Status::InvalidImage)?;
        let start = at.checked_add(header).ok_or(Status::InvalidImage)?;
        let end = start.checked_add(size).ok_or(Status::InvalidImage)?;
        let bytes = file.get(start..end).ok_or(Status::InvalidImage)?;
        let architecture = if header >= WITH_ARCHITECTURE { word32(file, at + 28)? } else { 0 };
        found.push(Member { kind: word16(file, at)?, architecture, bytes });
        at = end.max(at + 16);
    }
    // The order of those that are alike stays.
    found.sort_by_key(|member| Reverse(member.fitness(u64::from(device))));
    Ok(found)
}

impl<'a> Member<'a> {
    /// Rank among the members: 0 if it does not fit, the more the better.
    fn fitness(&self, device: u64) -> u64 {
        let is_older = self.architecture != 0 && self.architecture <= device;
        match self.kind {
            BINARY if is_older && self.architecture / 10 == device / 10 => (1 << 32) + self.architecture,
            PTX if is_older => self.architecture,
            _ => 0,
        }
    }

    /// Bytes of the member, decompressed where it is a frame.
    pub(crate) fn code(&self) -> Outcome<Cow<'a, [u8]>> {
        if !self.bytes.starts_with(FRAME) {
            return Ok(Cow::Borrowed(self.bytes));
        }
        let decoder =
            ruzstd::decoding::StreamingDecoder::new(self.bytes).map_err(|_| Status::InvalidImage)?;
        let mut bytes = Vec::new();
        decoder.take(MOST).read_to_end(&mut bytes).map_err(|_| Status::InvalidImage)?;
        Ok(Cow::Owned(bytes))
    }

    /// Tests if it can be code in a form that is not public: text, ELF files and frames begin otherwise.
    pub(crate) fn is_sealed(&self) -> bool {
        let is_binary = self.bytes.iter().take(64).any(|byte| !byte.is_ascii());
        let is_open = self.bytes.starts_with(b"\x7fELF") || self.bytes.starts_with(FRAME);
        [PTX, BINARY].contains(&self.kind) && self.bytes.len() >= 64 && is_binary && !is_open
    }

    /// Bytes of the member as it is.
    pub(crate) const fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::members;

    fn member(kind: u16, architecture: u32, bytes: &[u8]) -> Vec<u8> {
        let mut member = [kind.to_le_bytes(), [1, 1]].concat();
        member.extend(64_u32.to_le_bytes());
        member.extend((bytes.len() as u64).to_le_bytes());
        member.extend([0; 12]);
        member.extend(architecture.to_le_bytes());
        member.resize(64, 0);
        member.extend(bytes);
        member
    }

    fn binary(members: &[Vec<u8>]) -> Vec<u8> {
        let body = members.concat();
        let mut file = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0].to_vec();
        file.extend((body.len() as u64).to_le_bytes());
        file.extend(body);
        file
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn first(file: &[u8], device: u32) -> Vec<u8> {
        members(file, device).unwrap()[0].code().unwrap().into_owned()
    }

    #[test]
    fn the_newest_member_that_fits_comes_first() {
        let file = binary(&[
            member(2, 75, b"turing"),
            member(2, 80, b"ampere"),
            member(2, 86, b"later"),
            member(1, 60, b"text"),
        ]);
        let names = [75, 80, 86, 89].map(|device| first(&file, device));
        assert_eq!(names, [&b"turing"[..], b"ampere", b"later", b"later"]);
        assert_eq!(first(&file, 90), b"text", "text is compiled for newer devices");
        assert_eq!(first(&file, 50), b"turing", "else the first one");
    }

    #[test]
    fn a_zstandard_frame_is_decompressed() {
        let text = b"the same words, the same words, the same words";
        assert_eq!(first(&binary(&[member(2, 90, &packed(text))]), 90), text);
        let broken = binary(&[member(2, 90, &packed(text)[..12])]);
        assert!(members(&broken, 90).unwrap()[0].code().is_err());
    }

    #[test]
    fn other_compression_is_sealed() {
        let is_sealed =
            |kind, bytes: &[u8]| members(&binary(&[member(kind, 90, bytes)]), 90).unwrap()[0].is_sealed();
        assert!(is_sealed(2, &[0xf0; 128]) && is_sealed(1, &[0xf0; 128]));
        assert!(!is_sealed(9, &[0xf0; 128]), "no code at all");
        assert!(!is_sealed(2, &[b'a'; 128]) && !is_sealed(2, &[&b"\x7fELF"[..], &[0xf0; 128]].concat()));
        assert!(members(&binary(&[member(2, 90, b"x")])[..70], 90).is_err(), "cut off");
    }
}
