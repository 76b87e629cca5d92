//! Size of a request for device memory, in the driver's granularity.

use tranche_shm::credit::Units;

/// Bytes in a block, the granularity in which the driver takes device memory.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// A block in units of credit.
pub const BLOCK: Units = Units::within(BLOCK_BYTES);

/// Largest number of blocks that credit can express.
const MOST_BLOCKS: u64 = (Units::MAX.get() / BLOCK.get()) as u64;

/// Largest granularity of pitches on known devices, in bytes. The driver's choice is charged afterwards.
const PITCH_BYTES: u64 = 512;

/// Device memory that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Shares blocks with other small allocations.
    Packed {
        /// Size in bytes, less than a block.
        bytes: u64,
    },
    /// Takes whole blocks of its own.
    Whole {
        /// Size of these blocks as credit, in units.
        units: Units,
    },
}

impl Extent {
    /// Extent of a plain allocation of `bytes`; `None` beyond 16 TiB, the range of a credit word.
    pub const fn plain(bytes: u64) -> Option<Self> {
        if bytes < BLOCK_BYTES { Some(Self::Packed { bytes }) } else { Self::blocks(bytes) }
    }

    /// Extent of memory that never shares a block.
    #[inline(always)]
    pub const fn blocks(bytes: u64) -> Option<Self> {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        match blocks <= MOST_BLOCKS {
            true => Some(Self::Whole { units: Units::new(blocks as u32 * BLOCK.get()) }),
            false => None,
        }
    }

    /// Credit needed before the driver is called; zero for a request of no bytes, which the driver refuses.
    pub const fn worst(self) -> Units {
        match self {
            Self::Packed { bytes: 0 } => Units::ZERO,
            Self::Packed { .. } => BLOCK,
            Self::Whole { units } => units,
        }
    }
}

/// A two-dimensional allocation whose rows the driver pads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    /// Width of a row in bytes.
    pub width: u64,
    /// Number of rows, in the program's request.
    pub height: u64,
}

impl Pitched {
    /// Upper bound of its size in bytes, before the pitch is known; `None` on overflow.
    pub const fn bytes(self) -> Option<u64> {
        match self.width.checked_next_multiple_of(PITCH_BYTES) {
            Some(pitch) => pitch.checked_mul(self.height),
            None => None,
        }
    }
}

/// Shape of an array or, with several levels, of a mipmapped array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayShape {
    /// Elements in a row.
    pub width: u64,
    /// Rows; 0 for a one-dimensional array.
    pub height: u64,
    /// Slices or layers; 0 for a flat array.
    pub depth: u64,
    /// `CUarray_format` as a number.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*` flags.
    pub flags: u32,
}

impl ArrayShape {
    const LAYERED: u32 = 0x01;
    const CUBEMAP: u32 = 0x04;
    const SPARSE: u32 = 0x40;
    const DEFERRED: u32 = 0x80;

    /// Size of `levels` levels in bytes, each half as large as the one before; `None` on overflow.
    ///
    /// Zero for sparse and deferred arrays: their memory is mapped into them.
    pub fn bytes(self, levels: u32) -> Option<u64> {
        if self.flags & (Self::SPARSE | Self::DEFERRED) != 0 {
            return Some(0);
        }
        (0..levels.clamp(1, 64)).try_fold(0u64, |sum, level| sum.checked_add(self.level(level)?))
    }

    fn level(self, level: u32) -> Option<u64> {
        let halved = |length: u64| length.checked_shr(level).unwrap_or(0).max(1);
        let layers = self.flags & (Self::LAYERED | Self::CUBEMAP) != 0;
        let depth = if layers { self.depth.max(1) } else { halved(self.depth) };
        let element = element_bytes(self.format, self.channels)?;
        halved(self.width).checked_mul(halved(self.height))?.checked_mul(depth)?.checked_mul(element)
    }
}

/// Bytes in an element.
///
/// For formats that pack, compress or name their channels, and for unknown ones, at least the widest: four channels
/// of two bytes in one element, whatever number of channels is stated.
fn element_bytes(format: u32, channels: u32) -> Option<u64> {
    let channels = u64::from(channels.max(1));
    match format {
        0x01 | 0x08 => Some(channels),
        0x02 | 0x09 | 0x10 => channels.checked_mul(2),
        0x03 | 0x0a | 0x20 => channels.checked_mul(4),
        _ => channels.checked_mul(4).map(|bytes| bytes.max(8)),
    }
}

/// Addresses of the blocks that an allocation touches.
pub(crate) fn touched(pointer: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = pointer / BLOCK_BYTES;
    let end = match bytes {
        0 => first,
        _ => (pointer.saturating_add(bytes - 1)) / BLOCK_BYTES + 1,
    };
    first..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_overflow_are_nothing_rather_than_small() {
        assert_eq!(Extent::plain(u64::MAX), None);
        assert_eq!(Extent::plain(1 << 44), None);
        assert_eq!(Pitched { width: u64::MAX, height: 2 }.bytes(), None);
        assert_eq!(Pitched { width: 1 << 40, height: 1 << 40 }.bytes(), None);
        let huge = ArrayShape { width: u64::MAX, height: 3, ..ArrayShape::default() };
        assert_eq!(huge.bytes(1), None);
    }

    #[test]
    fn large_requests_take_blocks_and_empty_ones_nothing() {
        assert_eq!(Extent::plain(0).map(Extent::worst), Some(Units::ZERO));
        assert_eq!(Extent::plain(1).map(Extent::worst), Some(BLOCK));
        assert_eq!(Extent::plain(BLOCK_BYTES).map(Extent::worst), Some(BLOCK));
        assert_eq!(Extent::plain(BLOCK_BYTES + 1).map(Extent::worst), Some(Units::new(2 * BLOCK.get())));
    }

    #[test]
    fn mipmaps_add_up_and_layers_do_not_shrink() {
        let flat = ArrayShape { width: 8, height: 8, format: 0x01, channels: 1, ..ArrayShape::default() };
        assert_eq!(flat.bytes(4), Some(64 + 16 + 4 + 1));
        let layers = ArrayShape { depth: 10, flags: ArrayShape::LAYERED, ..flat };
        assert_eq!(layers.bytes(2), Some(640 + 160));
        assert_eq!(ArrayShape { flags: ArrayShape::SPARSE, ..flat }.bytes(1), Some(0));
    }

    #[test]
    fn formats_without_a_plain_channel_count_as_the_widest() {
        let one =
            |format, channels| ArrayShape { width: 1, format, channels, ..ArrayShape::default() }.bytes(1);
        assert_eq!([0x01, 0x09, 0x20].map(|format| one(format, 2)), [Some(2), Some(4), Some(8)]);
        assert_eq!((one(0xc5, 1), one(0xc5, 4), one(0x7777, 1)), (Some(8), Some(16), Some(8)));
    }
}
