//! Operations of streams: their length, and their effect on memory or the program.

use std::sync::Arc;
use std::time::Duration;

use simgpu::WorkKind;

use crate::event::Event;
use crate::memory::ranges::Place;
use crate::status::Outcome;
use crate::wall::{Callee, Host, copy};

/// One entry of a stream or node of a graph.
#[derive(Clone)]
pub(crate) enum Op {
    /// A kernel: takes time, computes nothing.
    Kernel(Duration),
    /// Moves bytes.
    Copy(Copy),
    /// Writes a pattern to memory.
    Fill(Fill),
    /// Calls the program back.
    Host(Callee),
    /// Waits until a value in memory compares.
    WaitValue(ValueWait),
    /// Writes a value once what is before it is done.
    WriteValue(ValueWrite),
    /// Nothing, as a node that only joins others.
    Empty,
    /// Records the time at which this point is reached.
    Record(Arc<Event>),
    /// Waits for what an event recorded.
    WaitEvent(Arc<Event>),
    /// A graph's memory node: address and size become memory.
    Alloc(GraphMemory),
    /// The memory at an address of a graph goes.
    Free(u64),
    /// Plain memory at this address, with this number, goes.
    Leave(u64, u64),
    /// Physical memory is no longer in an array.
    Unpin(u64),
    /// Another graph's operations, in order.
    Child(Vec<Op>),
}

/// Memory that a graph allocates each time it runs.
#[derive(Clone, Copy)]
pub(crate) struct GraphMemory {
    /// Its address, fixed when the node was made.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Ordinal of the device.
    pub(crate) device: usize,
}

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

    fn kind(&self) -> WorkKind {
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

    fn run(&self) -> Outcome {
        let [width, height, depth] = self.extent;
        if width == 0 || height == 0 || depth == 0 {
            return Ok(());
        }
        if self.from.place.is_untouched() && self.fills_a_row() {
            return self.to.place.fill(0, self.bytes(), &[0]);
        }
        for row in 0..height * depth {
            let (y, z) = (row % height, row / height);
            let from = self.from.place.bytes(z * self.from.slice + y * self.from.pitch, width)?;
            let to = self.to.place.bytes(z * self.to.slice + y * self.to.pitch, width)?;
            copy(from, to, width as usize);
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
    fn run(&self) -> Outcome {
        if self.pitch == self.width {
            return self.place.fill(0, self.width * self.height, &self.pattern);
        }
        (0..self.height).try_for_each(|row| self.place.fill(row * self.pitch, self.width, &self.pattern))
    }
}

impl Op {
    /// Tests if calls without a stream return when it is done.
    ///
    /// They do not where bytes of devices alone are moved or filled
    /// (<https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html>).
    pub(crate) const fn is_waited_for(&self) -> bool {
        match self {
            Self::Copy(copy) => copy.from.place.is_the_hosts_too() || copy.to.place.is_the_hosts_too(),
            Self::Fill(fill) => fill.place.is_the_hosts_too(),
            _ => true,
        }
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
    fn holds(&self) -> Outcome<bool> {
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
    fn run(&self) -> Outcome {
        let bytes = self.value.to_ne_bytes();
        let from = Host(bytes.as_ptr().cast_mut().cast());
        let count = if self.width == Width::Word { 4 } else { 8 };
        copy(from, self.place.bytes(0, count)?, count as usize);
        Ok(())
    }
}

/// State of an operation.
pub(crate) enum Progress {
    /// The operation has acted.
    Done,
    /// Its condition does not hold yet.
    NotYet,
}

impl Op {
    /// Tests if it must wait for its turn before it acts, and hold up what follows until it has.
    pub(crate) const fn acts_in_turn(&self) -> bool {
        matches!(self, Self::Host(_) | Self::WaitValue(_))
    }

    /// Tests if any thread may carry it out in its turn, so that a wait for the stream needs no worker.
    pub(crate) const fn is_quiet(&self) -> bool {
        matches!(self, Self::WriteValue(_))
    }

    /// Kind of work for the engine.
    pub(crate) fn kind(&self) -> WorkKind {
        match self {
            Self::Kernel(_) => WorkKind::Kernel,
            Self::Copy(copy) => copy.kind(),
            Self::Fill(_) => WorkKind::Copy,
            _ => WorkKind::Mark,
        }
    }

    /// Acts on memory or the program. A bad address of the program's was found before.
    pub(crate) fn act(&self) -> Progress {
        match self {
            Self::Copy(copy) => drop(copy.run()),
            Self::Fill(fill) => drop(fill.run()),
            Self::Host(callee) => callee.call(),
            Self::WriteValue(write) => drop(write.run()),
            Self::Leave(base, id) => crate::memory::alloc::leave(*base, *id),
            Self::Unpin(memory) => crate::memory::virt::unpin_in_turn(*memory),
            Self::WaitValue(wait) if !wait.holds().unwrap_or(true) => return Progress::NotYet,
            _ => {}
        }
        Progress::Done
    }
}
