//! Interface of the job controller to the node.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, ready};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{JobSpec, MemberId, MilliGpus, PoolGpu, ProjectName, UserRequest, UserSlice};
use tranche_domain::slice::ProcessId;

use crate::claims::JobClaims;
use crate::clock::ClockReading;
use crate::record::JobOwner;

/// A member's slice, identified by name and member: a user's slice may have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSlice {
    /// Name of the slice.
    pub name: SliceName,
    /// The member that it is created for.
    pub member: MemberId,
}

/// Slices that users have without a job, and their requests that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserDemand {
    /// Slices, in any order.
    pub slices: Vec<UserSlice>,
    /// Requests that wait for room and that a quota may entitle to it; the oldest first.
    pub requests: Vec<UserRequest>,
}

/// A slice of the node with its use of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceUse {
    /// Name of the slice.
    pub name: SliceName,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Uid of its owner; root for pods.
    pub owner_uid: u32,
    /// Name of the owner, or the uid if it has none.
    pub user: String,
    /// Namespace and name of the pod that the slice is for, as `NAMESPACE/NAME`.
    pub pod: Option<String>,
    /// True if a job's member owns it.
    pub is_jobs: bool,
    /// Its GPUs, with its part of each.
    pub gpus: Vec<(GpuUuid, MilliGpus)>,
    /// GPU time that it has used on each GPU since the daemon admitted it.
    pub used: BTreeMap<GpuUuid, Duration>,
    /// True if it counts as idle.
    pub idle: bool,
}

/// Use of a node's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// All slices, those of jobs and pods included.
    pub slices: Vec<SliceUse>,
    /// GPU time used by slices that ended since the last call.
    pub ended: BTreeMap<(SliceName, GpuUuid), Duration>,
}

/// Treatment of members of jobs that are preempted or suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// They are stopped, and start over.
    Stop,
    /// They are parked where the driver can do that, and continue where they were.
    Park,
}

/// Failure to bring a member's slice back to its GPUs, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnparkFailure {
    /// It is parked as before: its part of the GPUs is free for others.
    Parked(String),
    /// It has its part of the GPUs, and some of its processes are not restored yet.
    OnItsWay(String),
}

/// Operations on the GPUs, slices and processes of a node.
pub trait JobSite: Send + Sync + 'static {
    /// All GPUs, each with the part that is unavailable to jobs.
    /// That part is the slices of pods and of other members than these, or all of a GPU that takes no slices.
    fn gpus(&self, members: &BTreeSet<MemberId>) -> Vec<PoolGpu>;

    /// Slices that users have without a job or a pod, and their waiting requests, at one instant.
    fn user_demand(&self) -> UserDemand;

    /// Use of GPUs by all slices. For a single reader, which enters it in the account.
    fn node_use(&self) -> NodeUse;

    /// Makes the slice of a user's request on these GPUs, if the request still waits.
    fn grant(&self, request: u64, gpus: Vec<GpuUuid>);

    /// Puts the claims of jobs on users' slices in force.
    fn set_claims(&self, claims: JobClaims);

    /// Ends a user's slice with its processes, after SIGTERM and the default grace. Returns once it is gone. A newer
    /// slice of the same name is left alone. The reason is for the slice's owner.
    fn end_user_slice(&self, slice: &UserSlice, reason: String) -> impl Future<Output = ()> + Send;

    /// Creates a slice for a member of a job with this specification.
    ///
    /// # Errors
    /// The reason, for the user.
    fn open(&self, slice: &JobSlice, spec: &JobSpec, gpus: &[GpuUuid], owner: JobOwner)
    -> Result<(), String>;

    /// Assigns a slice without an owner to the member.
    fn claim(&self, slice: &JobSlice);

    /// Admits a process and its descendants to a slice.
    /// Returns `environment` with the variables that attach them.
    ///
    /// # Errors
    /// The reason, for the user.
    fn enter(
        &self,
        slice: &JobSlice,
        process: ProcessId,
        environment: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, String>;

    /// Path of the CDI document of a member's slice, if the node writes documents.
    fn document(&self, _slice: &JobSlice) -> Option<PathBuf> {
        None
    }

    /// Ends a member's slice with its processes, and returns once it is gone. A slice of the same name that
    /// belongs to another owner is left alone.
    fn close(&self, slice: &JobSlice) -> impl Future<Output = ()> + Send;

    /// Treatment of members that have to leave their GPUs for a while.
    fn preemption(&self) -> Preemption;

    /// Moves the device memory of a member's slice to host memory, and frees its part of the GPUs. Returns once that
    /// is done, at once if it was done before.
    ///
    /// # Errors
    /// The reason for which it cannot be parked; the slice is on its GPUs then.
    fn park(&self, slice: &JobSlice) -> impl Future<Output = Result<(), String>> + Send;

    /// Brings a member's slice back to its GPUs; processes that the driver cannot restore are killed. Returns false if it
    /// was not parked.
    ///
    /// # Errors
    /// The reason, with where the slice is. The call may be repeated.
    fn unpark(&self, slice: &JobSlice) -> impl Future<Output = Result<bool, UnparkFailure>> + Send;

    /// Checkpoints those processes of a member that a signal ends, if the driver may have restored them.
    ///
    /// Returns once that is done, so that their end does no harm.
    fn prepare_signal(&self, _slice: &JobSlice, _signal: Signal) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Waits for the end of a process.
    fn ended(&self, process: ProcessId) -> impl Future<Output = ()> + Send;

    /// Signals a process, unless it has ended.
    fn signal(&self, process: ProcessId, signal: Signal);

    /// Time since a slice last used GPU time.
    fn unused(&self, slice: &SliceName) -> Duration;

    /// That time, if it is long enough to count as idle.
    fn idle(&self, slice: &SliceName) -> Option<Duration>;

    /// Readings of the system clocks.
    fn clocks(&self) -> ClockReading {
        ClockReading::now()
    }

    /// Sets a condition for the operator, in place of the one that is set.
    fn set_condition(&self, condition: JobCondition, message: String);

    /// Clears a condition if it is set.
    fn clear_condition(&self, condition: JobCondition);

    /// Records an event in the history.
    fn record(&self, happening: Happened);
}

/// States of jobs that an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobCondition {
    /// Changes cannot be saved, so that no job is started or stopped.
    NotSaved,
    /// Logs cannot be cut to their budgets.
    LogsNotCut,
    /// Something that an earlier daemon stored could not be read; numbered.
    NotRestored(usize),
    /// Jobs of this project are to run on GPUs that the node does not have.
    UnknownGpus(ProjectName),
    /// This slice has not used its GPUs for long, and its project's policy is to alert.
    Idle(SliceName),
    /// The member of this slice cannot be started.
    NotStarted(SliceName),
    /// The member of this slice did not end in time, and is being killed.
    Killed(SliceName),
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Kind of the event.
    pub what: What,
    /// Slice of the member.
    pub slice: SliceName,
    /// Evidence, as a sentence.
    pub evidence: String,
}

/// Kinds of job events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A member was started.
    Started,
    /// A member was preempted.
    Preempted,
    /// A member was stopped at a runtime or idle limit.
    Overdue,
    /// A member ended successfully.
    Succeeded,
    /// A member ended otherwise.
    Failed,
    /// A member ended by itself, and is started again.
    Restarted,
}
