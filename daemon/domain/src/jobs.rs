//! Jobs of several projects on one node: whose turn it is, where a job goes, and who has to give what back.
//!
//! Each project has a *quota* of GPUs that it can have whenever it wants them. What nobody wants of that is the
//! *surplus*: whoever has more to do borrows it, in proportion to its *weight*, until it is wanted back.
//!
//! Laws:
//! - What a project runs within its quota is never taken from it. What it borrowed is, by a project that is below its
//!   quota, or that has borrowed less for its weight; then as little as will do.
//! - Interactive jobs last: they stay within the quota and are never taken, whoever asks.
//! - A job is on one island of GPUs, and a fraction on one GPU.
//! - The same board always makes the same moves, and when it has made them it makes no more until something changes.

mod amount;
mod board;
mod choose;
mod claim;
mod decide;
mod floor;
mod job;
mod limits;
mod name;
mod project;
mod reclaim;
mod restore;
mod submission;
mod ticket;
mod view;
mod wait;

pub use amount::{BadAmount, MilliGpus};
pub use board::{Board, Left, Phase, Seat};
pub use decide::Move;
pub use floor::{Floor, Gpu};
pub use job::{Job, JobId, JobRefusal, JobSpec, Kind, MemberId, Size};
pub use limits::{Activity, MOST_JOBS_OF_A_USER, Overdue, permit_another};
pub use name::{JobName, ProjectName};
pub use project::{Affinity, Project, ProjectRefusal};
pub use restore::Kept;
pub use submission::{BadWarning, Farewell, Launch, ProjectChange, Submission, Terms, Warning};
pub use ticket::{Attested, Greeting, TicketAnswer, TicketAsk, TicketId, TicketRequest};
pub use view::{JobState, JobView, MemberView, ProjectView};
pub use wait::Wait;

#[cfg(test)]
mod tests;
