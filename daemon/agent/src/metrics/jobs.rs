//! Metrics of projects and their jobs.

use std::fmt;

use tranche_domain::jobs::MilliGpus;
use tranche_exposition::{Labels, MetricsPage};
use tranche_jobs::ProjectStanding;

use super::labels::{and, label};
use crate::jobs::NodeDesk;

pub(super) fn write(desk: Option<&NodeDesk>, page: &mut MetricsPage<'_>) -> fmt::Result {
    page.gauge("tranche_jobs_up", "Whether the node takes jobs", u64::from(desk.is_some()))?;
    let standings = desk.map(NodeDesk::standings).unwrap_or_default();
    let rows = |value: fn(&ProjectStanding) -> MilliGpus| {
        standings.iter().map(move |project| (labels(project), f64::from(value(project).get()) / 1000.0))
    };
    page.gauges(
        "tranche_project_quota_gpus",
        "GPUs that the project can have whenever it wants them",
        rows(|standing| standing.project.project.quota),
    )?;
    page.gauges(
        "tranche_project_allocated_gpus",
        "GPUs that its jobs have, those on their way out not counted",
        rows(|standing| standing.project.allocated),
    )?;
    page.gauges(
        "tranche_project_idle_gpus",
        "GPUs of those held by slices that count as idle",
        rows(|standing| standing.project.idle),
    )?;
    counts(&standings, page)
}

fn counts(standings: &[ProjectStanding], page: &mut MetricsPage<'_>) -> fmt::Result {
    let states = standings.iter().flat_map(|standing| {
        let of = |state, count: u32| (and(labels(standing), "state", state), u64::from(count));
        [of("running", standing.project.running), of("queued", standing.project.queued)]
    });
    page.gauges(
        "tranche_project_jobs",
        "Jobs of the project that have not ended: running, or queued, with no member in a place",
        states,
    )?;
    let owed = standings.iter().map(|standing| (labels(standing), standing.owed as u64));
    page.gauges(
        "tranche_project_owed_jobs",
        "Jobs of the project that wait although they are within its quota",
        owed,
    )?;
    let preempted = standings.iter().map(|standing| (labels(standing), standing.preempted));
    page.counters(
        "tranche_project_preemptions",
        "Times that a member of the project's jobs was told to leave for another",
        preempted,
    )
}

fn labels(standing: &ProjectStanding) -> Labels {
    label("project", &standing.project.project.name)
}
