//! Slices as devices of the kubelet: what is offered, what may be given to whom, and when it comes back.
//!
//! Law: only [`config`] reads a file. Everything else decides on what it is handed and never acts: no clock, no
//! socket, no randomness; time is an argument, and the same inputs always give the same answer.
#![forbid(unsafe_code)]

pub mod allocate;
pub mod config;
pub mod device;
pub mod health;
pub mod offer;
pub mod prefer;
pub mod profile;
pub mod release;

#[cfg(test)]
mod testing;
