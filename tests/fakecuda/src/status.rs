//! The driver's results, with the names and texts of `cuGetErrorName` and `cuGetErrorString`.

use std::ffi::CStr;

/// Result of an entry point: nothing, or the reason of a failure.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($number:literal $variant:ident $name:literal $sentence:literal)*) => {
        /// A non-zero `CUresult`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(dead_code, reason = "some results are only named: a program may look up any number")]
        #[repr(i32)]
        pub(crate) enum Status {
            $($variant = $number,)*
        }

        /// The results by which [`outcome`] finds the one of a number.
        const ALL: &[Status] = &[$(Status::$variant,)*];

        /// Number, name and sentence of every answer, success first.
        const NAMED: &[(i32, &CStr, &CStr)] = &[(0, c"CUDA_SUCCESS", c"no error"), $(($number, $name, $sentence),)*];
    };
}

statuses! {
    1 InvalidValue c"CUDA_ERROR_INVALID_VALUE" c"invalid argument"
    2 OutOfMemory c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory"
    3 NotInitialized c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error"
    4 Deinitialized c"CUDA_ERROR_DEINITIALIZED" c"driver shutting down"
    46 DeviceUnavailable c"CUDA_ERROR_DEVICE_UNAVAILABLE" c"CUDA-capable device(s) is/are busy or unavailable"
    100 NoDevice c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected"
    101 InvalidDevice c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal"
    200 InvalidImage c"CUDA_ERROR_INVALID_IMAGE" c"device kernel image is invalid"
    201 InvalidContext c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context"
    205 MapFailed c"CUDA_ERROR_MAP_FAILED" c"mapping of buffer object failed"
    208 AlreadyMapped c"CUDA_ERROR_ALREADY_MAPPED" c"resource already mapped"
    214 EccUncorrectable c"CUDA_ERROR_ECC_UNCORRECTABLE" c"uncorrectable ECC error encountered"
    215 UnsupportedLimit c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"limit is not supported on this architecture"
    217 PeerAccessUnsupported c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"peer access is not supported between these two devices"
    218 InvalidPtx c"CUDA_ERROR_INVALID_PTX" c"a PTX JIT compilation failed"
    301 FileNotFound c"CUDA_ERROR_FILE_NOT_FOUND" c"file not found"
    304 OperatingSystem c"CUDA_ERROR_OPERATING_SYSTEM" c"OS call failed or operation not supported on this OS"
    400 InvalidHandle c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle"
    401 IllegalState c"CUDA_ERROR_ILLEGAL_STATE" c"the operation cannot be performed in the present state"
    500 NotFound c"CUDA_ERROR_NOT_FOUND" c"named symbol not found"
    600 NotReady c"CUDA_ERROR_NOT_READY" c"device not ready"
    700 IllegalAddress c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered"
    701 LaunchOutOfResources c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" c"too many resources requested for launch"
    704 PeerAccessAlreadyEnabled c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" c"peer access is already enabled"
    705 PeerAccessNotEnabled c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" c"peer access has not been enabled"
    708 PrimaryContextActive c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" c"cannot set while device is active in this process"
    709 ContextIsDestroyed c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed"
    712 HostMemoryAlreadyRegistered c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"part or all of the requested memory range is already mapped"
    713 HostMemoryNotRegistered c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"pointer does not correspond to a registered memory region"
    719 LaunchFailed c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure"
    720 CooperativeLaunchTooLarge c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" c"too many blocks in cooperative launch"
    800 NotPermitted c"CUDA_ERROR_NOT_PERMITTED" c"operation not permitted"
    801 NotSupported c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported"
    802 SystemNotReady c"CUDA_ERROR_SYSTEM_NOT_READY" c"system not yet initialized"
    803 DriverMismatch c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" c"system has unsupported display driver / cuda driver combination"
    900 CaptureUnsupported c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"operation not permitted when stream is capturing"
    901 CaptureInvalidated c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"operation failed due to a previous error during capture"
    905 CaptureIsolation c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"dependency created on uncaptured work in another stream"
    906 CaptureImplicit c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"operation would make the legacy stream depend on a capturing blocking stream"
    907 CapturedEvent c"CUDA_ERROR_CAPTURED_EVENT" c"operation not permitted on an event last recorded in a capturing stream"
    999 Unknown c"CUDA_ERROR_UNKNOWN" c"unknown error"
}

/// Name and sentence of a result, if this library has it.
pub(crate) fn described(number: i32) -> Option<(&'static CStr, &'static CStr)> {
    NAMED.iter().find(|(known, _, _)| *known == number).map(|(_, name, sentence)| (*name, *sentence))
}

/// The outcome that a number stands for; one that this library has not is an unknown error.
pub(crate) fn outcome(number: u64) -> Outcome {
    if number == 0 {
        return Ok(());
    }
    Err(ALL.iter().copied().find(|status| *status as u64 == number).unwrap_or(Status::Unknown))
}

/// The number that is returned to the caller.
pub(crate) fn number(outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(status) => status as i32,
    }
}
