//! Job controller: saves, starts, watches, stops and restarts the jobs of a node.
//!
//! Laws:
//! - [`tranche_domain::jobs`] decides about order, placement and preemption; this crate carries that out.
//! - Each decision is saved before it is carried out: after a crash at any instruction the next daemon
//!   continues from the store, and no job runs twice or is lost.
//! - Each member of a job is supervised by a *job runner* (`tranche-shepherd`), a process that runs as the
//!   submitter, outlives the daemon, and records the outcome.
#![forbid(unsafe_code)]

mod account;
#[cfg(test)]
mod account_tests;
mod after;
pub mod cgroup;
mod claims;
mod clock;
mod controller;
mod error;
mod folder;
mod history;
mod idle;
mod launch;
mod lifecycle;
mod log_budget;
mod member_view;
mod outlook;
mod parking;
mod parts;
mod paused;
mod reconcile;
mod record;
mod report;
mod requester;
pub mod reserve;
mod restart;
mod restore;
mod retain;
pub mod runner_protocol;
mod sight;
mod site;
mod state;
mod stopping;
mod store;
mod views;

pub use account::{GpuHolder, UseSum};
pub use claims::JobClaims;
pub use clock::ClockReading;
pub use controller::JobController;
pub use error::{JobsError, OpenError};
pub use history::Point;
pub use launch::Launcher;
pub use record::JobOwner;
pub use requester::Requester;
pub use retain::Retention;
pub use site::{
    Happened, JobCondition, JobSite, JobSlice, NodeUse, Preemption, SliceUse, UnparkFailure, UserDemand, What,
};
pub use store::StoreError;
pub use views::{LogFrom, LogPart, ProjectStanding};
