//! Shares of GPU time by virtual time.
//!
//! From the [`ComputeTerms`] of each slice and from observations of it ([`Observed`]) the arbiter decides on leases ([`LeaseDecision`]). It
//! acts on nothing and measures nothing; every moment is an argument.

mod arbiter;
mod charge;
mod gpu;
mod history;
mod latency;
mod member;
mod priority;
mod rules;
mod terms;
mod time;
mod turns;
mod verdict;

pub use arbiter::Arbiter;
pub use latency::{BadLatency, Latency, Waits};
pub use priority::{BadPriority, Priority};
pub use rules::Rules;
pub use terms::{
    ComputeMode, ComputeTerms, Decision, Gang, GangName, LeaseDecision, NextLease, Observed, Why, Window,
};
pub use time::{Instant, Nanos};
