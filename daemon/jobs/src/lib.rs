//! Jobs of several projects on one node: kept, started, watched, stopped and begun again.
//!
//! Laws:
//! - Whose turn it is, where a job goes and who gives what back is decided by [`tranche_domain::jobs`]; here it is done.
//! - Nothing is done before it is kept: a daemon that dies at any instruction leaves a store from which the next one goes
//!   on, and no job runs twice or is lost.
//! - A member of a job is looked after by a process of its own, the *shepherd*, which runs as the user who submitted it,
//!   outlives the daemon, and writes down how it ended.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod desk;
mod entry;
mod error;
pub mod flock;
mod folder;
mod history;
mod launch;
mod life;
mod picture;
mod recover;
pub mod reserve;
mod retain;
mod round;
mod site;
mod state;
mod store;

pub use clock::Reading;
pub use desk::{Asker, Desk};
pub use entry::Owner;
pub use error::{DeskError, OpenError};
pub use history::Point;
pub use launch::Launcher;
pub use picture::{LogFrom, LogPart, Standing};
pub use retain::Retention;
pub use site::{Happened, JobSlice, Site, What};
pub use store::StoreError;
