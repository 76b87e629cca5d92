//! `tranche` from the outside: its requests to the daemon, its output and its exit status.
//!
//! The daemon is a script behind the real wire: `tranche.v1` on a unix socket with answers chosen by the test.
#![allow(clippy::unwrap_used)] // a failed unwrap names its line

mod answers;
mod completion;
mod daemon;
mod events;
mod jobs_service;
mod lists;
mod refusals;
mod run;
mod signals;
mod slices;
mod smi;
mod top;
mod tranche;
