//! The device plugin between a kubelet and a daemon that both do what a test tells them to, in one process.
//!
//! Laws:
//! - The plugin is the real one, over real sockets; the daemon decides with the real domain.
//! - The kubelet keeps to what Kubernetes' does unless told otherwise: it removes all sockets when it starts.
//! - Nothing waits for ever.
#![forbid(unsafe_code)]
// A harness fails a test by panicking, with a sentence.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

mod daemon;
mod kubelet;
mod node;
mod pods;

pub use daemon::{Daemon, Temper};
pub use kubelet::{Devices, Kubelet, Plugin};
pub use node::{Node, PACE, PATIENCE, within};
pub use pods::Pods;
