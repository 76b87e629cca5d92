//! The daemon of a node. Creates slices of GPUs, admits processes to them and accounts for their memory and GPU time.
//!
//! Invariants:
//! - Decisions are made in `tranche-domain`; this crate supplies clocks, sockets, files and processes.
//! - Identity comes from the kernel, never from a client. Values that a tenant writes are hints.
//! - The daemon may be killed at any instruction: attached processes keep what they were granted, and the next daemon
//!   takes over slices, regions and processes as it finds them.
#![forbid(unsafe_code)]

mod access;
mod agent;
mod attribution;
mod audit;
pub mod cli;
mod config;
mod configuration;
mod containers;
mod context;
mod failure;
mod faults;
mod gpu_probe;
mod gpu_users;
mod idle_parking;
mod idleness;
mod jobs;
mod metrics;
mod obstacles;
mod operators;
mod other_abi;
mod overhead;
mod ownership;
mod parking;
mod queue;
mod recovery;
mod rotation;
mod sampler;
mod serve;
mod server;
mod service;
mod shim_file;
mod snapshot;
mod sockets;
mod state;
mod state_store;
mod user_names;
mod watchdog;

pub use access::{Access, Group, Limits};
pub use config::{
    Config, ConfigError, Foreigners, ManagedGpus, OnlySlices, OverCap, OverCapPolicy, RelativeDirectory,
    Retention, Transfers, ViolationsPolicy,
};
pub use configuration::{ConfigSource, Configured, SetLog, SourcedConfig};
pub use containers::{Described, Documents};
pub use context::{Contexts, PendingMeasurements};
pub use serve::{Settings, StartError, serve};
pub use sockets::{DaemonPaths, DaemonScope, FilesError, Locks};
