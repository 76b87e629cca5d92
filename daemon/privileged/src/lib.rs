//! The daemon's privileged helper, and its client.
//!
//! The daemon's main process parses input from clients, tenants and the network, and therefore holds no
//! capabilities. Operations that need root are in a second process of the same program, which serves one
//! fixed-size request of a closed set at a time, over a socket that only the main process has.
//!
//! Laws:
//! - A request carries numbers and at most one descriptor, never a path.
//! - The helper trusts no statement of the main process: it verifies descriptors and processes through the
//!   kernel.
//! - It parses no tenant input. Data of other processes is compared with constants or passed on unread; a
//!   process's cgroup path comes from the kernel.
//! - For container runtimes, a request chooses a slice's name and GPUs only; all else was described at the
//!   start as root.
//! - Each end exits when the other is gone.
#![deny(unsafe_code)]

mod bounds;
#[allow(unsafe_code)]
mod bpf;
mod client;
mod containers;
mod evidence;
mod leaves;
mod park;
mod powers;
mod protocol;
mod rule;
mod serve;
#[allow(unsafe_code)]
mod sys;

pub use bounds::{ARGUMENT, Bounds};
pub use client::{Helper, HelperError};
pub use containers::{ATTACH, Containers, Description, MOST_GPUS, MOUNTS, SLICES, listen, remove};
pub use evidence::{Evidence, mapped_memory, process_of_a_slice};
pub use park::{PARK_WORKER, become_park_worker, start_park_worker};
pub use powers::{AT_START, Account, DropError, KEPT, drop_all};
pub use protocol::{Denied, ProcessFile, Refusal};
pub use rule::{is_leaf, join_standing_rule, open_gpus};
pub use serve::main;
pub use sys::{detach_read_only, pidfd_open, send_signal};

/// Packets with descriptors, for the sockets of the daemon's own processes.
pub mod packets {
    pub use crate::evidence::pid_of;
    pub use crate::protocol::{packet, words};
    pub use crate::sys::{receive, send};
}

#[cfg(test)]
mod tests;
