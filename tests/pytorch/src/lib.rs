//! PyTorch and JAX as tenants of simulated GPUs: installation, and what two trainings show.
//!
//! Kernels take time and compute nothing. Each training has a small problem beside them whose weights live on the
//! device and whose arithmetic the host does, so that its loss is a true one.
#![forbid(unsafe_code)]
// A harness fails by a panic whose message is a sentence.
#![allow(clippy::missing_panics_doc)]

pub mod drawing;
pub mod installed;
pub mod machine;
pub mod trainee;
pub mod watcher;
