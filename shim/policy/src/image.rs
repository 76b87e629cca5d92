//! Device memory that an image of device code takes, as far as the image shows it.
//!
//! PTX, ELF and fat binaries are read just far enough to find their global variables; variables of a compressed
//! member of a fat binary are not found. An image comes from the program and may be anything: a malformed one has no
//! bound, and does not fit.

use tranche_shm::credit::Units;

use crate::extent::{BLOCK, BLOCK_BYTES};
use crate::ptx;

/// First word of an ELF file, `\x7fELF`.
pub const ELF: u32 = 0x464c_457f;
/// First word of a fat binary.
pub const FAT: u32 = 0xba55_ed50;
/// First word of the structure that points to a fat binary.
pub const FAT_WRAPPER: u32 = 0x4662_43b1;
/// Bytes of an ELF header, which holds the length of the file.
pub const ELF_HEADER: usize = 64;
/// Bytes of a fat binary's header, which holds its length.
pub const FAT_HEADER: usize = 16;

/// Variables below this size in bytes share blocks.
const SMALL: u64 = BLOCK_BYTES / 2;
/// Alignment of small variables in bytes.
const ALIGN: u64 = 512;

/// Size of an image on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSize {
    /// Bytes of code.
    pub code: u64,
    /// Bytes of variables that share blocks, each rounded up to the start of the next.
    pub small: u64,
    /// Bytes of variables that have blocks to themselves, rounded up to blocks.
    pub large: u64,
    /// Bytes of code that are loaded when a function of it is first needed.
    pub deferred: u64,
    /// True if a variable of it is managed: the driver migrates it between host and device.
    pub is_managed: bool,
}

impl ImageSize {
    /// Size of a complete image of any kind.
    pub fn of(image: &[u8]) -> Self {
        match word32(image, 0) {
            Some(ELF) => elf(image).unwrap_or(Self::UNBOUNDED),
            Some(FAT) => fat(image),
            _ => ptx(image),
        }
    }

    /// The size for a driver that loads functions lazily: one block of code until a function is needed.
    pub const fn lazily(self) -> Self {
        Self { code: 0, deferred: self.code, ..self }
    }

    /// Units added to [`ImageSize::units`] when a function is needed; `None` on overflow.
    pub fn later(self) -> Option<Units> {
        let all = Self { code: self.code.max(self.deferred), deferred: 0, ..self };
        Some(all.units()?.saturating_sub(self.units()?))
    }

    /// Units of the image, at least a block; `None` on overflow.
    ///
    /// Variables that share blocks leave none but the last less than half full.
    pub fn units(self) -> Option<Units> {
        let code = self.code.max(1).checked_next_multiple_of(BLOCK_BYTES)?;
        let small = match self.small {
            0 => 0,
            small => small.checked_mul(2)?.checked_next_multiple_of(BLOCK_BYTES)?,
        };
        let units = Units::covering(code.checked_add(small)?.checked_add(self.large)?)?;
        Some(units.max(BLOCK))
    }

    /// A size that exceeds every device.
    const UNBOUNDED: Self = Self { code: 0, small: 0, large: u64::MAX, deferred: 0, is_managed: false };

    fn add_variable(&mut self, bytes: u64) {
        self.add_variables(bytes, 1, 1);
    }

    /// Adds `count` variables, each of which begins at a multiple of `own_align`.
    fn add_variables(&mut self, bytes: u64, own_align: u64, count: u64) {
        // Up to as many bytes may be skipped before it.
        let bytes = if own_align > ALIGN { bytes.saturating_add(own_align) } else { bytes };
        let (sum, align) =
            if bytes < SMALL { (&mut self.small, ALIGN) } else { (&mut self.large, BLOCK_BYTES) };
        let each = bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        *sum = sum.saturating_add(each.saturating_mul(count));
    }

    fn max(self, other: Self) -> Self {
        Self {
            code: self.code.max(other.code),
            small: self.small.max(other.small),
            large: self.large.max(other.large),
            deferred: self.deferred.max(other.deferred),
            is_managed: self.is_managed || other.is_managed,
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
    // Both list the same variables: a section all together, a symbol table each by name.
    let (mut whole, mut named) = (plain, plain);
    // Where there are more sections than the field can hold, the first section holds their number.
    let count = match (word16(file, 0x3c)?, word64(file, 0x28)?) {
        (0, 1..) => word64(section(0)?, 0x20)?,
        (count, _) => count.into(),
    };
    for index in 0..count {
        let header = section(index)?;
        let (kind, flags, bytes) = (word32(header, 4)?, word64(header, 8)?, word64(header, 0x20)?);
        if kind == NO_BITS && flags & ALLOCATED != 0 {
            whole.add_variable(bytes);
        }
        if kind == SYMBOLS {
            let start = usize::try_from(word64(header, 0x18)?).ok()?;
            let table = file.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)?;
            for object in objects(table) {
                named.add_variable(object.bytes);
                named.is_managed |= object.is_managed;
            }
        }
    }
    Some(whole.max(named))
}

/// A data object of a symbol table.
struct DataObject {
    bytes: u64,
    is_managed: bool,
}

/// The data objects in a symbol table.
fn objects(table: &[u8]) -> impl Iterator<Item = DataObject> {
    const OBJECT: u8 = 1;
    /// `STO_CUDA_MANAGED`, from the sources of cuda-gdb.
    const MANAGED: u8 = 4;
    table.chunks_exact(24).filter_map(|symbol| {
        let is_one = symbol[4] & 15 == OBJECT && word16(symbol, 6)? != 0;
        is_one
            .then(|| Some(DataObject { bytes: word64(symbol, 16)?, is_managed: symbol[5] & MANAGED != 0 }))?
    })
}

/// The driver loads one of the members: the largest is the upper bound.
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

/// Flag in a member's header: compressed.
const COMPRESSED: u32 = 0xa000;

fn next_member(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let header = usize::try_from(word32(rest, 4)?).ok().filter(|header| *header >= FAT_HEADER)?;
    let bytes = usize::try_from(word64(rest, 8)?).ok()?;
    let end = header.checked_add(bytes)?;
    Some((rest.get(header..end)?, rest.get(..header)?, rest.get(end..)?))
}

/// PTX is longer than the code compiled from it. Unreadable PTX has no bound.
fn ptx(text: &[u8]) -> ImageSize {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut size = ImageSize { code: end as u64, ..ImageSize::default() };
    let variables = ptx::variables(text, |one| {
        size.add_variables(one.bytes, one.align, one.count);
        size.is_managed |= one.is_managed;
    });
    match variables {
        Ok(()) => size,
        Err(ptx::Unreadable) => ImageSize::UNBOUNDED,
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
    fn module_takes_a_block_and_malformed_has_no_bound() {
        assert_eq!(ImageSize::of(b"").units(), Some(BLOCK));
        let absurd = b".global .b8 x[99999999999999999999999];";
        assert_eq!(ImageSize::of(absurd).units(), None);
    }

    #[test]
    fn managed_variables_are_recognised() {
        let is_managed = |text: &str| ImageSize::of(text.as_bytes()).is_managed;
        let head = ".version 7.0\n.target sm_70\n.visible .global ";
        assert!(is_managed(&std::format!("{head} .attribute(.managed) .align 4 .u32 shared;")));
        assert!(!is_managed(&std::format!("{head} .align 4 .u32 managed;")));
        // A symbol table with one data object in section 1.
        for (other, managed) in [(0u8, false), (4, true), (0x14, true), (0x80, false)] {
            let mut file = std::vec![0u8; 64 + 64 + 24];
            file[..4].copy_from_slice(&ELF.to_le_bytes());
            file[0x28..0x30].copy_from_slice(&64u64.to_le_bytes());
            file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
            file[0x3c..0x3e].copy_from_slice(&1u16.to_le_bytes());
            file[64 + 4..64 + 8].copy_from_slice(&2u32.to_le_bytes());
            file[64 + 0x18..64 + 0x20].copy_from_slice(&128u64.to_le_bytes());
            file[64 + 0x20..64 + 0x28].copy_from_slice(&24u64.to_le_bytes());
            (file[128 + 4], file[128 + 5], file[128 + 6], file[128 + 16]) = (1, other, 1, 4);
            assert_eq!(ImageSize::of(&file).is_managed, managed, "st_other {other:#x}");
        }
    }

    #[test]
    fn lazily_loaded_code_takes_one_block_at_first() {
        let size = ImageSize { code: 5 << 20, large: 4 << 20, ..ImageSize::default() };
        assert_eq!((size.units(), size.later()), (Units::covering(10 << 20), Some(Units::ZERO)));
        let lazy = size.lazily();
        assert_eq!((lazy.units(), lazy.later()), (Units::covering(6 << 20), Units::covering(4 << 20)));
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
