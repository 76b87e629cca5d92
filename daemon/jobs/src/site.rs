//! What a desk of jobs needs of the node that it is on.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use nix::sys::signal::Signal;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{Gpu, MemberId, Size};
use tranche_domain::slice::ProcessId;

use crate::clock::Reading;
use crate::entry::Owner;

/// A member's slice. One of the same name that somebody else made is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSlice {
    /// Its name.
    pub name: SliceName,
    /// Whom it is made for.
    pub member: MemberId,
}

/// The node: its GPUs, slices and processes.
pub trait Site: Send + Sync + 'static {
    /// The GPUs, and what of each is not for jobs: slices other than those of these members, or all of it where it takes
    /// none.
    fn gpus(&self, members: &BTreeSet<MemberId>) -> Vec<Gpu>;

    /// Makes a member's slice.
    ///
    /// # Errors
    /// Why not, for a person.
    fn open(&self, slice: &JobSlice, size: Size, gpus: &[GpuUuid], owner: Owner) -> Result<(), String>;

    /// The slice of that name is the member's, unless it was made for another.
    fn claim(&self, slice: &JobSlice);

    /// Lets a process and its descendants into a slice; returns their environment with what leads them there.
    ///
    /// # Errors
    /// Why not, for a person.
    fn enter(
        &self,
        slice: &JobSlice,
        process: ProcessId,
        environment: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, String>;

    /// Ends a member's slice and everybody in it, and returns when it is gone, or there was none; one of that name that was
    /// not made for the member stays as it is.
    fn close(&self, slice: &JobSlice) -> impl Future<Output = ()> + Send;

    /// Returns when a process has ended.
    fn ended(&self, process: ProcessId) -> impl Future<Output = ()> + Send;

    /// Tells a process something, unless it has ended.
    fn signal(&self, process: ProcessId, signal: Signal);

    /// For how long a slice has used no GPU time.
    fn idle(&self, slice: &SliceName) -> Duration;

    /// What the clocks of the machine show.
    fn clocks(&self) -> Reading {
        Reading::now()
    }

    /// Something that an operator should know.
    fn note(&self, note: String);

    /// It is so no more.
    fn withdraw(&self, note: &str);

    /// Something that belongs into the event history.
    fn record(&self, happening: Happened);
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// What.
    pub what: What,
    /// The member's slice.
    pub slice: SliceName,
    /// What there is to say.
    pub evidence: String,
}

/// Kinds of happenings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A member was started.
    Started,
    /// A member was told to leave for another.
    Preempted,
    /// A member was told to leave for having run, or been idle, for too long.
    Overdue,
    /// A member came to a good end.
    Succeeded,
    /// A member ended in another way.
    Failed,
}
