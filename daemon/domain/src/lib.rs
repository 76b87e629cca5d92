//! What a slice is, where it goes and what it may hold.
//!
//! Law of this crate: it decides, it never acts. There is no clock, no file, no thread and no randomness in
//! it; being `no_std`, it cannot reach for them by accident. Time, where it matters, is an argument, and the
//! same inputs always give the same answer.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod compute;
pub mod cordon;
pub mod daemon;
pub mod event;
pub mod fault;
pub mod id;
pub mod jobs;
pub mod ledger;
pub mod node;
pub mod placement;
pub mod pod;
pub mod request;
pub mod reserve;
pub mod sharing;
pub mod slice;
pub mod text;
pub mod truth;
pub mod units;
pub mod view;
pub mod word;
