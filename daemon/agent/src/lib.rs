//! The daemon of a node: it makes slices of GPUs, lets processes in, and answers for their memory.
//!
//! Laws:
//! - What is decided is decided by `tranche-domain`; this crate gives it clocks, sockets, files and processes.
//! - Identity is asked of the kernel, never of a client. What a tenant writes is a hint.
//! - The daemon may die at any instruction: tenants go on with what they were granted, and the next daemon
//!   takes over slices, regions and processes as it finds them.
//! - Unsafe code is in one module, `sys`.
#![deny(unsafe_code)]

mod access;
mod agent;
mod attach;
mod attendant;
pub mod cli;
mod clock;
mod clocks;
mod compute;
mod config;
mod configuration;
mod containers;
mod context;
mod events;
mod failure;
mod faults;
mod girth;
mod guest;
mod jobs;
mod kept;
mod kin;
mod metrics;
mod obstacles;
mod operators;
mod ownership;
mod picture;
mod privileges;
mod process;
mod queue;
mod reaper;
mod recovery;
mod regions;
mod remembered;
mod sampler;
mod sealed;
mod serve;
mod service;
mod shares;
mod sight;
mod sockets;
mod state;
mod supervisor;
#[allow(unsafe_code)]
mod sys;
mod tally;
mod tenancy;
mod trueup;
mod truth;
mod version;
mod watchdog;
mod whole;

pub use access::{Access, Group, Limits};
pub use compute::{Account, Rounds, Site};
pub use config::{
    Config, ConfigError, Foreigners, Gpus, OnlySlices, OverCap, OverCapPolicy, RelativeDirectory, Retention,
    Transfers, ViolationsPolicy,
};
pub use configuration::{Configured, Reading, SetLog, Source};
pub use containers::{Described, Documents};
pub use context::{Contexts, Outstanding};
pub use serve::{Settings, StartError, serve};
pub use sockets::{FilesError, Layout, Locks, Reach};
