//! The compute arbiter against models of tenants, in virtual time.
//!
//! Laws:
//! - The judge is [`simgpu::law`], which knows neither the arbiter nor what tenants report.
//! - The arbiter is the daemon's own; it sees only what a daemon would see, as late as a daemon would.
//! - Nothing here reads a clock: the same setup gives the same history, on every machine.
#![forbid(unsafe_code)]

mod gate;
mod host;
pub mod ideal;
mod load;
mod report;
mod setup;
mod world;

pub use load::{Chance, Lengths, Load};
pub use report::Report;
pub use setup::{Action, Delays, GPU_RULES, Policy, Program, Setup, Tenant, fair, gpu, name, permille};
pub use world::run;

/// One microsecond, in the unit of the arena.
pub const US: u64 = 1_000;
/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One second.
pub const S: u64 = 1_000_000_000;
