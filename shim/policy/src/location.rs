//! Possible locations of memory, by the properties of its request.
//!
//! Law: an unknown location counts as the worst. An allocation type or a location type that no row below names is
//! taken for memory that any device of the slice may hold.

/// Enumerators of `CUmemAllocationType` that decide about the charge.
const PINNED: u32 = 1;
/// Enumerators of `CUmemLocationType` that decide about the charge.
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NUMA: u32 = 3;
const HOST_NUMA_CURRENT: u32 = 4;
const LOCALITY_DOMAIN: u32 = 6;

/// Possible location of memory with given properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In memory of the host, which the slice does not limit.
    Host,
    /// On the driver's device of this number.
    Device(i32),
    /// On any device of the slice: managed memory, and properties without a row here.
    AnyDevice,
}

impl Location {
    /// Location of memory by allocation type, location type and location number.
    ///
    /// As in `CUmemPoolProps` and `CUmemAllocationProp`.
    pub const fn of(allocation_type: u32, location_type: u32, number: i32) -> Self {
        match (allocation_type, location_type) {
            (PINNED, DEVICE) => Self::Device(number),
            // A locality domain has the device's number in its first byte and its own in the second.
            (PINNED, LOCALITY_DOMAIN) => Self::Device(number & 0xff),
            (PINNED, HOST | HOST_NUMA | HOST_NUMA_CURRENT) => Self::Host,
            // Managed memory moves to the device that uses it, whatever location it prefers.
            _ => Self::AnyDevice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_lies_where_its_location_is() {
        assert_eq!(Location::of(1, 1, 3), Location::Device(3));
        assert_eq!(Location::of(1, 6, 0x0203), Location::Device(3));
        for host in 2..=4 {
            assert_eq!(Location::of(1, host, 0), Location::Host);
        }
    }

    #[test]
    fn managed_memory_is_charged_wherever_it_prefers_to_lie() {
        for location in 0..=6 {
            assert_eq!(Location::of(2, location, 0), Location::AnyDevice);
        }
    }

    #[test]
    fn unknown_types_may_lie_on_any_device() {
        assert_eq!(Location::of(1, 0, 0), Location::AnyDevice);
        assert_eq!(Location::of(1, 5, -2), Location::AnyDevice);
        assert_eq!(Location::of(1, 7, 0), Location::AnyDevice);
        assert_eq!(Location::of(0, 2, 0), Location::AnyDevice);
        assert_eq!(Location::of(3, 2, 0), Location::AnyDevice);
        assert_eq!(Location::of(u32::MAX, u32::MAX, -1), Location::AnyDevice);
    }
}
