//! The library that stands in the place of `libnvidia-ml.so.1`, so that every program that opens the driver sees its slice,
//! however it opens it: linked, by name, by path, with an empty environment, from a static program.
//!
//! What it does not govern is found in the library that it needs, `libnvidia-ml-real.so.1`: the driver's own file under
//! another name, in `/run/tranche/driver` unless LD_LIBRARY_PATH says otherwise. All else is in [`tranche_hooks`]; this package gives it the form of one library.
//!
//! Law: never preload it. A program on a machine without that other name could not start.
#![cfg_attr(panic = "abort", no_std)]
#![forbid(unsafe_code)]

extern crate tranche_hooks as _;
