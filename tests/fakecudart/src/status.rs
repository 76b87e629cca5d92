//! Results of the runtime: `cudaError_t`.
//!
//! Its numbers are those of the driver's results since CUDA 10.1.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

/// Result of an entry point: nothing, or the reason of a failure.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

/// A non-zero `cudaError_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(i32);

impl Status {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const INVALID_SYMBOL: Self = Self(13);
    pub(crate) const INVALID_COPY_DIRECTION: Self = Self(21);
    pub(crate) const INSUFFICIENT_DRIVER: Self = Self(35);
    pub(crate) const INVALID_FUNCTION: Self = Self(98);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// The number in the API.
    pub(crate) const fn number(self) -> i32 {
        self.0
    }
}

/// A driver's result as an outcome.
pub(crate) fn checked(result: i32) -> Outcome {
    if result == 0 { Ok(()) } else { Err(Status(result)) }
}

thread_local! {
    /// The last failure in this thread.
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Number of an outcome, which is the thread's last error if it is one.
pub(crate) fn noted(outcome: Outcome) -> i32 {
    let Err(status) = outcome else { return 0 };
    // A thread that ends has no last error any more.
    let _ = LAST.try_with(|last| last.set(status.number()));
    status.number()
}

/// The last failure in this thread.
pub(crate) fn last() -> i32 {
    LAST.try_with(Cell::get).unwrap_or(0)
}

/// The last failure in this thread, which is none from then on.
pub(crate) fn take_last() -> i32 {
    LAST.try_with(Cell::take).unwrap_or(0)
}

macro_rules! names {
    ($($number:literal $name:literal $sentence:literal)*) => {
        const NAMED: &[(i32, &CStr, &CStr)] = &[$(($number, $name, $sentence),)*];
    };
}

names! {
    0 c"cudaSuccess" c"no error"
    1 c"cudaErrorInvalidValue" c"invalid argument"
    2 c"cudaErrorMemoryAllocation" c"out of memory"
    3 c"cudaErrorInitializationError" c"initialization error"
    4 c"cudaErrorCudartUnloading" c"driver shutting down"
    9 c"cudaErrorInvalidConfiguration" c"invalid configuration argument"
    12 c"cudaErrorInvalidPitchValue" c"invalid pitch argument"
    13 c"cudaErrorInvalidSymbol" c"invalid device symbol"
    21 c"cudaErrorInvalidMemcpyDirection" c"invalid copy direction for memcpy"
    35 c"cudaErrorInsufficientDriver" c"CUDA driver version is insufficient for CUDA runtime version"
    46 c"cudaErrorDevicesUnavailable" c"CUDA-capable device(s) is/are busy or unavailable"
    98 c"cudaErrorInvalidDeviceFunction" c"invalid device function"
    100 c"cudaErrorNoDevice" c"no CUDA-capable device is detected"
    101 c"cudaErrorInvalidDevice" c"invalid device ordinal"
    200 c"cudaErrorInvalidKernelImage" c"device kernel image is invalid"
    201 c"cudaErrorDeviceUninitialized" c"invalid device context"
    209 c"cudaErrorNoKernelImageForDevice" c"no kernel image is available for execution on the device"
    214 c"cudaErrorECCUncorrectable" c"uncorrectable ECC error encountered"
    215 c"cudaErrorUnsupportedLimit" c"limit is not supported on this architecture"
    217 c"cudaErrorPeerAccessUnsupported" c"peer access is not supported between these two devices"
    218 c"cudaErrorInvalidPtx" c"a PTX JIT compilation failed"
    301 c"cudaErrorFileNotFound" c"file not found"
    304 c"cudaErrorOperatingSystem" c"OS call failed or operation not supported on this OS"
    400 c"cudaErrorInvalidResourceHandle" c"invalid resource handle"
    401 c"cudaErrorIllegalState" c"the operation cannot be performed in the present state"
    500 c"cudaErrorSymbolNotFound" c"named symbol not found"
    600 c"cudaErrorNotReady" c"device not ready"
    700 c"cudaErrorIllegalAddress" c"an illegal memory access was encountered"
    701 c"cudaErrorLaunchOutOfResources" c"too many resources requested for launch"
    704 c"cudaErrorPeerAccessAlreadyEnabled" c"peer access is already enabled"
    705 c"cudaErrorPeerAccessNotEnabled" c"peer access has not been enabled"
    708 c"cudaErrorSetOnActiveProcess" c"cannot set while device is active in this process"
    709 c"cudaErrorContextIsDestroyed" c"context is destroyed"
    712 c"cudaErrorHostMemoryAlreadyRegistered" c"part or all of the requested memory range is already mapped"
    713 c"cudaErrorHostMemoryNotRegistered" c"pointer does not correspond to a registered memory region"
    719 c"cudaErrorLaunchFailure" c"unspecified launch failure"
    720 c"cudaErrorCooperativeLaunchTooLarge" c"too many blocks in cooperative launch"
    800 c"cudaErrorNotPermitted" c"operation not permitted"
    801 c"cudaErrorNotSupported" c"operation not supported"
    802 c"cudaErrorSystemNotReady" c"system not yet initialized"
    803 c"cudaErrorSystemDriverMismatch" c"system has unsupported display driver / cuda driver combination"
    900 c"cudaErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing"
    901 c"cudaErrorStreamCaptureInvalidated" c"operation failed due to a previous error during capture"
    905 c"cudaErrorStreamCaptureIsolation" c"dependency created on uncaptured work in another stream"
    906 c"cudaErrorStreamCaptureImplicit" c"operation would make the legacy stream depend on a capturing blocking stream"
    907 c"cudaErrorCapturedEvent" c"operation not permitted on an event last recorded in a capturing stream"
    999 c"cudaErrorUnknown" c"unknown error"
}

fn named(number: i32) -> (&'static CStr, &'static CStr) {
    let found = NAMED.iter().find(|(known, _, _)| *known == number);
    found.map_or((c"unrecognized error code", c"unrecognized error code"), |(_, name, text)| (*name, *text))
}

/// `cudaGetErrorName`.
pub(crate) fn name(number: i32) -> *const c_char {
    named(number).0.as_ptr()
}

/// `cudaGetErrorString`.
pub(crate) fn sentence(number: i32) -> *const c_char {
    named(number).1.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::{Status, checked, last, noted, take_last};

    #[test]
    fn a_failure_is_the_last_error_until_it_is_taken() {
        assert_eq!((noted(Ok(())), last()), (0, 0));
        assert_eq!(noted(checked(2)), 2);
        assert_eq!((noted(Ok(())), last()), (0, 2), "success leaves it");
        assert_eq!((take_last(), last()), (2, 0));
        assert_eq!(checked(801), Err(Status::NOT_SUPPORTED));
    }
}
