//! The library that is preloaded into a program, so that it sees its slice: every governed function of the driver
//! and NVML, and `dlsym`.
//!
//! All of it is in [`tranche_hooks`]; this package gives it the form of one library.
#![cfg_attr(panic = "abort", no_std)]
#![forbid(unsafe_code)]

extern crate tranche_hooks as _;
