//! The privileged helper of the daemon, and the daemon's side of it.
//!
//! The daemon's main process parses what clients, tenants and the network send, and therefore holds no capability. What
//! still needs root is done by a second process of the same program: synchronous, one request at a time, each of a fixed
//! size and of a closed set, over a socket that only the main process has.
//!
//! Laws:
//! - A request carries numbers and at most one descriptor, never a path.
//! - The helper believes nothing that the main process says: it asks the kernel about the descriptor or the process.
//! - It parses nothing that a tenant wrote. What it reads of other processes it compares with constants, or hands over unread;
//!   a process's cgroup it takes as the path that the kernel says.
//! - Of what container runtimes follow, a request chooses a slice's name and GPUs; all else was described by root's start.
//! - Each end exits when the other is gone.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod bpf;
mod client;
mod containers;
mod evidence;
mod powers;
mod protocol;
mod rule;
mod serve;
#[allow(unsafe_code)]
mod sys;

pub use client::{Helper, HelperError};
pub use containers::{ATTACH, Containers, Description, MOST_GPUS, MOUNTS, SLICES, listen};
pub use evidence::{Evidence, mapped_memory};
pub use powers::{AT_START, Account, DropError, KEPT, drop_all};
pub use protocol::{ProcessFile, Refusal};
pub use rule::{is_leaf, join_standing_rule, open_gpus};
pub use serve::{ARGUMENT, Bounds, Denied, main};
pub use sys::{detach_read_only, pidfd_open, send_signal};

#[cfg(test)]
mod tests;
