//! Faults of a node while tenants work, and counts of what is lost.
//!
//! Laws:
//! - The daemon is `tranched`, by its own command line; the tenants are programs with the shim preloaded, on the
//!   simulated driver. Neither links to the other.
//! - The slices that must exist after each fault are kept in a separate book ([`book::Book`]), from the changes that
//!   were requested and answered. The memory that processes hold is read from the devices.
//! - A fault that did not occur proves nothing: each part counts its faults, and claims that there were enough.
#![forbid(unsafe_code)]

pub mod book;
pub mod campaign;
mod client;
mod clock;
mod cycles;
mod flood;
pub mod full;
mod kills;
mod lost;
mod outcome;
mod parks;
pub mod points;
mod preemptions;
mod toll;
mod torn;
mod world;
