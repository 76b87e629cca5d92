//! The simulated node as NVML shows it: a library that stands where `libnvidia-ml.so.1` is looked for.
//!
//! Laws:
//! - What it says is what happened in the engine; it keeps no state but who called `nvmlInit` and who listens.
//! - A function is exported and answers as a data-centre GPU's driver would, or it is not exported.
//! - It never prints and never unwinds into its caller.
//! - Its NVML version ends in `-simulated`, so nobody need mistake it for a real one.

mod abi;
mod device;
mod events;
mod exports;
mod link;
mod lists;
mod session;
mod status;
mod wall;
