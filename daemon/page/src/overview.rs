//! Overview of one node, as the page shows it and as `/api/v1/overview` serves it to other nodes.
//!
//! The JSON form is stable: fields are added and keep their meaning (`docs/page.md`).

use serde::{Deserialize, Serialize};
use tranche_domain::text::visible_within;
use tranche_nodes::NodeFigures;

use crate::limits::{
    BINS_OF_DAY, COLUMNS, LONGEST_NAME, LONGEST_REASON, MOST_BANDS, MOST_GPUS, MOST_PARTS, MOST_PROJECTS,
    MOST_ROWS,
};

/// State of one node at an instant. Times without a unit in their name do not occur.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Overview {
    /// Time of the state by the node's clock.
    pub(crate) time_unix_ms: u64,
    /// Version of the daemon, such as `0.2.0`.
    pub(crate) daemon_version: String,
    /// True if the GPUs are simulated.
    pub(crate) simulated: bool,
    pub(crate) figures: NodeFigures,
    pub(crate) projects: Vec<ProjectRow>,
    /// Jobs with GPUs: running, being created or stopping.
    pub(crate) jobs: Vec<JobRow>,
    /// Jobs and requests for slices that wait, longest first.
    pub(crate) pending: Vec<PendingRow>,
    /// Slices that are no job's.
    pub(crate) slices: Vec<SliceRow>,
    pub(crate) gpus: Vec<GpuRow>,
    /// Absent on nodes without projects, which keep no history.
    pub(crate) allocation: Option<Allocation>,
    /// Rows of the lists above that were left out for length.
    pub(crate) omitted: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProjectRow {
    pub(crate) name: String,
    pub(crate) quota_milligpus: u32,
    pub(crate) allocated_milligpus: u32,
    pub(crate) idle_milligpus: u32,
    pub(crate) running: u32,
    pub(crate) pending: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobRow {
    pub(crate) project: String,
    pub(crate) name: String,
    pub(crate) user: String,
    /// State as `tranche list` prints it.
    pub(crate) state: String,
    pub(crate) milligpus: u32,
    /// Time since the first of its running members started.
    pub(crate) run_ms: Option<u64>,
    /// Use of the GPU time that it holds, over the last minute.
    pub(crate) use_percent: Option<u32>,
    /// Time for which all its members have been idle.
    pub(crate) idle_ms: Option<u64>,
    /// NVML indices of its GPUs.
    pub(crate) gpus: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PendingRow {
    /// Absent for a request for a slice.
    pub(crate) project: Option<String>,
    pub(crate) name: String,
    /// Absent for a request, whose user is not published.
    pub(crate) user: Option<String>,
    pub(crate) share: String,
    pub(crate) waiting_ms: u64,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SliceRow {
    pub(crate) name: String,
    /// User, or pod with its namespace and container.
    pub(crate) user: String,
    pub(crate) project: Option<String>,
    pub(crate) milligpus: u32,
    /// True while its part of its GPUs is free for others.
    pub(crate) parked: bool,
    /// Time since it was created.
    pub(crate) age_ms: u64,
    pub(crate) use_percent: Option<u32>,
    pub(crate) idle_ms: Option<u64>,
    /// NVML indices of its GPUs.
    pub(crate) gpus: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GpuRow {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) used_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) use_percent: Option<u32>,
    pub(crate) temperature_celsius: Option<u32>,
    /// Reason for which no further slice is placed there.
    pub(crate) closed: Option<String>,
    /// Number of processes on it that are in no slice.
    pub(crate) foreign: u32,
    pub(crate) parts: Vec<PartRow>,
    /// Mean use of each ten minutes of the last day in percent, oldest first; absent where unknown.
    pub(crate) day: Vec<Option<u8>>,
}

/// Part of a GPU that a slice has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PartRow {
    pub(crate) slice: String,
    /// Job with its project, if the slice is a job's.
    pub(crate) job: Option<String>,
    pub(crate) project: Option<String>,
    pub(crate) user: String,
    /// Part of this GPU, in thousandths.
    pub(crate) milligpus: u32,
    /// True while the part is free for others.
    pub(crate) parked: bool,
    pub(crate) idle_ms: Option<u64>,
}

/// Allocated GPUs over time, as means over columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Allocation {
    pub(crate) begin_unix_ms: u64,
    pub(crate) end_unix_ms: u64,
    pub(crate) bands: Vec<Band>,
}

/// Allocation of one project over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Band {
    pub(crate) project: String,
    /// Mean in each column, in thousandths of a GPU.
    pub(crate) milligpus: Vec<u32>,
}

impl Overview {
    /// The same within the bounds of number and length, and with visible text alone.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        let rows = [self.jobs.len(), self.pending.len(), self.slices.len()];
        let over: usize = rows.iter().map(|rows| rows.saturating_sub(MOST_ROWS)).sum();
        self.omitted = self.omitted.saturating_add(u64::try_from(over).unwrap_or(u64::MAX));
        self.jobs.truncate(MOST_ROWS);
        self.pending.truncate(MOST_ROWS);
        self.slices.truncate(MOST_ROWS);
        self.projects.truncate(MOST_PROJECTS);
        self.gpus.truncate(MOST_GPUS);
        name(&mut self.daemon_version);
        self.projects.iter_mut().for_each(|project| name(&mut project.name));
        for job in &mut self.jobs {
            [&mut job.project, &mut job.name, &mut job.user, &mut job.state].into_iter().for_each(name);
            job.gpus.truncate(MOST_GPUS);
        }
        for pending in &mut self.pending {
            [&mut pending.name, &mut pending.share].into_iter().for_each(name);
            pending.project.iter_mut().chain(&mut pending.user).for_each(name);
            reason(&mut pending.reason);
        }
        for slice in &mut self.slices {
            [&mut slice.name, &mut slice.user].into_iter().for_each(name);
            slice.project.iter_mut().for_each(name);
            slice.gpus.truncate(MOST_GPUS);
        }
        self.gpus.iter_mut().for_each(GpuRow::bound);
        self.allocation.iter_mut().for_each(Allocation::bound);
        self
    }
}

impl GpuRow {
    fn bound(&mut self) {
        name(&mut self.name);
        self.closed.iter_mut().for_each(reason);
        self.parts.truncate(MOST_PARTS);
        for part in &mut self.parts {
            [&mut part.slice, &mut part.user].into_iter().for_each(name);
            part.project.iter_mut().for_each(name);
            // Both parts of `PROJECT/NAME`.
            part.job.iter_mut().for_each(|job| shorten(job, 2 * LONGEST_NAME));
        }
        self.day.truncate(BINS_OF_DAY);
        self.day.iter_mut().flatten().for_each(|percent| *percent = (*percent).min(100));
    }
}

impl Allocation {
    fn bound(&mut self) {
        self.bands.truncate(MOST_BANDS + 1);
        for band in &mut self.bands {
            name(&mut band.project);
            band.milligpus.truncate(COLUMNS);
        }
    }
}

fn name(text: &mut String) {
    shorten(text, LONGEST_NAME);
}

fn reason(text: &mut String) {
    shorten(text, LONGEST_REASON);
}

fn shorten(text: &mut String, most: usize) {
    *text = visible_within(text, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_another_node_is_cut() {
        let job = JobRow { name: "\u{202e}".repeat(5000), gpus: vec![1; 5000], ..JobRow::default() };
        let day = vec![Some(255); 5000];
        let gpu = GpuRow { parts: vec![PartRow::default(); 5000], day, ..GpuRow::default() };
        let bands = vec![Band { milligpus: vec![1; 5000], ..Band::default() }; 5000];
        let flood = Overview {
            jobs: vec![job; 5000],
            gpus: vec![gpu; 100],
            allocation: Some(Allocation { bands, ..Allocation::default() }),
            ..Overview::default()
        };
        let bounded = flood.bounded();
        assert_eq!((bounded.jobs.len(), bounded.omitted), (MOST_ROWS, 4500));
        assert!(bounded.jobs[0].name.is_ascii() && bounded.jobs[0].name.len() <= LONGEST_NAME);
        assert_eq!((bounded.gpus[0].parts.len(), bounded.gpus[0].day[0]), (MOST_PARTS, Some(100)));
        let longest = bounded.allocation.unwrap().bands.iter().map(|band| band.milligpus.len()).max();
        assert_eq!(longest, Some(COLUMNS));
    }

    #[test]
    fn unknown_fields_are_ignored_and_absent_ones_empty() {
        let read: Overview = serde_json::from_str("{\"later\": 1, \"figures\": {\"gpus\": 2}}").unwrap();
        assert_eq!(read.figures.gpus, 2);
        assert_eq!(read.allocation, None);
    }
}
