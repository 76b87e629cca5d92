//! A whole node in a directory: a simulated GPU machine with a daemon of its own, for end-to-end tests.
//!
//! Laws:
//! - Tests use what a user has: the binaries of the staged tree, environment variables, files.
//! - The memory held on a device is read from the device ([`Device`]), never from the daemon under test.
//! - A [`Node`] leaves no process and no file behind, even if its test panics.
//! - Each wait has an end; one that fails reports its condition and the daemon's log.
#![forbid(unsafe_code)]
// A harness fails a test by a panic whose message is a sentence.
#![allow(clippy::missing_panics_doc)]

mod device;
mod event;
mod launched;
mod leaf;
mod lease;
mod node;
mod outcome;
mod process;
mod program;
mod skip;
mod stage;
mod tenant;
mod timeline;
mod view;
mod wait;

pub use device::{Device, Gpu, Holding};
pub use event::{Actor, Event};
pub use launched::Launched;
pub use leaf::{hierarchy, leaf_of};
pub use lease::{Counted, Held, usage_of};
pub use node::Node;
pub use outcome::Outcome;
pub use process::Process;
pub use program::{compile, compile_by, scratch};
pub use skip::{Required, skip};
pub use stage::Stage;
pub use tenant::{CudaError, Kind, Tenant};
pub use timeline::Timeline;
pub use view::{GpuView, ProcessView, SliceDeviceView, SliceView, Snapshot, WaitingView};
pub use wait::{PATIENCE, eventually, holds_for, until};
