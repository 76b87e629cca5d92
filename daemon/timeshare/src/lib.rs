//! Scheduling of GPU time. Drives the scheduler of `tranche-domain` with the wakeups and compute records of slices.
//!
//! A dedicated thread sleeps until a slice signals, a slice changes, or the scheduler's next decision is due; it
//! reads the compute records of slices that may need a decision, and publishes the leases that change. While all
//! slices are idle it wakes only for the heartbeat.
#![forbid(unsafe_code)]

mod account;
pub mod check;
mod governor;
mod handle;
mod measured;
mod member;
mod rounds;
mod site;
mod used;
mod wakeups;

pub use account::Account;
pub use governor::{Governor, RunningGovernor, Shown, TECHNIQUE};
pub use rounds::Rounds;
pub use site::SliceSite;
pub use used::Readings;
