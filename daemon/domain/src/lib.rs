//! Decisions about slices: identity, placement, memory, compute, jobs and audit.
//!
//! This crate decides and never acts: it has no clock, files, threads or randomness, and `no_std` enforces
//! that. Time is an argument, and equal inputs give equal results.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod admission;
pub mod compute;
pub mod cordon;
pub mod daemon;
pub mod driver_release;
pub mod event;
pub mod fault;
pub mod id;
pub mod jobs;
pub mod ledger;
pub mod node;
mod number;
pub mod overcommit;
pub mod park;
pub mod placement;
pub mod pod;
pub mod request;
pub mod reserve;
pub mod rotation;
pub mod sharing;
pub mod slice;
pub mod text;
pub mod truth;
pub mod units;
pub mod view;
pub mod word;
