//! GPUs that exist only as bookkeeping: processes share their memory, their queues and their time.
//!
//! Laws:
//! - A node is one file of 64-bit atomics that every process maps. Nothing in it is ever referred to as plain data.
//! - Memory is counted in blocks of 2 MiB. What is handed out never exceeds what the model has, at any instant.
//! - Work takes time and computes nothing. No thread runs it: the first access to a GPU brings it up to now.
//! - Any process may be killed at any instruction. The next one takes its lock over and reaps what it held.
//! - No call reads a clock but through the node's; scheduling is pure.

mod books;
mod context;
mod facts;
mod faults;
mod ground;
mod lane;
pub mod law;
mod layout;
mod lock;
mod model;
mod node;
mod personality;
mod preset;
mod process;
mod queue;
mod refusal;
mod request;
mod shared;
mod sys;
mod units;
mod work;
mod world;

pub use context::Context;
pub use facts::{Holding, LogEntry, ProcessUtilization, Utilization, Vitals};
pub use faults::{ComputeMode, MigMode, Needs, Presence, Setting, Settings, Virtualization, Xid};
pub use lane::{Lane, WorkKind};
pub use layout::{MARKS, QUEUE_LENGTH};
pub use model::{Architecture, Brand, Clocks, Compute, Link, Memory, Mig, Model, Power, Temperature, models};
pub use node::{BadNode, Node};
pub use personality::{
    DEFAULT_PERSONALITY, DRIVER_VARIABLE, Loading, LookUp, Personality, StarvedRestore, personalities,
};
pub use preset::{BadPreset, GpuSpec, MAX_GPUS, NodeSpec, presets};
pub use process::Process;
pub use refusal::Refusal;
pub use request::{Controlled, ProcessState, Request};
pub use shared::Shared;
pub use sys::run_at_real_time;
pub use units::{BLOCK_BYTES, Blocks, Gpu, Time};
pub use work::{Ticket, Work};
pub use world::{Host, Stamp, World};

#[cfg(test)]
mod engine_tests;

/// Environment variable that names the node's file.
pub const NODE_VARIABLE: &str = "SIMGPU_NODE";
/// Environment variable; `on` lets the threads that play a GPU run before others, where permitted.
pub const REAL_TIME_VARIABLE: &str = "SIMGPU_REAL_TIME";
/// Environment variable with the mount point of the machine's own `/proc`, for programs in a container.
pub const PROC_VARIABLE: &str = "SIMGPU_PROC";
