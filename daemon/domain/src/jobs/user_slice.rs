//! Slices that users have without a job or wait for, and their ids among those of jobs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::job::JobId;
use super::name::ProjectName;
use super::size::Size;
use crate::compute::Latency;
use crate::id::{GpuUuid, SliceName};

/// A slice of a user that no job owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSlice {
    /// Name, unique on the node.
    pub name: SliceName,
    /// Uid of the user whose request made it.
    pub owner_uid: u32,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Project that the slice counts for. The default one if it has none, or one that was deleted.
    pub project: Option<ProjectName>,
    /// GPUs of the slice.
    pub gpus: Vec<GpuUuid>,
    /// Part of each GPU, the larger of memory and compute; whole GPUs for several.
    pub size: Size,
    /// Longest wait for the GPU that the slice should have within its share, if any.
    pub latency: Option<Latency>,
}

/// A user's request for a slice that waits for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRequest {
    /// Number, unique among the requests of a daemon; less than 2^62.
    pub number: u64,
    /// Project that the slice will count for, as that of a [`UserSlice`].
    pub project: Option<ProjectName>,
    /// Part of one GPU, or whole GPUs.
    pub size: Size,
    /// Longest wait for the GPU that the slice should have within its share, if any.
    pub latency: Option<Latency>,
}

/// First id of slices, beyond those of all jobs.
const FIRST_SLICE: u64 = 1 << 63;
/// First id of requests, beyond those of all slices.
const FIRST_REQUEST: u64 = 3 << 62;

/// Users' slices that the scheduler counts.
#[derive(Clone, Debug, Default)]
pub(super) struct UserSlices {
    pub(super) ids: BTreeMap<SliceName, JobId>,
    pub(super) slices: BTreeMap<JobId, UserSlice>,
    made: u64,
    pub(super) requests: BTreeMap<JobId, UserRequest>,
}

impl UserSlices {
    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(slice) = self.slices.remove(&id) {
            self.ids.remove(&slice.name);
        }
    }

    pub(super) fn insert(&mut self, slice: UserSlice) -> JobId {
        let id = JobId(FIRST_SLICE.saturating_add(self.made));
        self.made = self.made.saturating_add(1);
        self.ids.insert(slice.name.clone(), id);
        self.slices.insert(id, slice);
        id
    }
}

impl JobId {
    /// Tests if the id is that of a user's slice.
    pub(super) const fn is_slice(self) -> bool {
        FIRST_SLICE <= self.0 && self.0 < FIRST_REQUEST
    }

    /// Tests if the id is that of a user's request.
    pub(super) const fn is_request(self) -> bool {
        self.0 >= FIRST_REQUEST
    }

    /// Id of a user's request.
    pub(super) const fn of_request(number: u64) -> Self {
        Self(FIRST_REQUEST.saturating_add(number))
    }
}
