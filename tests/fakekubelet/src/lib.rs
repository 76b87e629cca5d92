//! Neighbours of the kubelet's adapters: a kubelet, a daemon and an API server, all simulated.
//!
//! A test sets the behaviour of both.
//!
//! Laws:
//! - The plugin is the real one, over real sockets; the daemon decides with the real domain.
//! - The kubelet does as Kubernetes' does, except where a test sets otherwise: it removes all sockets when it starts.
//! - Each wait has a limit.
#![forbid(unsafe_code)]
// A harness fails a test by panicking, with a sentence.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

pub mod apiserver;
mod daemon;
mod kubelet;
mod node;
mod pods;

pub use daemon::{Daemon, Temper};
pub use kubelet::{Devices, Kubelet, Plugin};
pub use node::{Node, PACE, PATIENCE, within};
pub use pods::Pods;
