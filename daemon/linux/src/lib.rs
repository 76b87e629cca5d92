//! Linux as the daemon uses it: processes by pidfd, shared mappings, sockets, atomic files.
//!
//! Invariants:
//! - A process is a pid with its start time, and a signal goes through a pidfd: a pid that was reused is another process.
//! - What needs a capability is requested from the privileged helper.
//! - Unsafe code is confined to the module `sys`.
#![deny(unsafe_code)]

pub mod ancestry;
pub mod atomic_file;
pub mod clock;
pub mod privileges;
pub mod process;
pub mod sealed;
pub mod supervisor;
#[allow(unsafe_code)]
pub mod sys;
pub mod time_namespace;
