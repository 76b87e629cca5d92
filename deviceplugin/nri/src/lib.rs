//! Plugin of container runtimes (NRI) that makes slices of pods' annotations.
//!
//! The annotations are those of KAI and gpu-fractioning; containers are adjusted when they are created.
//!
//! Law: `adjustment`, `container`, `name`, `record`, `visible` and `wanted` decide without sockets or clock. The daemon's ledger has the last
//! word on each slice, and its view is the only record of them. A container whose slice cannot be made is not created;
//! the response comes before the runtime's deadline, since the runtime creates containers without a late plugin.
#![forbid(unsafe_code)]

mod adjustment;
pub mod cli;
mod config;
mod container;
mod metrics;
mod name;
mod record;
mod serve;
mod session;
mod slices;
mod visible;
mod wanted;
