//! Kubernetes DRA driver: publishes GPUs as shared devices, and makes slices of claims.
//!
//! Law: `claim`, `condition`, `device`, `parameters`, `pool`, `profile` and `quantity` decide without clock, sockets or
//! randomness. The daemon's ledger has the last word on each slice, and its view is the only record of them: a
//! slice's name determines its claim.
#![forbid(unsafe_code)]

mod claim;
pub mod cli;
mod condition;
mod config;
mod device;
mod driver;
mod labels;
mod metrics;
mod orphans;
mod parameters;
mod pool;
mod profile;
mod publisher;
mod quantity;
mod serve;
mod service;
mod turns;

#[cfg(test)]
mod tests;
