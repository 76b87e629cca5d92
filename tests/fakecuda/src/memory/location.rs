//! Locations of memory: allocation types and location types, each from the CUDA version on that has it.
//!
//! Sources: the driver API's pages of `cuMemCreate`, `cuMemPoolCreate` and `cuMemGetDefaultMemPool` as of CUDA 12.2,
//! 13.0 and 13.4. A combination that they do not name is an invalid value.

use crate::driver::Table;
use crate::personality;
use crate::status::{Outcome, Status};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, and `_MANAGED` of CUDA 13.0.
const PINNED: i32 = 1;
const MANAGED: i32 = 2;
/// `CUmemLocationType`, as numbers.
const NONE: i32 = 0;
pub(crate) const DEVICE: i32 = 1;
const HOST: i32 = 2;
const HOST_NUMA: i32 = 3;
const HOST_NUMA_CURRENT: i32 = 4;
const DEVICE_LOCALITY_DOMAIN: i32 = 6;
/// Locality domains that each device is taken to have.
const DOMAINS: u8 = 2;

/// CUDA versions that brought something.
const HOST_MEMORY: i32 = 12_020;
const MANAGED_POOLS: i32 = 13_000;
const LOCALITY_DOMAINS: i32 = 13_040;

/// Allocation type, location type and number within it, as a caller has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// `CUmemAllocationType`.
    pub(crate) allocation: i32,
    /// `CUmemLocationType`.
    pub(crate) kind: i32,
    /// Number of the device or NUMA node.
    pub(crate) number: i32,
}

/// Memory that has to hold the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// Memory of this device.
    Device(usize),
    /// Memory of the host.
    Host,
    /// Managed memory, counted in full on this device, or on that of each allocation's stream.
    Managed(Option<usize>),
}

impl Location {
    /// Plain memory on a device.
    pub(crate) const fn on(device: i32) -> Self {
        Self { allocation: PINNED, kind: DEVICE, number: device }
    }

    /// The same without a number that the driver ignores.
    pub(crate) const fn normal(self) -> Self {
        match self.kind {
            NONE | HOST => Self { number: 0, ..self },
            _ => self,
        }
    }

    /// Site of a pool of this location.
    pub(crate) fn of_pool(self, table: &Table) -> Outcome<Site> {
        let has = |since| personality::own().has(since);
        match (self.allocation, self.kind) {
            (PINNED, HOST) if has(MANAGED_POOLS) => Ok(Site::Host),
            (PINNED, HOST_NUMA) if has(HOST_MEMORY) => Ok(Site::Host),
            (MANAGED, DEVICE) if has(MANAGED_POOLS) => self.device(table).map(Some).map(Site::Managed),
            (MANAGED, NONE | HOST | HOST_NUMA) if has(MANAGED_POOLS) => Ok(Site::Managed(None)),
            (PINNED, DEVICE | DEVICE_LOCALITY_DOMAIN) => self.on_device(table),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Site of memory of `cuMemCreate` at this location.
    pub(crate) fn of_physical(self, table: &Table) -> Outcome<Site> {
        match (self.allocation, self.kind) {
            (PINNED, HOST | HOST_NUMA) if personality::own().has(HOST_MEMORY) => Ok(Site::Host),
            (PINNED, DEVICE | DEVICE_LOCALITY_DOMAIN) => self.on_device(table),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Fails if access to memory cannot be described by it.
    pub(crate) fn check_access(self, table: &Table) -> Outcome {
        match self.kind {
            DEVICE => self.device(table).map(|_| ()),
            HOST | HOST_NUMA | HOST_NUMA_CURRENT if personality::own().has(HOST_MEMORY) => Ok(()),
            _ => Err(Status::InvalidValue),
        }
    }

    fn on_device(self, table: &Table) -> Outcome<Site> {
        if self.kind == DEVICE {
            return self.device(table).map(Site::Device);
        }
        // Two bytes: the device, and the domain within it.
        let [device, domain, ..] = self.number.to_le_bytes();
        if !personality::own().has(LOCALITY_DOMAINS) || domain >= DOMAINS {
            return Err(Status::InvalidValue);
        }
        table.device(i32::from(device)).map(|_| Site::Device(usize::from(device)))
    }

    fn device(self, table: &Table) -> Outcome<usize> {
        table.device(self.number).map(|_| self.number as usize)
    }
}
