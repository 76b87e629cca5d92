//! Fat binaries: several images of the same code, of which the driver uses the one that fits its device.
//!
//! A member that begins as a Zstandard frame (RFC 8878), as those of `nvcc` 12.8 and newer do, is decompressed. How older
//! compilers compress members is not public: such a member is taken to have every kernel that is looked up in it.

use std::io::Read;

use crate::image::{Image, copy_of, word16, word32, word64};
use crate::status::{Outcome, Status};

/// Kinds of members.
const PTX: u64 = 1;
const BINARY: u64 = 2;
/// First bytes of a Zstandard frame.
const FRAME: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Most bytes of a member, decompressed.
const MOST: u64 = 1 << 30;
/// Shortest header that names the architecture.
const WITH_ARCHITECTURE: usize = 32;

/// One image of the code.
struct Member<'a> {
    kind: u64,
    /// Ten times the compute capability; 0 if the header does not name it.
    architecture: u64,
    bytes: &'a [u8],
}

/// The image that fits a device of this compute capability, times ten; else the first that can be read.
pub(crate) fn fat(file: &[u8], device: u32) -> Outcome<Image> {
    let members = members(file)?;
    let binary = |member: &&Member<'_>| {
        member.kind == BINARY && member.architecture / 10 == u64::from(device) / 10
    };
    let text = |member: &&Member<'_>| member.kind == PTX;
    let fits = |member: &&Member<'_>| member.architecture <= u64::from(device);
    let newest = |kind: &dyn Fn(&&Member<'_>) -> bool| {
        members.iter().filter(kind).filter(fits).max_by_key(|member| member.architecture)
    };
    let best = newest(&binary).or_else(|| newest(&text));
    let mut refusal = Status::InvalidImage;
    for member in best.into_iter().chain(&members) {
        match read(member, device) {
            Ok(image) => return Ok(image),
            Err(status) => refusal = status,
        }
    }
    Err(refusal)
}

fn members(file: &[u8]) -> Outcome<Vec<Member<'_>>> {
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
    Ok(found)
}

fn read(member: &Member<'_>, device: u32) -> Outcome<Image> {
    if member.bytes.starts_with(FRAME) {
        return copy_of(&decompressed(member.bytes)?, device);
    }
    match copy_of(member.bytes, device) {
        Err(_) if [PTX, BINARY].contains(&member.kind) && is_packed(member.bytes) => {
            Ok(Image { is_sealed: true, bytes: member.bytes.len() as u64, ..Image::default() })
        }
        image => image,
    }
}

/// Tests if bytes can be compressed code: text and ELF files begin otherwise.
fn is_packed(bytes: &[u8]) -> bool {
    bytes.len() >= 64 && bytes.iter().take(64).any(|byte| !byte.is_ascii()) && !bytes.starts_with(b"\x7fELF")
}

fn decompressed(frame: &[u8]) -> Outcome<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(frame).map_err(|_| Status::InvalidImage)?;
    let mut bytes = Vec::new();
    decoder.take(MOST).read_to_end(&mut bytes).map_err(|_| Status::InvalidImage)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::fat;
    use crate::status::Status;

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

    fn ptx(kernel: &str) -> Vec<u8> {
        format!(".version 7.0\n.target sm_70\n.entry {kernel}() {{ ret; }}\n").into_bytes()
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn kernel(file: &[u8], device: u32) -> String {
        fat(file, device).unwrap().entries[0].name.clone()
    }

    #[test]
    fn the_newest_member_that_fits_is_used() {
        let file = binary(&[
            member(2, 75, &ptx("turing")),
            member(2, 80, &ptx("ampere")),
            member(2, 86, &ptx("later")),
            member(1, 60, &ptx("text")),
        ]);
        assert_eq!([75, 80, 86, 89].map(|device| kernel(&file, device)), ["turing", "ampere", "later", "later"]);
        assert_eq!(kernel(&file, 90), "text", "text is compiled for newer devices");
        assert_eq!(kernel(&file, 50), "turing", "else the first one");
    }

    #[test]
    fn a_zstandard_frame_is_decompressed() {
        let file = binary(&[member(2, 90, &packed(&ptx("squeezed")))]);
        assert_eq!(kernel(&file, 90), "squeezed");
        let broken = binary(&[member(2, 90, &packed(&ptx("squeezed"))[..20])]);
        assert_eq!(fat(&broken, 90).unwrap_err(), Status::InvalidImage);
    }

    #[test]
    fn a_member_of_unknown_compression_has_every_kernel() {
        let image = fat(&binary(&[member(2, 90, &[0xf0; 128])]), 90).unwrap();
        assert!(image.is_sealed && image.entries.is_empty() && image.bytes == 128);
        assert!(image.entry("any").is_some());
        assert!(fat(&binary(&[member(9, 90, &[0xf0; 128])]), 90).is_err(), "no code at all");
    }
}
