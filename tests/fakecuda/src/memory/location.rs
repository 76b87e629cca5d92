//! Checks of locations, each from the CUDA version on that has it.
//!
//! Sources: the driver API's pages of `cuMemCreate`, `cuMemPoolCreate` and `cuMemGetDefaultMemPool` as of CUDA 12.2,
//! 13.0 and 13.4. A combination that they do not name is an invalid value.

use crate::driver::Table;
use crate::personality;
use crate::state::location::{
    DEVICE, DEVICE_LOCALITY_DOMAIN, HOST, HOST_NUMA, HOST_NUMA_CURRENT, Location, MANAGED, NONE, PINNED, Site,
};
use crate::status::{Outcome, Status};

/// Locality domains that each device is taken to have.
const DOMAINS: u8 = 2;

/// CUDA versions that brought something.
const HOST_MEMORY: i32 = 12_020;
const MANAGED_POOLS: i32 = 13_000;
const LOCALITY_DOMAINS: i32 = 13_040;

impl Location {
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
