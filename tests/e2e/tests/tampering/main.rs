//! Attempts of a tenant to exceed its slice: each fails, or causes an event with its evidence.
//!
//! Each is made on a GPU whose other slice is full. That slice has to keep all its memory, can allocate again what it
//! frees, and its cap must not shrink. Some attempts are in other tests: forged pages and foreign sockets in
//! `promises::identity`, and more than forty routes of allocation beyond the cap in `escape`. The time until an attempt
//! is detected is measured on the simulated driver only.
#![forbid(unsafe_code)]

mod attempts;
mod ground;
mod honest;
mod lies;
mod policy;
mod services;
mod strangers;
mod variables;
