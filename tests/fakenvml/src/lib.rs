//! The simulated node as NVML shows it: a library in the place of `libnvidia-ml.so.1`.
//!
//! Laws:
//! - Answers are what happened in the engine; the only state here is the count of `nvmlInit` calls and the event sets.
//! - A function is exported and answers as a data-centre GPU's driver would, or it is not exported.
//! - It never prints and never unwinds into its caller.
//! - Its NVML version ends in `-simulated`, which distinguishes it from a real one.

mod abi;
mod device;
mod events;
mod exports;
mod handle;
mod library;
mod link;
mod lists;
mod session;
mod status;
mod wall;
