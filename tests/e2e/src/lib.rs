//! A whole node on a desk: a simulated GPU machine with its own daemon, for tests that use Tranche as people do.
//!
//! Laws:
//! - Everything goes through what a user has: the binaries of the staged tree, environment variables, files.
//! - What a device holds is asked of the device ([`Device`]), never of the daemon under test.
//! - A [`Node`] leaves nothing behind, whoever panics: no process, no file.
//! - Nothing waits for ever, and what was waited for in vain is named, with the daemon's log.
#![forbid(unsafe_code)]
// A harness fails a test by panicking, with a sentence.
#![allow(clippy::missing_panics_doc)]

mod device;
mod event;
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
pub use wait::{PATIENCE, eventually, holds_for};
