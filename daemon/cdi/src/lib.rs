//! CDI documents (Container Device Interface) for slices.
//!
//! [`NodeSpec`] reads the file of NVIDIA's tool about the node's GPUs, or [`NodeFindings`] holds what was found
//! without it; [`FactSource`] is either and yields [`Facts`]. [`Injection`] combines facts and a slice into the
//! document for container runtimes.
//!
//! Laws: this crate is pure, and its output is deterministic, byte for byte. A document for part of a GPU
//! contains the driver's own libcuda and NVML under their alternative names only.
//!
//! Sources of the format: specification and validation in `cncf-tags/container-device-interface` (`SPEC.md`,
//! `pkg/parser`, `pkg/cdi/container-edits.go`, `specs-go/config.go`); of the content of a node's file,
//! `pkg/nvcdi` and `cmd/nvidia-cdi-hook` in `NVIDIA/nvidia-container-toolkit`.
#![forbid(unsafe_code)]

mod check;
mod document;
mod error;
mod facts;
mod found;
mod hooks;
mod library;
pub mod names;
mod node;
mod source;
pub mod spec;

pub use document::{Injection, Preload, SOCKET_FOLDER, Shim};
pub use error::{BadSpec, CdiFault};
pub use facts::{Facts, LibraryFile};
pub use found::{FoundLibrary, NodeFindings};
pub use library::GovernedLibrary;
pub use node::{CdiGpu, NodeSpec};
pub use source::FactSource;
