//! The library for LD_PRELOAD: every governed function of the driver and of NVML, and `dlsym`.
//!
//! Its code is in [`tranche_hooks`]; this package links it as one library.
#![cfg_attr(panic = "abort", no_std)]
#![forbid(unsafe_code)]

extern crate tranche_hooks as _;
