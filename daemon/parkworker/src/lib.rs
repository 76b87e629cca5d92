//! The park worker, which checkpoints and restores processes through the driver, and its client.
//!
//! It is a process of its own, because the driver's calls need its library, may not return, and act on processes of
//! other users. It keeps the two capabilities for that, serves packets of a closed set over a socket that the daemon
//! alone has, and acts only on processes that belong to a slice by the kernel's evidence.
//!
//! Laws:
//! - Each request runs on a thread of its own: one that does not return delays no other.
//! - The driver is initialised once, since each initialisation takes seconds.
//! - The worker exits when the daemon closes the socket.
#![deny(unsafe_code)]

mod client;
#[allow(unsafe_code)]
mod driver;
mod protocol;
mod serve;

pub use client::{ParkWorker, WorkerError};
pub use protocol::{DriverState, ParkCall};
pub use serve::main;
