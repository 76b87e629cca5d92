//! `tranche demo` and `tranche play`: two programs share one GPU, or a shell has a node of its own.
//!
//! Law: it uses public interfaces only. It starts a daemon in a private folder, runs programs through `tranche
//! run`, and takes its measurements from the daemon's socket and from NVML outside the slices.
#![forbid(unsafe_code)]

mod claims;
mod error;
mod ground;
mod interrupt;
mod lab;
mod narrator;
mod observer;
mod owned;
mod parts;
mod play;
mod story;
mod sweep;
mod talk;
mod tenant;

pub use error::DemoError;
pub use play::play;
pub use story::run;
