//! Kills tenants and daemons at every step of what they do together, and counts what is left.
//!
//! Laws:
//! - A tenant is a process that runs the shim's own code for attaching, asking, charging and sharing, and takes
//!   memory of the simulated device: by itself, from pools, and together with others; with several threads, in
//!   children, and as another program than it was. A daemon is a process that runs `tranched`'s own code.
//! - Every death is a SIGKILL: from outside at random, or by the process itself at a named point.
//! - What was granted is read from the slice's region and what is held from the device; nobody is believed.
//! - A run that could not have failed proves nothing: `--broken` breaks the protocol, and must be caught.
#![deny(unsafe_code)]

pub mod board;
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

/// The shim's own code for becoming part of a slice. It cannot be linked, being a library for other people's
/// processes, so it is compiled in here.
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
