//! Ranges of memory: every one that the driver has in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::memory::backing::Backing;
use crate::memory::span::{Part, Place};
use crate::status::{Outcome, Status};

/// Kind of a range, which decides how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc` and its like.
    Device,
    /// The same, freed in a stream that has not come to it.
    Leaving,
    /// The same from the 32-bit entry points of CUDA 3.1 and before.
    Low,
    /// `cuMemAllocManaged`: counted in full from the start.
    Managed,
    /// From the pool with this handle.
    Pool(u64),
    /// A graph's memory node that has run.
    Graph,
    /// The address of a graph's memory node, not paid for.
    Unpaid,
    /// A global variable, or memory behind an array; goes with its owner.
    Owned,
    /// A mapping of this physical handle.
    Virtual(u64),
    /// Memory of another process, opened by its handle.
    Ipc(simgpu::Shared),
    /// Memory of another process's pool.
    Lent(simgpu::Shared),
    /// The same, freed in a stream that has not come to it.
    LentLeaving(simgpu::Shared),
    /// A view of this external memory.
    External(u64),
    /// `cuMemHostAlloc`, with its flags.
    Pinned(u32),
    /// `cuMemHostRegister`, with its flags.
    Registered(u32),
}

/// One range of addresses and its memory.
#[derive(Clone)]
pub(crate) struct Range {
    /// First address of the range.
    pub(crate) base: u64,
    /// Bytes, as requested.
    pub(crate) size: u64,
    /// Kind, which decides how it is freed.
    pub(crate) kind: Kind,
    /// The device it belongs to.
    pub(crate) device: usize,
    /// The context that was current.
    pub(crate) context: u64,
    /// A number of its own.
    pub(crate) id: u64,
    /// Its bytes.
    pub(crate) backing: Arc<Backing>,
    /// Offset of its begin in `backing`.
    pub(crate) offset: u64,
}

impl Range {
    /// Tests if it lies in host memory.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned(_) | Kind::Registered(_))
    }
}

/// All ranges, by first address.
#[derive(Default)]
pub(crate) struct Ranges(BTreeMap<u64, Range>);

impl Ranges {
    /// The range an address lies in.
    pub(crate) fn around(&self, address: u64) -> Option<&Range> {
        let (_, range) = self.0.range(..=address).next_back()?;
        (address - range.base < range.size).then_some(range)
    }

    /// The range that begins at an address.
    pub(crate) fn at(&self, base: u64) -> Option<&Range> {
        self.0.get(&base)
    }

    /// The range that begins at an address, to change.
    pub(crate) fn at_mut(&mut self, base: u64) -> Option<&mut Range> {
        self.0.get_mut(&base)
    }

    /// Adds a range by its first address.
    pub(crate) fn insert(&mut self, range: Range) {
        self.0.insert(range.base, range);
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, base: u64) -> Option<Range> {
        self.0.remove(&base)
    }

    /// All ranges by first address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.0.values()
    }

    /// Place of `bytes` at an address; plain host memory where no range is.
    pub(crate) fn place(&self, address: u64, bytes: u64) -> Outcome<Place> {
        self.around(address)
            .map_or_else(|| Ok(Place::of_host(address)), |range| self.within(range, address, bytes))
    }

    /// Place of `bytes` of device memory; anything else is an invalid value.
    pub(crate) fn device_place(&self, address: u64, bytes: u64) -> Outcome<Place> {
        let range = self.around(address).ok_or(Status::InvalidValue)?;
        self.within(range, address, bytes)
    }

    /// Bytes of one range, or of mappings that lie one behind the other.
    fn within(&self, range: &Range, address: u64, bytes: u64) -> Outcome<Place> {
        let into = address - range.base;
        let mut left = bytes.saturating_sub(range.size - into);
        let (mut rest, mut last) = (Vec::new(), range);
        while left > 0 {
            let is_mapping = |range: &Range| matches!(range.kind, Kind::Virtual(_));
            let next = self.at(last.base + last.size).filter(|next| is_mapping(next) && is_mapping(last));
            last = next.ok_or(Status::InvalidValue)?;
            rest.push(Part { backing: Some(last.backing.clone()), at: last.offset, length: last.size });
            left = left.saturating_sub(last.size);
        }
        let first =
            Part { backing: Some(range.backing.clone()), at: range.offset + into, length: range.size - into };
        let on = (!range.is_host()).then_some(range.device);
        Ok(Place::of_parts(first, rest, on, range.kind == Kind::Managed))
    }
}
