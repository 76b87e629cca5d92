//! Plugin of container runtimes (NRI): makes slices of pods whose annotations request a part of a GPU, as KAI and
//! gpu-fractioning write them, and adjusts their containers.
//!
//! Law: `adjustment`, `name`, `visible` and `wanted` decide without sockets or clock. The daemon's ledger has the last
//! word on each slice, and its view is the only record of them. A container whose slice cannot be made is not created;
//! the response comes before the runtime's deadline, since the runtime creates containers without a late plugin.
#![forbid(unsafe_code)]

mod adjustment;
pub mod cli;
mod config;
mod metrics;
mod name;
mod serve;
mod session;
mod slices;
mod visible;
mod wanted;
