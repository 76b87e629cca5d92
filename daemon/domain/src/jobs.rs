//! Quota scheduling of jobs of several projects on the GPUs of one node.
//!
//! Each project has a *quota* of GPUs that is available to it at any time. Quota that is not in use is the
//! *surplus*. Projects borrow from it in proportion to their *weights*, until the owners of the quota need
//! it.
//!
//! Laws:
//! - What a project runs within its quota is never preempted. What it borrowed is preempted by a project that
//!   is below its quota or has borrowed less for its weight, and then by the smallest sufficient amount.
//! - Non-preemptible interactive jobs stay within the quota and are never preempted.
//! - Slices that users have without a job count for their project like its jobs. Those beyond its quota end for a job
//!   that is within its own.
//! - All GPUs of one job member are on one island; a fraction is on one GPU.
//! - The members of a gang start, return and leave together.
//! - A member counts for at least what its slice takes of each GPU, the larger of memory and compute.
//! - Decisions are deterministic and final: until the input changes, a second decision is empty.

mod amount;
mod binding;
mod blocked;
mod combinations;
mod container;
mod decision;
mod forecast;
mod gang;
mod host_limits;
mod job;
mod limits;
mod name;
mod parked;
mod part;
mod pool;
mod preemption;
mod project;
mod refusal;
mod report;
mod reservation;
mod restore;
mod scheduler;
mod service;
mod size;
mod sizing;
mod submission;
mod ticket;
mod user_slice;
mod user_slices;
mod view;
mod wait;

pub use amount::{BadAmount, MilliGpus};
pub use container::{BadContainer, ContainerMount, ContainerSpec, ImageName, PublishedPort, PullPolicy};
pub use decision::Action;
pub use forecast::{MemberProgress, QueuePosition, RuntimeRange, StartRange};
pub use host_limits::{BadCpus, Cpus, HostLimits};
pub use job::{Job, JobId, JobKind, JobSpec, MemberId};
pub use limits::{BadTimeLimit, MemberActivity, Overdue, time_limit};
pub use name::{JobName, ProjectName};
pub use part::{BadMemberPart, MemberPart};
pub use pool::{GpuPool, PoolGpu};
pub use project::{Affinity, IdlePolicy, Project, ProjectRefusal};
pub use refusal::{JobRefusal, MOST_JOBS_OF_A_USER, permit_another};
pub use report::{Report, ReportKey, ReportQuery, ReportRow};
pub use restore::SavedBinding;
pub use scheduler::{Binding, Exit, Phase, QuotaScheduler};
pub use service::{BadHealthCheck, HealthCheck, HealthTarget, ServiceSpec};
pub use size::Size;
pub use submission::{
    BadWarning, JobTerms, LaunchSpec, ProjectChange, Submission, TerminationPolicy, Warning,
};
pub use ticket::{Attested, Greeting, TicketAnswer, TicketAsk, TicketId, TicketRequest};
pub use user_slice::{UserRequest, UserSlice};
pub use view::{JobState, JobView, MemberView, ProjectView};
pub use wait::{CordonedGpu, Holder, Wait, WantedRoom};

#[cfg(test)]
mod tests;
