//! Overview of the page's own node, from what its daemon answers.

use std::collections::BTreeMap;

use tranche_domain::id::SliceName;
use tranche_domain::jobs::{JobState, JobView, ProjectView};
use tranche_domain::view::{GpuView, NodeView, SliceDeviceView, SliceView, WaitingView};
use tranche_nodes::NodeFigures;

use crate::daemon::Reading;
use crate::limits::MOST_ROWS;
use crate::overview::{GpuRow, JobRow, Overview, PartRow, PendingRow, ProjectRow, SliceRow};
use crate::usage::DayOfUse;
use crate::users::UserNames;

/// Value of `compute_enforcement` where the daemon counts no GPU time.
const NOT_ENFORCED: &str = "not enforced";

/// Builder of one overview.
struct Gatherer<'a> {
    reading: &'a Reading,
    day: &'a DayOfUse,
    names: &'a mut UserNames,
    now_unix_ms: u64,
    /// Job of each slice that is a job's.
    job_of: BTreeMap<&'a SliceName, &'a JobView>,
    slices: BTreeMap<&'a SliceName, &'a SliceView>,
}

/// Overview of a reading, with names of users.
pub(crate) fn gather(reading: &Reading, day: &DayOfUse, names: &mut UserNames, now_unix_ms: u64) -> Overview {
    let members = reading.jobs.iter().flat_map(|job| job.members.iter().map(move |member| (job, member)));
    let job_of = members.filter_map(|(job, member)| Some((member.slice.as_ref()?, job))).collect();
    let slices = reading.node.slices.iter().map(|slice| (&slice.name, slice)).collect();
    Gatherer { reading, day, names, now_unix_ms, job_of, slices }.overview()
}

impl Gatherer<'_> {
    fn overview(mut self) -> Overview {
        let Reading { node, projects, jobs, allocation } = self.reading;
        let active: Vec<_> = jobs.iter().filter(|job| is_active(job.state)).collect();
        let waiting: Vec<_> = jobs.iter().filter(|job| job.state == JobState::Pending).collect();
        let own: Vec<_> = node.slices.iter().filter(|slice| !self.job_of.contains_key(&slice.name)).collect();
        let omitted = [active.len(), waiting.len() + node.waiting.len(), own.len()];
        let omitted: usize = omitted.iter().map(|rows| rows.saturating_sub(MOST_ROWS)).sum();
        let overview = Overview {
            time_unix_ms: self.now_unix_ms,
            daemon_version: node.daemon_version.clone(),
            simulated: node.simulated,
            figures: figures(node, jobs),
            projects: projects.iter().map(project).collect(),
            jobs: active.into_iter().take(MOST_ROWS).map(|job| self.job(job)).collect(),
            pending: self.pending(&waiting),
            slices: own.into_iter().take(MOST_ROWS).map(|slice| self.slice(slice)).collect(),
            gpus: node.gpus.iter().map(|gpu| self.gpu(gpu)).collect(),
            allocation: allocation.clone(),
            omitted: 0,
        };
        Overview { omitted: u64::try_from(omitted).unwrap_or(u64::MAX), ..overview.bounded() }
    }

    fn since(&self, unix_ms: u64) -> u64 {
        self.now_unix_ms.saturating_sub(unix_ms)
    }

    fn job(&mut self, job: &JobView) -> JobRow {
        let running = job.members.iter().filter(|member| member.state == JobState::Running);
        let started = running.clone().filter_map(|member| member.started_unix_ms).min();
        let slices = running.filter_map(|member| self.slices.get(member.slice.as_ref()?).copied());
        let mut gpus: Vec<u32> = job.members.iter().flat_map(|member| member.gpus.iter().copied()).collect();
        gpus.sort_unstable();
        gpus.dedup();
        JobRow {
            project: job.project.to_string(),
            name: job.name.to_string(),
            state: job.state.to_string(),
            milligpus: job.allocated().get(),
            run_ms: started.map(|started| self.since(started)),
            use_percent: use_percent(&self.reading.node, slices),
            idle_ms: job.idle_ms(),
            gpus,
            user: self.names.of(job.uid),
        }
    }

    fn pending(&mut self, jobs: &[&JobView]) -> Vec<PendingRow> {
        let mut rows: Vec<_> = jobs.iter().map(|job| self.pending_job(job)).collect();
        rows.extend(self.reading.node.waiting.iter().map(|request| self.pending_request(request)));
        rows.sort_by_key(|row| std::cmp::Reverse(row.waiting_ms));
        rows.truncate(MOST_ROWS);
        rows
    }

    fn pending_job(&mut self, job: &JobView) -> PendingRow {
        PendingRow {
            project: Some(job.project.to_string()),
            name: job.name.to_string(),
            user: Some(self.names.of(job.uid)),
            share: job.gpus_of_member.times(job.parallelism).to_string(),
            waiting_ms: self.since(job.submitted_unix_ms),
            reason: job.reason.clone(),
        }
    }

    fn pending_request(&mut self, request: &WaitingView) -> PendingRow {
        PendingRow {
            project: None,
            name: request.name.as_ref().map_or_else(|| "a slice".into(), ToString::to_string),
            user: request.uid.map(|uid| self.names.of(uid)),
            share: request.share.to_string(),
            waiting_ms: self.since(request.since_unix_ms),
            reason: request.reason.clone(),
        }
    }

    fn slice(&mut self, slice: &SliceView) -> SliceRow {
        SliceRow {
            name: slice.name.to_string(),
            user: self.user(slice),
            project: slice.project.as_ref().map(ToString::to_string),
            milligpus: self.reading.node.size(slice).get(),
            parked: slice.is_away(),
            age_ms: self.since(slice.created_unix_ms),
            use_percent: use_percent(&self.reading.node, std::iter::once(slice)),
            idle_ms: slice.idle_ms,
            gpus: slice.devices.iter().map(|device| device.gpu_index).collect(),
        }
    }

    /// Pod of a slice, or its user.
    fn user(&mut self, slice: &SliceView) -> String {
        slice.pod.as_ref().map_or_else(|| self.names.of(slice.owner_uid), |pod| format!("pod {pod}"))
    }

    fn gpu(&mut self, gpu: &GpuView) -> GpuRow {
        let reading = self.reading;
        let parts = reading.node.slices.iter().filter_map(|slice| {
            let device = slice.devices.iter().find(|device| device.gpu_uuid == gpu.uuid)?;
            Some((slice, device))
        });
        GpuRow {
            index: gpu.index,
            name: gpu.name.clone(),
            used_bytes: gpu.used.get(),
            total_bytes: gpu.total.get(),
            use_percent: gpu.utilization_percent,
            temperature_celsius: gpu.temperature_celsius,
            closed: gpu.not_sliceable.clone(),
            foreign: u32::try_from(gpu.foreign.len()).unwrap_or(u32::MAX),
            parts: parts.map(|(slice, device)| self.part(slice, device)).collect(),
            day: self.day.of(gpu.uuid, self.now_unix_ms),
        }
    }

    fn part(&mut self, slice: &SliceView, device: &SliceDeviceView) -> PartRow {
        let job = self.job_of.get(&slice.name).copied();
        let project = job.map(|job| &job.project).or(slice.project.as_ref());
        PartRow {
            slice: slice.name.to_string(),
            job: job.map(|job| format!("{}/{}", job.project, job.name)),
            project: project.map(ToString::to_string),
            user: match job {
                Some(job) => self.names.of(job.uid),
                None => self.user(slice),
            },
            milligpus: self.reading.node.part(slice.share, device).get(),
            parked: slice.is_away(),
            idle_ms: slice.idle_ms,
        }
    }
}

/// Tests if members of a job hold GPUs or are about to.
const fn is_active(state: JobState) -> bool {
    matches!(state, JobState::Creating | JobState::Running | JobState::Stopping)
}

fn figures(node: &NodeView, jobs: &[JobView]) -> NodeFigures {
    let count = |state| jobs.iter().filter(|job| job.state == state).count();
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
    let (allocated, idle) = node.allocated();
    NodeFigures {
        gpus: number(node.gpus.len()),
        allocated_milligpus: allocated.get(),
        idle_milligpus: idle.get(),
        running: number(count(JobState::Running)),
        pending: number(count(JobState::Pending).saturating_add(node.waiting.len())),
    }
}

/// Use of the GPU time that slices hold, over the last minute; by NVML where the daemon counts none.
fn use_percent<'a>(node: &NodeView, slices: impl Iterator<Item = &'a SliceView>) -> Option<u32> {
    let is_counted = node.compute_enforcement != NOT_ENFORCED;
    let used = |device: &SliceDeviceView| {
        let counted = is_counted.then(|| device.compute_used_60s.get());
        counted.or_else(|| device.utilization_percent.map(|percent| percent.saturating_mul(10)))
    };
    let (mut sum, mut held) = (None, 0u32);
    for slice in slices {
        held = held.saturating_add(node.size(slice).get());
        let of_slice = slice.devices.iter().filter_map(used).reduce(u32::saturating_add);
        sum = sum.into_iter().chain(of_slice).reduce(u32::saturating_add);
    }
    sum.filter(|_| held > 0).map(|sum| {
        let percent = u64::from(sum) * 100 / u64::from(held);
        u32::try_from(percent).unwrap_or(u32::MAX)
    })
}

fn project(view: &ProjectView) -> ProjectRow {
    ProjectRow {
        name: view.project.name.to_string(),
        quota_milligpus: view.project.quota.get(),
        allocated_milligpus: view.allocated.get(),
        idle_milligpus: view.idle.get(),
        running: view.running,
        pending: view.queued,
    }
}
