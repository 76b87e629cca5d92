//! `tranche` from the outside: what it asks a daemon for, what it prints, how it ends.
//!
//! The daemon is a script behind the real wire: `tranche.v1` on a unix socket with answers chosen by the test.
#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod answers;
mod daemon;
mod events;
mod refusals;
mod run;
mod signals;
mod slices;
mod smi;
mod tranche;
