//! How much device memory an image of device code takes, as far as the image says.
//!
//! PTX, ELF and fat binaries are read just far enough to find their global variables; where a member of a fat
//! binary is compressed, its variables are not seen. An image comes from the program and may be anything: what
//! makes no sense counts as it is, and the driver will refuse it.

use tranche_shm::credit::Units;

use crate::extent::{BLOCK, BLOCK_BYTES};

/// `\x7fELF`
pub const ELF: u32 = 0x464c_457f;
/// First word of a fat binary.
pub const FAT: u32 = 0xba55_ed50;
/// First word of the structure that points to one.
pub const FAT_WRAPPER: u32 = 0x4662_43b1;
/// Bytes of the two headers that say how long an image is.
pub const ELF_HEADER: usize = 64;
/// Likewise.
pub const FAT_HEADER: usize = 16;

/// Variables below this share blocks.
const SMALL: u64 = BLOCK_BYTES / 2;
/// Where a small variable begins.
const ALIGN: u64 = 512;

/// What an image takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSize {
    /// Bytes of code.
    pub code: u64,
    /// Bytes of variables that share blocks, each rounded up to where the next can begin.
    pub small: u64,
    /// Bytes of variables that have blocks to themselves, rounded up to blocks.
    pub large: u64,
}

impl ImageSize {
    /// Of a whole image.
    pub fn of(image: &[u8]) -> Self {
        match word32(image, 0) {
            Some(ELF) => elf(image).unwrap_or(Self { code: image.len() as u64, ..Self::default() }),
            Some(FAT) => fat(image),
            _ => ptx(image),
        }
    }

    /// The same with the code in one block: for a driver that loads code when it is first used.
    pub const fn lazily(self) -> Self {
        Self { code: 0, ..self }
    }

    /// As credit: at least a block. Variables that share blocks leave none but the last less than half full.
    /// Nothing on overflow.
    pub fn units(self) -> Option<Units> {
        let code = self.code.max(1).checked_next_multiple_of(BLOCK_BYTES)?;
        let small = match self.small {
            0 => 0,
            small => small.checked_mul(2)?.checked_next_multiple_of(BLOCK_BYTES)?,
        };
        let units = Units::covering(code.checked_add(small)?.checked_add(self.large)?)?;
        Some(units.max(BLOCK))
    }

    fn add_variable(&mut self, bytes: u64) {
        let (sum, align) =
            if bytes < SMALL { (&mut self.small, ALIGN) } else { (&mut self.large, BLOCK_BYTES) };
        *sum = sum.saturating_add(bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX));
    }

    fn max(self, other: Self) -> Self {
        Self {
            code: self.code.max(other.code),
            small: self.small.max(other.small),
            large: self.large.max(other.large),
        }
    }
}

/// Length of an ELF file by its header: it ends with its section or its program headers.
pub fn elf_length(header: &[u8]) -> Option<u64> {
    let table = |start, size, count| {
        let bytes = u64::from(word16(header, size)?) * u64::from(word16(header, count)?);
        word64(header, start)?.checked_add(bytes)
    };
    Some(table(0x28, 0x3a, 0x3c)?.max(table(0x20, 0x36, 0x38)?))
}

/// Length of a fat binary by its header.
pub fn fat_length(header: &[u8]) -> Option<u64> {
    u64::from(word16(header, 6)?).checked_add(word64(header, 8)?)
}

fn elf(file: &[u8]) -> Option<ImageSize> {
    const ALLOCATED: u64 = 2;
    const NO_BITS: u32 = 8;
    const SYMBOLS: u32 = 2;
    let section = |index: u64| {
        let at = word64(file, 0x28)?.checked_add(index * u64::from(word16(file, 0x3a)?))?;
        file.get(usize::try_from(at).ok()?..)
    };
    let plain = ImageSize { code: file.len() as u64, ..ImageSize::default() };
    // Both tell of the same variables: a section of them all together, a table of each by name.
    let (mut whole, mut named) = (plain, plain);
    for index in 0..u64::from(word16(file, 0x3c)?) {
        let header = section(index)?;
        let (kind, flags, bytes) = (word32(header, 4)?, word64(header, 8)?, word64(header, 0x20)?);
        if kind == NO_BITS && flags & ALLOCATED != 0 {
            whole.add_variable(bytes);
        }
        if kind == SYMBOLS {
            let start = usize::try_from(word64(header, 0x18)?).ok()?;
            let table = file.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)?;
            objects(table).for_each(|bytes| named.add_variable(bytes));
        }
    }
    Some(whole.max(named))
}

/// Sizes of the data objects in a symbol table.
fn objects(table: &[u8]) -> impl Iterator<Item = u64> {
    const OBJECT: u8 = 1;
    table.chunks_exact(24).filter_map(|symbol| {
        (symbol[4] & 15 == OBJECT && word16(symbol, 6)? != 0).then(|| word64(symbol, 16))?
    })
}

/// The driver loads one of the members: the largest is what it may take.
fn fat(file: &[u8]) -> ImageSize {
    let mut largest = ImageSize::default();
    let mut rest = word16(file, 6).and_then(|start| file.get(usize::from(start)..)).unwrap_or_default();
    while let Some((member, header, after)) = next_member(rest) {
        let plain = match word32(header, 0x28) {
            Some(flags) if flags & COMPRESSED != 0 => None,
            _ => Some(ImageSize::of(member)),
        };
        let compressed = ImageSize { code: word64(header, 0x38).unwrap_or(0), ..ImageSize::default() };
        largest = largest.max(plain.unwrap_or(compressed));
        rest = after;
    }
    largest
}

/// A member's header says so.
const COMPRESSED: u32 = 0xa000;

fn next_member(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let header = usize::try_from(word32(rest, 4)?).ok().filter(|header| *header >= FAT_HEADER)?;
    let bytes = usize::try_from(word64(rest, 8)?).ok()?;
    let end = header.checked_add(bytes)?;
    Some((rest.get(header..end)?, rest.get(..header)?, rest.get(end..)?))
}

/// PTX is longer than the code that is made of it. Every declaration in the state spaces of variables counts,
/// wherever it stands.
fn ptx(text: &[u8]) -> ImageSize {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut size = ImageSize { code: end as u64, ..ImageSize::default() };
    for statement in text[..end].split(|byte| matches!(byte, b';' | b'{' | b'}')) {
        if let Some(bytes) = variable(statement) {
            size.add_variable(bytes);
        }
    }
    size
}

/// Bytes of `.global .align 4 .v2 .f32 name[3][16]` and its like; an initialiser does not matter.
fn variable(statement: &[u8]) -> Option<u64> {
    let words = || statement.split(|byte| byte.is_ascii_whitespace() || *byte == b'[');
    let start = words().position(|word| matches!(word, b".global" | b".const"))?;
    let declared = statement.split(|byte| *byte == b'=').next()?;
    let element = words().skip(start).filter_map(type_bytes).fold(1u64, u64::saturating_mul);
    let lengths = declared.split(|byte| *byte == b'[').skip(1).map(|rest| {
        let digits = rest.split(|byte| *byte == b']').next().unwrap_or_default();
        digits
            .iter()
            .filter(|byte| byte.is_ascii_digit())
            .fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    });
    Some(lengths.fold(element, u64::saturating_mul))
}

/// `.b8` is one byte, `.v4` four times what follows.
fn type_bytes(word: &[u8]) -> Option<u64> {
    let (letter, digits) = word.strip_prefix(b".")?.split_first()?;
    let number = || core::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    match letter {
        b'v' => number(),
        b'b' | b'u' | b's' | b'f' => number().map(|bits| bits.div_ceil(8)),
        _ => None,
    }
}

fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_ptx_are_found_with_all_their_dimensions() {
        let text = b".version 7.0\n.target sm_70\n.global .align 4 .b8 table[4096];\n\
            .visible .global .align 8 .u64 counter = 5;\n.global .v2 .f32 grid[1024][1024];\n\
            .visible .entry f(.param .u64 p) { ld.global.u32 %r1, [%rd2]; ret; }";
        let size = ImageSize::of(text);
        assert_eq!((size.small, size.large), (4096 + 512, 8 << 20));
        assert_eq!(size.units(), Units::covering((2 + 2 + 8) << 20));
    }

    #[test]
    fn a_module_takes_at_least_a_block_and_absurd_ones_nothing_small() {
        assert_eq!(ImageSize::of(b"").units(), Some(BLOCK));
        let absurd = b".global .b8 x[99999999999999999999999];";
        assert_eq!(ImageSize::of(absurd).units(), None);
    }

    #[test]
    fn damaged_images_are_read_without_harm() {
        for length in 0..300 {
            for first in [ELF, FAT] {
                let mut image = std::vec![0xff; length];
                image.iter_mut().zip(first.to_le_bytes()).for_each(|(to, from)| *to = from);
                let _ = (ImageSize::of(&image).units(), elf_length(&image), fat_length(&image));
            }
        }
    }
}
