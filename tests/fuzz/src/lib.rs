//! What strangers may send us, as functions of bytes, each with what must hold whatever the bytes are.
//!
//! Laws: a target panics if and only if a promise is broken; the same bytes always do the same; none takes longer
//! for its bytes than reading them does. `cargo test` runs every target over a small corpus and what comes of it by
//! small changes; `make fuzz` hands them to libFuzzer.
#![forbid(unsafe_code)]
// The unit tests of the files it borrows stay where they belong.
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

#[allow(unreachable_pub, reason = "borrowed from a crate that keeps it to itself")]
#[path = "../../../daemon/agent/src/slice_runtime/account.rs"]
mod account;
#[allow(dead_code, unreachable_pub, reason = "borrowed from a crate that keeps it to itself")]
#[path = "../../../daemon/agent/src/shares/change.rs"]
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

/// A target: its name, which is that of its corpus, and itself.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
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
