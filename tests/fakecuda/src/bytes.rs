//! Copies, fills, and values in memory that are written or waited for.

use simgpu::WorkKind;

use crate::memory::span::{Place, copy_row};
use crate::status::Outcome;
use crate::wall::{Host, copy};

/// One side of a copy, from its first byte.
#[derive(Clone)]
pub(crate) struct Side {
    /// The first byte.
    pub(crate) place: Place,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Bytes from slice to slice.
    pub(crate) slice: u64,
}

/// A copy of a box of bytes.
#[derive(Clone)]
pub(crate) struct Copy {
    /// Side that is read.
    pub(crate) from: Side,
    /// Side that is written.
    pub(crate) to: Side,
    /// Bytes in a row, rows in a slice, slices.
    pub(crate) extent: [u64; 3],
}

impl Copy {
    /// A copy of bytes in a row.
    pub(crate) fn linear(from: Place, to: Place, bytes: u64) -> Self {
        let side = |place| Side { place, pitch: bytes, slice: bytes };
        Self { from: side(from), to: side(to), extent: [bytes, 1, 1] }
    }

    /// All bytes moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.extent.iter().product()
    }

    /// Tests if one side is in host memory, or the two are on different devices.
    pub(crate) fn crosses_the_bus(&self) -> bool {
        self.from.place.on.is_none() || self.to.place.on.is_none() || self.from.place.on != self.to.place.on
    }

    pub(crate) fn kind(&self) -> WorkKind {
        match self.to.place.on {
            _ if !self.crosses_the_bus() => WorkKind::Copy,
            Some(_) => WorkKind::Upload,
            None => WorkKind::Download,
        }
    }

    /// Tests if it goes to bytes of a device that lie one after the other.
    fn fills_a_row(&self) -> bool {
        let [width, height, _] = self.extent;
        self.to.place.on.is_some() && self.to.pitch == width && self.to.slice == width * height
    }

    pub(crate) fn run(&self) -> Outcome {
        let [width, height, depth] = self.extent;
        if width == 0 || height == 0 || depth == 0 {
            return Ok(());
        }
        if self.from.place.is_untouched() && self.fills_a_row() {
            return self.to.place.fill(0, self.bytes(), &[0]);
        }
        for row in 0..height * depth {
            let (y, z) = (row % height, row / height);
            let from = (&self.from.place, z * self.from.slice + y * self.from.pitch);
            let to = (&self.to.place, z * self.to.slice + y * self.to.pitch);
            copy_row(from, to, width)?;
        }
        Ok(())
    }
}

/// A pattern over rows of bytes.
#[derive(Clone)]
pub(crate) struct Fill {
    /// The first byte.
    pub(crate) place: Place,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Bytes in a row.
    pub(crate) width: u64,
    /// Number of rows of that width.
    pub(crate) height: u64,
    /// Bytes that are written repeatedly: 1, 2 or 4.
    pub(crate) pattern: Vec<u8>,
}

impl Fill {
    pub(crate) fn run(&self) -> Outcome {
        if self.pitch == self.width {
            return self.place.fill(0, self.width * self.height, &self.pattern);
        }
        (0..self.height).try_for_each(|row| self.place.fill(row * self.pitch, self.width, &self.pattern))
    }
}

/// Length of a value in memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// Four bytes.
    Word,
    /// Eight bytes.
    Double,
}

/// A wait for a value in memory.
#[derive(Clone)]
pub(crate) struct ValueWait {
    pub(crate) place: Place,
    pub(crate) width: Width,
    pub(crate) value: u64,
    pub(crate) compare: Compare,
}

/// Comparison of a value.
#[derive(Clone, Copy)]
pub(crate) enum Compare {
    /// At least the value, cyclically.
    AtLeast,
    /// Equal to the value.
    Equal,
    /// Some bit in common.
    And,
    /// Some bit in neither.
    Nor,
}

impl ValueWait {
    pub(crate) fn holds(&self) -> Outcome<bool> {
        let (bits, now) = match self.width {
            Width::Word => (32, u64::from(self.place.bytes(0, 4)?.read::<u32>()?)),
            Width::Double => (64, self.place.bytes(0, 8)?.read::<u64>()?),
        };
        let mask = u64::MAX >> (64 - bits);
        Ok(match self.compare {
            Compare::AtLeast => now.wrapping_sub(self.value) & mask < 1 << (bits - 1),
            Compare::Equal => now == self.value & mask,
            Compare::And => now & self.value != 0,
            Compare::Nor => !(now | self.value) & mask != 0,
        })
    }
}

/// A value to write to memory.
#[derive(Clone)]
pub(crate) struct ValueWrite {
    pub(crate) place: Place,
    pub(crate) width: Width,
    pub(crate) value: u64,
}

impl ValueWrite {
    pub(crate) fn run(&self) -> Outcome {
        let bytes = self.value.to_ne_bytes();
        let from = Host(bytes.as_ptr().cast_mut().cast());
        let count = if self.width == Width::Word { 4 } else { 8 };
        copy(from, self.place.bytes(0, count)?, count as usize);
        Ok(())
    }
}
