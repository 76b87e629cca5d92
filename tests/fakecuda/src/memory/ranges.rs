//! Ranges of memory: every one that the driver has in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::memory::backing::Backing;
use crate::status::{Outcome, Status};
use crate::wall::Host;

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
        let Some(range) = self.around(address) else {
            return Ok(Place { backing: None, at: address, on: None, is_managed: false });
        };
        self.within(range, address, bytes)
    }

    /// Place of `bytes` of device memory; anything else is an invalid value.
    pub(crate) fn device_place(&self, address: u64, bytes: u64) -> Outcome<Place> {
        let range = self.around(address).ok_or(Status::InvalidValue)?;
        self.within(range, address, bytes)
    }

    fn within(&self, range: &Range, address: u64, bytes: u64) -> Outcome<Place> {
        let into = address - range.base;
        if into.checked_add(bytes).is_none_or(|end| end > range.size) {
            return Err(Status::InvalidValue);
        }
        let on = (!range.is_host()).then_some(range.device);
        let is_managed = range.kind == Kind::Managed;
        Ok(Place { backing: Some(range.backing.clone()), at: range.offset + into, on, is_managed })
    }
}

/// Place of bytes.
#[derive(Clone)]
pub(crate) struct Place {
    /// Holder of the bytes; `None` for plain host memory.
    backing: Option<Arc<Backing>>,
    /// Offset in `backing`, or the host address.
    at: u64,
    /// The device, if they are on one.
    pub(crate) on: Option<usize>,
    is_managed: bool,
}

impl Place {
    /// A part of a backing.
    pub(crate) fn new(backing: Arc<Backing>, at: u64, on: usize) -> Self {
        Self { backing: Some(backing), at, on: Some(on), is_managed: false }
    }

    /// Tests if the host reaches it as any memory of its own.
    pub(crate) const fn is_the_hosts_too(&self) -> bool {
        self.on.is_none() || self.is_managed
    }

    /// The place this many bytes further on.
    pub(crate) fn after(self, bytes: u64) -> Self {
        Self { at: self.at + bytes, ..self }
    }

    /// Refuses address 0 as host memory.
    pub(crate) fn check(&self) -> Outcome {
        if self.backing.is_none() && self.at == 0 { Err(Status::InvalidValue) } else { Ok(()) }
    }

    /// The host address of `bytes` that begin `into` it.
    pub(crate) fn bytes(&self, into: u64, bytes: u64) -> Outcome<Host> {
        match &self.backing {
            Some(backing) => backing.host(self.at + into, bytes),
            None if self.at == 0 => Err(Status::InvalidValue),
            None => Ok(Host::at(self.at + into)),
        }
    }

    /// Tests if it is device memory that has not been written yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.on.is_some() && self.backing.as_ref().is_some_and(|backing| backing.is_untouched())
    }

    /// Fills `bytes` that begin `into` it.
    pub(crate) fn fill(&self, into: u64, bytes: u64, pattern: &[u8]) -> Outcome {
        match &self.backing {
            Some(backing) => backing.fill(self.at + into, bytes, pattern),
            None => Err(Status::InvalidValue),
        }
    }
}
