//! The compute arbiter and the gate against programs, in virtual time.
//!
//! Laws:
//! - The judge is [`simgpu::law`], which knows neither the arbiter nor what tenants report.
//! - What decides is what runs elsewhere: the daemon's rounds and its arbiter, and the library's gate over words of
//!   shared memory. They see only what they would see there, as late as they would.
//! - Nothing here reads a clock: the same setup gives the same history, on every machine.
#![forbid(unsafe_code)]

mod chance;
mod driver;
mod game;
pub mod ideal;
mod lies;
mod load;
mod program;
mod report;
mod setup;
mod world;
pub mod zoo;

pub use chance::Chance;
pub use driver::{Clock, Driver};
pub use game::run;
pub use lies::{Lie, Lies, STRATEGIES, write};
pub use load::{Lengths, Load};
pub use report::Report;
pub use setup::{Action, Delays, GPU_RULES, Policy, Program, Setup, Tail, Tenant, fair, gpu, name, permille};

/// One microsecond, in nanoseconds.
pub const US: u64 = 1_000;
/// One millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;
/// One second, in nanoseconds.
pub const S: u64 = 1_000_000_000;
