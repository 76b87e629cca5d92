//! `tranche-page`: an overview of one or several nodes for a browser.
//!
//! Laws:
//! - It is a client of the daemon that may only look, and its server answers `GET` and `HEAD` alone.
//! - Text of the daemon and of other nodes is untrusted: it is bounded, made visible, and escaped in one place
//!   (`element.rs`); no script contains it.
//! - A slow or hostile viewer, and a node that does not answer, delay no other viewer.
//! - Nothing leaves it that a user without rights could not list on the node: no command, folder, address or token.
#![forbid(unsafe_code)]

mod board;
mod cli;
mod colour;
mod columns;
mod daemon;
mod element;
mod gather;
mod guard;
mod limits;
mod nodes;
mod overview;
mod refresh;
mod render;
mod routes;
#[cfg(test)]
#[path = "tests/sample.rs"]
mod sample;
mod serve;
mod time;
mod usage;
mod users;

pub use cli::main;
