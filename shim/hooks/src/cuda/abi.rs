//! Types and result codes of the driver's interface that several files share.

use core::ffi::c_int;

use tranche_policy::Location;

/// `CUDA_SUCCESS`
pub(crate) const SUCCESS: c_int = 0;
/// `CUDA_ERROR_INVALID_VALUE`
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_INVALID_DEVICE`
pub(crate) const INVALID_DEVICE: c_int = 101;
/// `CUDA_ERROR_NOT_FOUND`
pub(crate) const NOT_FOUND: c_int = 500;
/// `CUDA_ERROR_NOT_SUPPORTED`
pub(crate) const NOT_SUPPORTED: c_int = 801;
/// `CUDA_ERROR_SYSTEM_NOT_READY`
pub(crate) const SYSTEM_NOT_READY: c_int = 802;

/// The driver's result code as a `Result`.
pub(crate) const fn checked(result: c_int) -> Result<(), c_int> {
    match result {
        SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// A `Result` as the driver's result code.
pub(crate) fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(SUCCESS)
}

/// The head of `CUmemPoolProps` and of `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location: MemLocation,
}

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MemLocation {
    kind: u32,
    number: c_int,
}

impl Properties {
    /// Properties of plain memory on the driver's device of this number.
    pub(crate) const fn on(device: c_int) -> Self {
        Self { allocation_type: 1, handle_types: 0, location: MemLocation { kind: 1, number: device } }
    }

    /// Possible location of memory with these properties.
    pub(crate) fn location(&self) -> Location {
        self.location.of(self.allocation_type)
    }
}

impl MemLocation {
    /// Possible location of memory of this allocation type at this location.
    pub(crate) fn of(self, allocation_type: u32) -> Location {
        Location::of(allocation_type, self.kind, self.number)
    }
}

/// Sizes and pointers: 32 bits wide in the oldest versions of some functions, else 64.
pub(crate) trait Width: Copy + Default {
    /// The value in 64 bits.
    fn wide(self) -> u64;
    /// The lower bits that fit.
    fn narrow(wide: u64) -> Self;
    /// True for 32 bits.
    const IS_NARROW: bool = size_of::<Self>() < size_of::<u64>();
}

macro_rules! width {
    ($($type:ty)*) => {$(
        impl Width for $type {
            fn wide(self) -> u64 {
                self as u64
            }
            fn narrow(wide: u64) -> Self {
                Self::try_from(wide).unwrap_or(Self::MAX)
            }
        }
    )*};
}
width!(u32 u64 usize);
