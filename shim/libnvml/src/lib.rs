//! The library that is mounted over `libnvidia-ml.so.1`, so that programs that open it see their slice.
//!
//! It does not depend on the way of opening: linked, by name, by path, with an empty environment, from a static program.
//! Functions that it does not govern come from the library that it needs, `libnvidia-ml-real.so.1`: the driver's own file
//! under another name, in `/run/tranche/driver` unless LD_LIBRARY_PATH names another folder. Its code is in
//! [`tranche_hooks`]; this package links it as one library.
//!
//! Law: never preload it. A program on a machine without that other name could not start.
#![cfg_attr(panic = "abort", no_std)]
#![forbid(unsafe_code)]

extern crate tranche_hooks as _;
