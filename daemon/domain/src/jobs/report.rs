//! Reports of GPU use, as plain data.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::name::ProjectName;
use crate::id::GpuUuid;

/// Grouping of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportKey {
    /// One group for each project.
    #[default]
    Project,
    /// One group for each user.
    User,
    /// One group for each job and each slice without a job.
    Job,
    /// One group for each GPU.
    Gpu,
}

/// Request for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportQuery {
    /// Begin, in milliseconds since the Unix epoch; the hour that contains it is included in full.
    pub since_unix_ms: u64,
    /// End, in milliseconds since the Unix epoch; the hour that contains it is included in full.
    pub until_unix_ms: u64,
    /// Grouping of the rows.
    pub by: ReportKey,
    /// Hours of each period; zero for a single one.
    pub step_hours: u32,
}

/// GPU use of a time, in rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Begin of the first hour that is included, in milliseconds since the Unix epoch.
    pub from_unix_ms: u64,
    /// End of the report, in milliseconds since the Unix epoch.
    pub until_unix_ms: u64,
    /// Rows in order of time and group; groups without use are absent.
    pub rows: Vec<ReportRow>,
}

/// Use of GPUs by a group in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReportRow {
    /// Begin of the period, in milliseconds since the Unix epoch.
    pub from_unix_ms: u64,
    /// Project, if the rows are of projects or jobs; `None` on a node without projects, and for pods.
    pub project: Option<ProjectName>,
    /// Uid of the owner, if the rows are of users or jobs.
    pub uid: Option<u32>,
    /// Name of the job, `slice:NAME` or `pod:NAMESPACE/NAME`, if the rows are of jobs.
    ///
    /// Empty for all beyond the number of names that an hour may have.
    pub name: Option<String>,
    /// UUID of the GPU, if the rows are of GPUs.
    pub gpu: Option<GpuUuid>,
    /// Thousandths of a GPU times milliseconds that were held.
    pub allocated_milligpu_ms: u64,
    /// Of those, held without use for so long that the slice counted as idle.
    pub idle_milligpu_ms: u64,
    /// Of those, held beyond the project's quota.
    pub borrowed_milligpu_ms: u64,
    /// GPU time used, in microseconds.
    pub used_us: u64,
    /// Starts of members of jobs.
    pub starts: u64,
    /// Preemptions of members of jobs and of slices.
    pub preemptions: u64,
    /// Number of first starts of members.
    pub waits: u64,
    /// Median of the waits for these, in milliseconds, at most an eighth too long.
    pub wait_median_ms: Option<u64>,
    /// The wait that 95 % of them do not exceed, in milliseconds, at most an eighth too long.
    pub wait_p95_ms: Option<u64>,
}
