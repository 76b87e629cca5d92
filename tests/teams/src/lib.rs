//! Four teams on sixteen GPUs: they borrow what is idle, give it back, and divide what is left over.
//!
//! Laws:
//! - The daemon is `tranched`, and each request to it is sent by `tranche`, as users send them.
//! - The jobs themselves record when they ran, in files of their own; the daemon is no source for that.
#![forbid(unsafe_code)]
// A harness fails a test by panicking, with a sentence.
#![allow(clippy::missing_panics_doc)]

pub mod claims;
pub mod runs;
pub mod scenario;
pub mod seen;
pub mod world;
