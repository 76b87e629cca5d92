//! Lines of the tables: which GPUs, slices, jobs, requests and users are shown, in which order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tranche_domain::jobs::{JobState, JobView, MilliGpus};
use tranche_domain::units::Bytes;
use tranche_domain::view::{GpuView, SliceDeviceView, SliceView, WaitingView};

use super::scene::Scene;
use super::state::{ScreenState, Sort, Subject};

/// A line of a table.
#[derive(Clone, Debug)]
pub(super) enum ScreenRow<'a> {
    /// A GPU, above its slices.
    Gpu(&'a GpuView),
    /// A slice on a GPU.
    Part(&'a SliceView, &'a SliceDeviceView),
    /// A job that waits.
    Job(&'a JobView),
    /// A request for a slice that waits.
    Request(&'a WaitingView),
    /// Totals of a user.
    User(Total),
}

/// Sums over the slices and jobs of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) uid: u32,
    pub(super) slices: usize,
    pub(super) gpus: MilliGpus,
    /// GPUs of its idle slices.
    pub(super) idle: MilliGpus,
    /// Longest time for which one of its slices has been idle.
    pub(super) idle_ms: u64,
    pub(super) used: Bytes,
    pub(super) cap: Bytes,
    /// GPU time over the last second, in thousandths of a GPU.
    pub(super) time: u32,
    pub(super) running: usize,
    pub(super) pending: usize,
}

impl ScreenRow<'_> {
    /// Identity of the line across scenes.
    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Gpu(gpu) => Subject::Gpu(gpu.index),
            Self::Part(slice, device) => Subject::Part(device.gpu_index, slice.name.clone()),
            Self::Job(job) => Subject::Job(job.project.clone(), job.name.clone()),
            Self::Request(request) => Subject::Request(request.pid),
            Self::User(total) => Subject::User(total.uid),
        }
    }
}

/// Lines of the upper table: GPUs with their slices, or users.
pub(super) fn table(state: &ScreenState) -> Vec<ScreenRow<'_>> {
    match &state.scene {
        None => Vec::new(),
        Some(scene) if state.by_user => users(state, scene),
        Some(scene) => scene.node.gpus.iter().flat_map(|gpu| below(state, scene, gpu)).collect(),
    }
}

/// A GPU and its slices, as far as they are shown.
fn below<'a>(state: &ScreenState, scene: &'a Scene, gpu: &'a GpuView) -> Vec<ScreenRow<'a>> {
    let whole = state.filter.is_empty() || holds(state, &[&format!("gpu {}", gpu.index), &gpu.name]);
    let here = |slice: &'a SliceView| {
        let device = slice.devices.iter().find(|device| device.gpu_uuid == gpu.uuid)?;
        let mine = !state.mine || slice.owner_uid == state.own_uid;
        (mine && (whole || slice_matches(state, scene, slice))).then_some((slice, device))
    };
    let mut parts: Vec<_> = scene.node.slices.iter().filter_map(here).collect();
    parts.sort_by_key(|(slice, device)| {
        let figure = match state.sort {
            Sort::Name => 0,
            Sort::Memory => device.used.get(),
            Sort::Time => device.compute_used_1s.get().into(),
            Sort::Idle => slice.idle_ms.unwrap_or(0),
        };
        (Reverse(figure), &slice.name)
    });
    let shown = !parts.is_empty() || (whole && !state.mine);
    let heading = shown.then_some(ScreenRow::Gpu(gpu));
    heading
        .into_iter()
        .chain(parts.into_iter().map(|(slice, device)| ScreenRow::Part(slice, device)))
        .collect()
}

fn slice_matches(state: &ScreenState, scene: &Scene, slice: &SliceView) -> bool {
    let (user, purpose) = (scene.user(slice.owner_uid), scene.purpose(slice));
    let state_of_it = slice.state();
    let idle = if slice.idle_ms.is_some() { "idle" } else { "" };
    holds(state, &[slice.name.as_str(), &user, &purpose, &state_of_it, idle])
        || slice.processes.iter().any(|process| holds(state, &[&process.command]))
}

/// Tests if one of the texts contains the filter, in any case.
fn holds(state: &ScreenState, texts: &[&str]) -> bool {
    let wanted = state.filter.to_lowercase();
    texts.iter().any(|text| text.to_lowercase().contains(&wanted))
}

/// Lines of the queue: jobs that wait, then requests.
pub(super) fn queue(state: &ScreenState) -> Vec<ScreenRow<'_>> {
    let Some(scene) = &state.scene else { return Vec::new() };
    let waits = |job: &&JobView| {
        let texts = [job.name.as_str(), job.project.as_str(), &scene.user(job.uid), &job.reason];
        job.state == JobState::Pending && (!state.mine || job.uid == state.own_uid) && holds(state, &texts)
    };
    let wanted = |request: &&WaitingView| {
        let uid = scene.requester(request.pid);
        let user = uid.map(|uid| scene.user(uid)).unwrap_or_default();
        let name = request.name.as_ref().map_or("", |name| name.as_str());
        (!state.mine || uid == Some(state.own_uid)) && holds(state, &[name, &user, &request.reason])
    };
    let jobs = scene.jobs.iter().filter(waits).map(ScreenRow::Job);
    jobs.chain(scene.node.waiting.iter().filter(wanted).map(ScreenRow::Request)).collect()
}

/// Totals of each user who has something or waits for something.
fn users<'a>(state: &ScreenState, scene: &Scene) -> Vec<ScreenRow<'a>> {
    let mut totals: BTreeMap<u32, Total> = BTreeMap::new();
    for slice in &scene.node.slices {
        let total = totals.entry(slice.owner_uid).or_default();
        let held = scene.node.held(slice);
        total.slices += 1;
        total.gpus = total.gpus.plus(held);
        if let Some(idle_ms) = slice.idle_ms {
            total.idle = total.idle.plus(held);
            total.idle_ms = total.idle_ms.max(idle_ms);
        }
        for device in &slice.devices {
            total.used = total.used.saturating_add(device.used);
            total.cap = total.cap.saturating_add(device.cap);
            total.time = total.time.saturating_add(device.compute_used_1s.get());
        }
    }
    for job in &scene.jobs {
        match job.state {
            JobState::Running => totals.entry(job.uid).or_default().running += 1,
            JobState::Pending => totals.entry(job.uid).or_default().pending += 1,
            _ => {}
        }
    }
    for uid in scene.node.waiting.iter().filter_map(|request| scene.requester(request.pid)) {
        totals.entry(uid).or_default().pending += 1;
    }
    let named = totals.into_iter().map(|(uid, total)| (scene.user(uid), Total { uid, ..total }));
    let shown = |(name, total): &(String, Total)| {
        (!state.mine || total.uid == state.own_uid) && holds(state, &[name])
    };
    let mut named: Vec<_> = named.filter(shown).collect();
    named.sort_by_cached_key(|(name, total)| {
        let figure = match state.sort {
            Sort::Name => 0,
            Sort::Memory => total.used.get(),
            Sort::Time => total.time.into(),
            Sort::Idle => total.idle_ms,
        };
        (Reverse(figure), name.clone())
    });
    named.into_iter().map(|(_, total)| ScreenRow::User(total)).collect()
}
