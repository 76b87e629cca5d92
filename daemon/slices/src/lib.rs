//! Runtime of slices: regions, attached processes, and the accounting of their memory.
//!
//! Laws: the accounting here is authoritative, and what a tenant writes is a hint. Work that a slice's processes cause
//! runs on that slice's thread. Which slices exist is decided above, through [`reaper::Slices`].
#![forbid(unsafe_code)]

pub mod attach;
pub mod container;
pub mod pod_cgroup;
pub mod reaper;
pub mod regions;
mod shares;
pub mod slice_runtime;
pub mod usage_guard;
pub mod worker;
