//! Images of device code, read as far as a driver that runs none needs.
//!
//! Read are names of kernels, sizes of their parameters, names and sizes of global variables.
//!
//! PTX text, ELF files (cubins) and [fat binaries](crate::fat) are understood.

use crate::fat::members;
use crate::status::{Outcome, Status};
use crate::wall::Host;
use crate::words::{word16, word32, word64};

/// First bytes of a fat binary and of the small structure that points to one.
const FAT: u32 = 0xba55_ed50;
const FAT_WRAPPER: u32 = 0x4662_43b1;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
const ELF_HEADER: usize = 64;

/// Content of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Image {
    /// Kernels in the image.
    pub(crate) entries: Vec<Entry>,
    /// Variables outside of functions.
    pub(crate) globals: Vec<Global>,
    /// Bytes of the image.
    ///
    /// At most these go to the device; the exact measure is known to the real driver alone.
    pub(crate) bytes: u64,
    /// True if its kernels are unknown, as it cannot be read: then it has every one.
    pub(crate) is_sealed: bool,
}

impl Image {
    /// The kernel of a name.
    pub(crate) fn entry(&self, name: &str) -> Option<Entry> {
        let sealed = || self.is_sealed.then(|| Entry { name: name.into(), ..Entry::default() });
        self.entries.iter().find(|entry| entry.name == name).cloned().or_else(sealed)
    }
}

/// A global variable of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Global {
    /// Name as in the image.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// True if it lies in managed memory.
    pub(crate) is_managed: bool,
}

/// A kernel of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entry {
    /// Name as in the image.
    pub(crate) name: String,
    /// Bytes of each parameter; empty for a binary, which is not read that far.
    pub(crate) parameters: Vec<u64>,
    /// Most threads in a block, if the image states it.
    pub(crate) max_threads: Option<u32>,
}

/// Reads the image at a caller's address; its length is stated in it.
///
/// `device` is ten times the compute capability for which a fat binary's member is chosen.
pub(crate) fn read(at: Host, device: u32) -> Outcome<Image> {
    match at.read::<u32>()? {
        ELF => elf(&bytes(at, elf_length(&at.bytes(ELF_HEADER)?)?)?),
        FAT => fat(&bytes(at, word64(&at.bytes(16)?, 8)?.saturating_add(16))?, device),
        FAT_WRAPPER => read(Host::at(word64(&at.bytes(16)?, 8)?), device),
        _ => ptx(&at.text()?),
    }
}

fn bytes(at: Host, length: u64) -> Outcome<Vec<u8>> {
    // A length beyond any real image is a damaged header.
    if length > 1 << 32 { Err(Status::InvalidImage) } else { at.bytes(length as usize) }
}

/// Reads an image from bytes, as of a file or for the linker, under the same condition.
pub(crate) fn copy_of(bytes: &[u8], device: u32) -> Outcome<Image> {
    let first = bytes.get(..4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    match first.ok_or(Status::InvalidImage)? {
        ELF => elf(bytes),
        FAT => fat(bytes, device),
        _ => ptx(bytes.split(|byte| *byte == 0).next().unwrap_or_default()),
    }
}

/// An ELF file ends with its section or its program headers.
fn elf_length(header: &[u8]) -> Outcome<u64> {
    let sections = word64(header, 0x28)? + word16(header, 0x3a)? * word16(header, 0x3c)?;
    let programs = word64(header, 0x20)? + word16(header, 0x36)? * word16(header, 0x38)?;
    Ok(sections.max(programs))
}

/// A section of an ELF file: its name, type, link and place.
struct Section {
    name: String,
    kind: u64,
    link: usize,
    start: usize,
    length: usize,
}

fn elf(file: &[u8]) -> Outcome<Image> {
    let (table, size, count) =
        (word64(file, 0x28)? as usize, word16(file, 0x3a)? as usize, word16(file, 0x3c)? as usize);
    let names = table + size * word16(file, 0x3e)? as usize;
    let names = word64(file, names + 0x18)? as usize;
    let sections: Vec<Section> = (0..count)
        .map(|index| {
            let at = table + size * index;
            Ok(Section {
                name: text_at(file, names + word32(file, at)? as usize)?,
                kind: word32(file, at + 4)?,
                link: word32(file, at + 0x28)? as usize,
                start: word64(file, at + 0x18)? as usize,
                length: word64(file, at + 0x20)? as usize,
            })
        })
        .collect::<Outcome<_>>()?;
    let entries = sections
        .iter()
        .filter_map(|section| section.name.strip_prefix(".text."))
        .map(|name| Entry { name: name.into(), ..Entry::default() })
        .collect();
    Ok(Image { entries, globals: variables(file, &sections)?, bytes: file.len() as u64, is_sealed: false })
}

/// Object symbols in sections of global or constant data.
fn variables(file: &[u8], sections: &[Section]) -> Outcome<Vec<Global>> {
    /// `STO_CUDA_MANAGED`, from the sources of cuda-gdb.
    const MANAGED: u8 = 4;
    const SYMBOLS: u64 = 2;
    const OBJECT: u8 = 1;
    let mut found = Vec::new();
    for section in sections.iter().filter(|section| section.kind == SYMBOLS) {
        let names = sections.get(section.link).ok_or(Status::InvalidImage)?.start;
        for at in (section.start..section.start + section.length).step_by(24) {
            let info = *file.get(at + 4).ok_or(Status::InvalidImage)?;
            let home = sections.get(word16(file, at + 6)? as usize);
            let data = home.is_some_and(|home| {
                home.name.starts_with(".nv.global") || home.name.starts_with(".nv.constant3")
            });
            if info & 15 == OBJECT && data {
                found.push(Global {
                    name: text_at(file, names + word32(file, at)? as usize)?,
                    bytes: word64(file, at + 16)?,
                    is_managed: file.get(at + 5).is_some_and(|other| other & MANAGED != 0),
                });
            }
        }
    }
    Ok(found)
}

fn text_at(file: &[u8], at: usize) -> Outcome<String> {
    let rest = file.get(at..).ok_or(Status::InvalidImage)?;
    let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// The first member that can be read, the one that fits the device before the others.
fn fat(file: &[u8], device: u32) -> Outcome<Image> {
    let mut refusal = Status::InvalidImage;
    for member in members(file, device)? {
        let read = member.code().and_then(|code| copy_of(&code, device));
        match read {
            Err(_) if member.is_sealed() => {
                return Ok(Image { is_sealed: true, bytes: member.size(), ..Image::default() });
            }
            Err(status) => refusal = status,
            image => return image,
        }
    }
    Err(refusal)
}

/// Reads an image from PTX text.
fn ptx(text: &[u8]) -> Outcome<Image> {
    let text = without_comments(&String::from_utf8_lossy(text));
    // What does not begin like PTX is no image at all.
    if !text.trim_start().starts_with(".version") {
        return Err(Status::InvalidImage);
    }
    if !text.contains(".target") {
        return Err(Status::InvalidPtx);
    }
    let entries = text.split(".entry").skip(1).map(entry).collect::<Outcome<_>>()?;
    let globals = text.split([';', '{', '}']).filter_map(variable).collect::<Outcome<_>>()?;
    Ok(Image { entries, globals, bytes: text.len() as u64, is_sealed: false })
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        kept.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn entry(rest: &str) -> Outcome<Entry> {
    let end = rest.find(['(', '{', '.']).ok_or(Status::InvalidPtx)?;
    let name = rest[..end].trim().to_owned();
    if name.is_empty() {
        return Err(Status::InvalidPtx);
    }
    let head = rest.split('{').next().unwrap_or_default();
    let list = head.split_once('(').and_then(|(_, list)| list.split_once(')')).map_or("", |(list, _)| list);
    let parameters =
        list.split(',').filter(|one| !one.trim().is_empty()).map(size_of_declared).collect::<Outcome<_>>()?;
    let max_threads = head.split_once(".maxntid").map(|(_, sides)| {
        let sides = sides.split('.').next().unwrap_or_default();
        sides.split(',').filter_map(|side| side.trim().parse::<u32>().ok()).product()
    });
    Ok(Entry { name, parameters, max_threads })
}

/// `.global .align 4 .b8 name[16] = {...}` and its like.
fn variable(statement: &str) -> Option<Outcome<Global>> {
    let declaration = statement.trim();
    let start = [".global", ".const"].iter().filter_map(|space| declaration.find(space)).min()?;
    // The same words stand in instructions (`ld.global.u32`) and in parameters (`.param .u64 .ptr .global p`).
    let before = declaration[..start].lines().last().unwrap_or_default();
    let is_linkage = |word: &str| [".visible", ".extern", ".weak", ".common"].contains(&word);
    if !(declaration[..start].ends_with('\n') || before.split_whitespace().all(is_linkage)) {
        return None;
    }
    let declaration = declaration[start..].split('=').next().unwrap_or_default();
    let name = declaration.split('[').next()?.split_whitespace().last()?.to_owned();
    let is_managed = declaration.contains(".attribute(.managed)");
    let global = |bytes| Global { name: name.clone(), bytes, is_managed };
    (!name.starts_with('.')).then(|| size_of_declared(declaration).map(global))
}

/// Bytes of a declaration: of its type, times its length.
fn size_of_declared(declaration: &str) -> Outcome<u64> {
    let one: u64 = declaration
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('.'))
        .map(|word| {
            let lanes = if word.starts_with('v') { word.get(1..).and_then(|n| n.parse().ok()) } else { None };
            let bits: Option<u64> = word.get(1..).and_then(|bits| bits.parse().ok());
            match (word.as_bytes().first(), lanes, bits) {
                (Some(b'v'), Some(lanes), _) => lanes,
                (Some(b'b' | b'u' | b's' | b'f'), _, Some(bits)) => bits / 8,
                _ => 1,
            }
        })
        .product();
    let mut all = one;
    for side in declaration.split('[').skip(1) {
        let side = side.split(']').next().unwrap_or_default().trim();
        // An array without a length is as long as its values are many, which are not read here.
        let length = if side.is_empty() { 0 } else { literal(side).ok_or(Status::InvalidPtx)? };
        all = all.checked_mul(length).ok_or(Status::InvalidPtx)?;
    }
    Ok(all)
}

/// An integer constant of PTX, perhaps with a `U` behind it.
///
/// It is hexadecimal, octal, binary or decimal, as the PTX documents have it.
fn literal(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let radix = |prefixes: [&str; 2], radix| {
        let digits = prefixes.into_iter().find_map(|prefix| text.strip_prefix(prefix))?;
        Some(u64::from_str_radix(digits, radix))
    };
    let octal = || text.strip_prefix('0').filter(|digits| !digits.is_empty());
    let value = radix(["0x", "0X"], 16)
        .or_else(|| radix(["0b", "0B"], 2))
        .or_else(|| octal().map(|digits| u64::from_str_radix(digits, 8)))
        .unwrap_or_else(|| text.parse());
    value.ok()
}

#[cfg(test)]
mod tests {
    use super::{Global, copy_of, elf_length, ptx};
    use crate::status::Status;

    const SOURCE: &[u8] = b"//
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b8 table[4096];
.visible .global .align 8 .u64 counter = 5;
/* .entry hidden() */
.visible .entry spin_ns(
    .param .u64 spin_ns_param_0
)
{ ld.global.u64 %rd1, [%rd2]; ret; }
.entry two(.param .u32 a, .param .align 8 .b8 b[24], .param .u64 .ptr .global c) .maxntid 64, 2, 1 { ret; }
";

    #[test]
    fn lengths_of_variables_are_read_in_every_notation() {
        for (length, bytes) in
            [("0x40", 64), ("0100", 64), ("0b1000000", 64), ("64U", 64), ("4][0x10", 64), ("", 0)]
        {
            let text = format!("//\n.version 7.0\n.target sm_70\n.global .b8 room[{length}];\n");
            let room = Global { name: "room".into(), bytes, is_managed: false };
            assert_eq!(ptx(text.as_bytes()).unwrap().globals, [room], "{length}");
        }
        let bad = b"//\n.version 7.0\n.target sm_70\n.global .b8 room[many];\n";
        assert_eq!(ptx(bad), Err(Status::InvalidPtx));
    }

    #[test]
    fn kernels_and_variables_of_ptx_are_found() {
        let image = ptx(SOURCE).unwrap();
        let names: Vec<&str> = image.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["spin_ns", "two"]);
        assert_eq!(
            (image.entries[0].parameters.as_slice(), image.entries[1].parameters.as_slice()),
            (&[8][..], &[4, 24, 8][..])
        );
        assert_eq!(image.entries[1].max_threads, Some(128));
        let global = |name: &str, bytes, is_managed| Global { name: name.into(), bytes, is_managed };
        assert_eq!(image.globals, [global("table", 4096, false), global("counter", 8, false)]);
        let managed = b".version 7.0\n.target sm_70\n.global .attribute(.managed) .align 4 .u32 seen;\n";
        assert_eq!(ptx(managed).unwrap().globals, [global("seen", 4, true)]);
    }

    #[test]
    fn a_sealed_image_has_every_kernel() {
        let member = [&[2, 0, 1, 1, 16, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0][..], &[0xf0; 128]].concat();
        let file = [&[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 144, 0, 0, 0, 0, 0, 0, 0][..], &member].concat();
        let image = copy_of(&file, 90).unwrap();
        assert!(image.is_sealed && image.bytes == 128 && image.entry("any").is_some());
        assert!(ptx(SOURCE).unwrap().entry("any").is_none());
    }

    #[test]
    fn text_that_is_no_ptx_is_refused() {
        assert_eq!(ptx(b"hello").unwrap_err(), Status::InvalidImage);
        assert_eq!(ptx(b".version 6.0").unwrap_err(), Status::InvalidPtx);
        assert_eq!(copy_of(b"\x7fELF", 0).unwrap_err(), Status::InvalidImage);
        assert!(elf_length(&[0; 10]).is_err());
    }
}
