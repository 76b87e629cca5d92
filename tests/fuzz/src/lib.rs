//! Targets for untrusted input: functions of bytes, each with the laws that hold for all bytes.
//!
//! Laws: a target panics if and only if a promise is broken; the same bytes always have the same result; none takes
//! longer than in proportion to its bytes. `cargo test` runs every target over a small corpus and over small changes of
//! it; `make fuzz` passes them to libFuzzer.
#![forbid(unsafe_code)]
// The unit tests of the borrowed files run in the crates that own them.
#![cfg(not(test))]

mod container;
mod daemon;
mod files;
mod input;
mod ledger;
mod node;
mod policy;
mod regions;
mod text;
mod wire;

#[allow(dead_code, unreachable_pub, reason = "borrowed from a crate that keeps it to itself")]
#[path = "../../../daemon/slices/src/slice_runtime/account.rs"]
mod account;
#[allow(dead_code, unreachable_pub, reason = "borrowed from a crate that keeps it to itself")]
#[path = "../../../daemon/slices/src/shares/change.rs"]
mod change;
#[allow(dead_code, unreachable_pub, reason = "borrowed from a crate that keeps it to itself")]
#[path = "../../../daemon/telemetry/src/events/file.rs"]
mod event_file;
#[allow(dead_code, unreachable_pub, reason = "borrowed from a crate that keeps it to itself")]
#[path = "../../../daemon/agent/src/state.rs"]
mod state;

pub use container::container;
pub use daemon::conversation;
pub use files::{event_log, shares};
pub use ledger::ledger;
pub use node::node;
pub use policy::policy;
pub use regions::regions;
pub use text::{configuration, names, plugin_configuration, state_file};
pub use wire::{jobs, messages, rpc};

/// A target: its name, which is that of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Targets, sorted by name.
pub const TARGETS: &[Target] = &[
    ("configuration", configuration),
    ("container", container),
    ("conversation", conversation),
    ("event_log", event_log),
    ("jobs", jobs),
    ("ledger", ledger),
    ("messages", messages),
    ("names", names),
    ("node", node),
    ("plugin_configuration", plugin_configuration),
    ("policy", policy),
    ("regions", regions),
    ("rpc", rpc),
    ("shares", shares),
    ("state_file", state_file),
];
