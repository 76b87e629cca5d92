//! Figures for whoever scrapes them, and whether a program lives and is ready, over HTTP.
//!
//! Laws:
//! - Whoever asks changes nothing, and learns nothing that the program does not publish.
//! - No source of connections can make the program wait or grow, or keep others out: each has so many at a time, so long
//!   each; those that ask nothing make room; and nothing of a request is kept.
//! - What is not configured is not served, and what the network can reach is said in the log.
#![forbid(unsafe_code)]

mod address;
mod format;
mod listener;
mod neighbours;
mod page;
mod places;
mod probe;
mod serve;
mod shared;

use std::fmt;

pub use address::{Address, BadAddress};
pub use listener::{ListenError, Listener};
pub use page::{Labels, Page};
pub use probe::{ProbeError, ask};
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use serve::serve;

/// A program that can be asked. Each question may block for as long as a look at the program takes.
pub trait Figures: fmt::Debug + Send + Sync + 'static {
    /// Writes every figure, each time all of them.
    ///
    /// # Errors
    /// Those of the page.
    fn write(&self, page: &mut Page<'_>) -> fmt::Result;

    /// Whether the program works, else why it should be started anew.
    ///
    /// # Errors
    /// The reason, for people.
    fn alive(&self) -> Result<(), String>;

    /// What is to be said of a program that works all the same.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Whether the program does what it is there for, else what it waits for.
    ///
    /// # Errors
    /// The reason, for people.
    fn ready(&self) -> Result<(), String>;
}
