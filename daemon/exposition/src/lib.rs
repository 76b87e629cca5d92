//! Metrics, liveness and readiness over HTTP.
//!
//! Laws:
//! - Requests change nothing, and reveal nothing that the program does not publish.
//! - No source of connections can block the program, exhaust its memory or lock out others: the number and
//!   duration of connections of each source are limited, idle connections are evicted, and nothing of a
//!   request is kept.
//! - An endpoint is served only if configured, and exposure to the network is logged.
#![forbid(unsafe_code)]

mod address;
mod figures;
mod format;
mod listener;
mod neighbours;
mod page;
mod places;
mod probe;
mod serve;
mod shared;

pub use address::{Address, BadAddress};
pub use figures::Figures;
pub use listener::{BoundListener, ListenError};
pub use page::{Labels, MetricsPage};
pub use places::{ConnectionPlace, PeerSource, Places, Question, Questions};
pub use probe::{ProbeError, ask};
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::Histogram;
pub use serve::serve;
