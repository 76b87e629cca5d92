//! Slices as devices of the kubelet: what is offered, what may be given to whom, and when it comes back.
//!
//! Law: everything is decided by the modules that never act (`allocate`, `bundle`, `device`, `health`, `offer`, `prefer`,
//! `profile`, `release`): no clock, no socket, no randomness; time is an argument, and the same inputs always
//! give the same answer. The others ask the daemon and the kubelet, and do what was decided.
#![forbid(unsafe_code)]

pub mod allocate;
pub mod bundle;
pub mod config;
pub mod device;
pub mod health;
pub mod offer;
pub mod prefer;
pub mod profile;
pub mod release;

mod attendant;
mod book;
pub mod cli;
mod daemon;
mod desk;
mod directory;
mod endpoint;
mod features;
mod figures;
mod kubernetes;
mod news;
mod pods;
mod reporter;
pub mod serve;
mod service;
mod shown;
mod socket;

#[cfg(test)]
mod testing;
