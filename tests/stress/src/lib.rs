//! Kills tenants and daemons at every step of their protocol, and counts what is left.
//!
//! Laws:
//! - A tenant is a process that runs the shim's own code for attaching, requesting, charging and sharing, and takes
//!   memory of the simulated device: by itself, from pools, and together with others; with several threads, in
//!   children, and as another program after `exec`. A daemon is a process that runs `tranched`'s own code.
//! - Every death is a SIGKILL: from outside at random, or by the process itself at a named point.
//! - Granted memory is read from the slice's region and held memory from the device; no process is trusted.
//! - A run that could not have failed proves nothing: `--broken` breaks the protocol, and must be detected.
#![deny(unsafe_code)]

pub mod board;
mod body;
mod broken;
pub mod chance;
pub mod checker;
pub mod daemon;
mod delays;
mod heap;
pub mod kin;
mod lending;
pub mod nursery;
pub mod points;
mod pool;
pub mod report;
pub mod storm;
pub mod tenant;
pub mod wrong;

/// The shim's own code for attaching to a slice. It cannot be linked, being a library for processes of tenants, so
/// it is compiled in here.
#[allow(dead_code, unsafe_code, reason = "it is the shim's, which needs more of it")]
#[path = "../../../shim/hooks/src/attach.rs"]
mod attach;
#[allow(dead_code, unsafe_code, reason = "it is the shim's, which needs more of it")]
#[path = "../../../shim/hooks/src/bell.rs"]
mod bell;
#[allow(dead_code, unsafe_code, reason = "it is the shim's, which needs more of it")]
#[path = "../../../shim/hooks/src/connection.rs"]
mod connection;
#[allow(dead_code, unsafe_code, reason = "it is the shim's, which needs more of it")]
#[path = "../../../shim/hooks/src/root.rs"]
mod root;
#[allow(dead_code, unused_imports, unsafe_code, reason = "it is the shim's, which needs more of it")]
#[path = "../../../shim/hooks/src/sys/mod.rs"]
mod sys;
