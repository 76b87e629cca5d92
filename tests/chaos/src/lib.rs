//! Does to a node what goes wrong in life, while tenants work, and counts what is lost.
//!
//! Laws:
//! - The daemon is `tranched`, by its own command line; the tenants are programs with the shim preloaded, on the
//!   simulated driver. Nobody links to the other.
//! - What must be there after each blow is kept in a book of our own ([`book::Book`]), which never asks the daemon what it
//!   ought to say. What is held is asked of the devices.
//! - A blow that did not fall proves nothing: each part counts its blows, and claims that there were enough.
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
pub mod points;
mod toll;
mod torn;
mod world;
