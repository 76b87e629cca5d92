//! Four teams on sixteen GPUs: they borrow what is idle, give it back, and divide what is left over.
//!
//! Laws:
//! - The daemon is `tranched`, and everything is asked of it by `tranche`, as people do.
//! - Who ran when is told by the jobs themselves, in files of their own; the daemon is never asked for that.
#![forbid(unsafe_code)]
// A harness fails a test by panicking, with a sentence.
#![allow(clippy::missing_panics_doc)]

pub mod claims;
pub mod runs;
pub mod scenario;
pub mod seen;
pub mod world;
