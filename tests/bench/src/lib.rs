//! Parts that all benches share: nodes to measure on, measured programs and reports.
//!
//! Laws:
//! - Values that are compared are measured in turns, in one run.
//! - A claim that does not hold makes the bench fail, unless the measurement cannot decide it: then it is reported.
#![forbid(unsafe_code)]

pub mod awake;
pub mod client;
pub mod cpu;
pub mod hogs;
pub mod interrupt;
pub mod node;
pub mod options;
pub mod report;
pub mod stage;
pub mod stats;
pub mod variant;

/// Result whose error is a message for the user.
pub type Result<T> = std::result::Result<T, String>;
