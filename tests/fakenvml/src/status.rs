//! Return codes of NVML, as far as this library uses them.
#![forbid(unsafe_code)]

use std::ffi::CStr;

/// Failures that this library returns, with NVML's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Uninitialized = 1,
    InvalidArgument = 2,
    NotSupported = 3,
    NotFound = 6,
    InsufficientSize = 7,
    DriverNotLoaded = 9,
    Timeout = 10,
    GpuIsLost = 15,
    ArgumentVersionMismatch = 25,
    Unknown = 999,
}

/// The return type of every call.
pub(crate) type Status = u32;
/// A call that succeeded.
pub(crate) const SUCCESS: Status = 0;

/// Result of a call, before it becomes a number.
pub(crate) type Answer<T> = Result<T, Failure>;

/// Text of a return code, also of those that this library never returns.
pub(crate) const fn text(status: Status) -> &'static CStr {
    match status {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"GPU is in use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"The requested vGPU operation is not available because ECC is enabled",
        23 => c"Insufficient Resources",
        24 => c"Frequency Not Supported",
        25 => c"Argument Version Mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU Not Found",
        29 => c"Invalid State",
        _ => c"Unknown Error",
    }
}
