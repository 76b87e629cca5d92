//! Arrays, and their shapes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::status::{Outcome, Status};

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// An array, or all levels of a mipmapped one.
#[derive(Clone)]
pub(crate) struct Array {
    pub(crate) context: u64,
    pub(crate) shape: Shape,
    /// The memory behind it and where in it this array begins.
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) role: Role,
    /// Memory mapped into it, by region, if it has none of its own.
    pub(crate) tiles: BTreeMap<Region, u64>,
}

/// Place in an array: the fields of `CUarrayMapInfo` between the array and the operation.
pub(crate) type Region = [u64; 5];

#[derive(Clone, PartialEq)]
pub(crate) enum Role {
    /// An array of its own.
    Whole,
    /// All levels, largest first.
    Mipmapped(Arc<Vec<u64>>),
    /// One level; goes with the mipmapped array.
    Level,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

impl Shape {
    /// Bytes of one element.
    fn element(&self) -> Outcome<u64> {
        let channel = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return Err(Status::InvalidValue),
        };
        if matches!(self.channels, 1 | 2 | 4) {
            Ok(channel * u64::from(self.channels))
        } else {
            Err(Status::InvalidValue)
        }
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.flags & WITHOUT_MEMORY == 0
    }

    pub(crate) fn rows(&self) -> u64 {
        self.height.max(1) as u64
    }

    pub(crate) fn pitch(&self) -> Outcome<u64> {
        self.element()?.checked_mul(self.width as u64).ok_or(Status::OutOfMemory)
    }

    pub(crate) fn bytes(&self) -> Outcome<u64> {
        let slices = self.depth.max(1) as u64;
        let rows = self.rows().checked_mul(slices).ok_or(Status::OutOfMemory)?;
        let bytes = self.pitch()?.checked_mul(rows).ok_or(Status::OutOfMemory)?;
        if bytes == 0 { Err(Status::InvalidValue) } else { Ok(bytes) }
    }

    /// The next smaller level.
    pub(crate) fn halved(&self) -> Self {
        let half = |side: usize| if side > 1 { side / 2 } else { side };
        Self { width: half(self.width), height: half(self.height), depth: half(self.depth), ..*self }
    }
}

impl Array {
    pub(crate) fn new(context: u64, shape: Shape, memory: u64, offset: u64, role: Role) -> Self {
        Self { context, shape, memory, offset, role, tiles: BTreeMap::new() }
    }

    /// All its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shape.bytes().unwrap_or(0)
    }
}
