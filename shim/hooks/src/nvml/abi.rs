//! Result codes of NVML.

use core::ffi::c_int;

/// `NVML_SUCCESS`
pub(crate) const SUCCESS: c_int = 0;
/// `NVML_ERROR_INVALID_ARGUMENT`
pub(crate) const INVALID_ARGUMENT: c_int = 2;
/// `NVML_ERROR_NOT_FOUND`
pub(crate) const NOT_FOUND: c_int = 6;
/// `NVML_ERROR_INSUFFICIENT_SIZE`
pub(crate) const INSUFFICIENT_SIZE: c_int = 7;
/// `NVML_ERROR_DRIVER_NOT_LOADED`
pub(crate) const DRIVER_NOT_LOADED: c_int = 9;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`
pub(crate) const FUNCTION_NOT_FOUND: c_int = 13;
/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`
pub(crate) const VERSION_MISMATCH: c_int = 25;
