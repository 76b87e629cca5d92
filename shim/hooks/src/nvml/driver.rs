//! Functions of NVML that the hooks call on their own behalf.
#![allow(non_snake_case, reason = "the driver's names")]

use core::ffi::{c_char, c_int};

use crate::libraries::{Library, RealAddress, Symbol, SymbolName, unresolved};

crate::real_functions! {
    Nvml {
        nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut u64);
        nvmlDeviceGetUUID(device: u64, uuid: *mut c_char, length: u32);
    }
}
