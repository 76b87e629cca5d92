//! What a container needs for a slice, in the words of the Container Device Interface (CDI).
//!
//! [`NodeSpec`] reads what NVIDIA's tool wrote about the node's GPUs, or [`Found`] lists what was found without it;
//! a [`Source`] is either and gives [`Facts`]. [`Injection`] makes of facts and a slice the document that container runtimes read.
//!
//! Laws: nothing here touches a file or asks the machine; the same input gives the same document, byte for byte. In a
//! document for part of a GPU, the driver's own libcuda and NVML are nowhere but under their other names.
//!
//! Source of the format: the specification and its checks in `cncf-tags/container-device-interface` (`SPEC.md`,
//! `pkg/parser`, `pkg/cdi/container-edits.go`, `specs-go/config.go`); of what a node's file says, `pkg/nvcdi` and
//! `cmd/nvidia-cdi-hook` in `NVIDIA/nvidia-container-toolkit`.
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

pub use document::{Injection, Preload, Shim};
pub use error::{BadSpec, Fault};
pub use facts::{Driver, Facts};
pub use found::{Found, FoundLibrary};
pub use library::Governed;
pub use node::{Gpu, NodeSpec};
pub use source::Source;
