//! What all benches share: nodes to measure on, programs that are measured, and reports.
//!
//! Laws:
//! - Whatever is compared is measured in turns, in one run.
//! - A claim that does not hold makes the bench fail, unless what was measured cannot decide it: then it is reported.
#![forbid(unsafe_code)]

pub mod client;
pub mod interrupt;
pub mod node;
pub mod options;
pub mod report;
pub mod stage;
pub mod stats;
pub mod variant;

/// What goes wrong, in words.
pub type Result<T> = std::result::Result<T, String>;
