//! The daemon's gRPC interface, and the one place where wire messages become domain values.
//!
//! Law: behind `convert` and `view`, nothing sees a protobuf message of a request; in front of it, nothing decides.
#![forbid(unsafe_code)]

mod bad_message;
mod client;
mod connect;
mod convert;
mod cordon;
mod daemon;
mod event;
mod jobs;
mod mirror;
mod view;

pub use bad_message::BadMessage;
pub use client::{Daemon, DaemonError};
pub use connect::{ConnectError, OPERATORS, connect, connect_to_jobs};
pub use jobs::{JobListing, ProjectWish};

/// Key of a status's metadata: the same request can succeed later without a change to it.
pub const MAY_PASS: &str = "tranche-may-pass";

/// The generated messages and services of `tranche.v1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("tranche.v1");
}
