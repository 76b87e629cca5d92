//! GPUs that exist only as bookkeeping: several processes share their memory, their queues and their time.
//!
//! Laws:
//! - A node is one file of 64-bit atomics that every process maps. Nothing in it is ever referred to as plain data.
//! - Memory is counted in blocks of 2 MiB. What is handed out never exceeds what the model has, at any instant.
//! - Work takes time and computes nothing. Nobody runs it: whoever looks at a GPU first brings it up to now.
//! - Any process may be killed at any instruction. Whoever comes next takes its lock over and reaps what it held.
//! - No call reads a clock but through the node's; scheduling ([`schedule`]) is pure.

mod model;
mod node;
mod process;
mod units;
mod work;

pub use model::{
    Architecture, BadPreset, Brand, Clocks, Compute, GpuSpec, Link, MAX_GPUS, Memory, Mig, Model, NodeSpec, Power,
    Temperature, models, presets,
};
pub use node::{BadNode, Node};
pub use process::{Context, Process, Refusal};
pub use units::{BLOCK_BYTES, Blocks, Gpu, Time};
/// Pieces of work that a context can have queued; submitting more waits.
pub const QUEUE_LENGTH: usize = 256;
/// Marks of a context whose times are remembered.
pub const MARKS: usize = 512;

pub use work::{Lane, Ticket, Work, WorkKind};

/// The environment variable that names the node's file.
pub const NODE_VARIABLE: &str = "SIMGPU_NODE";
