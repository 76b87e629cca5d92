//! Locations of memory: allocation types and location types.

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, and `_MANAGED` of CUDA 13.0.
pub(crate) const PINNED: i32 = 1;
pub(crate) const MANAGED: i32 = 2;
/// `CUmemLocationType`, as numbers.
pub(crate) const NONE: i32 = 0;
pub(crate) const DEVICE: i32 = 1;
pub(crate) const HOST: i32 = 2;
pub(crate) const HOST_NUMA: i32 = 3;
pub(crate) const HOST_NUMA_CURRENT: i32 = 4;
pub(crate) const DEVICE_LOCALITY_DOMAIN: i32 = 6;

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
}
