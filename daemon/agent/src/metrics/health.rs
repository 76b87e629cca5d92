//! Metrics of the daemon itself.

use std::fmt;
use std::time::UNIX_EPOCH;

use procfs::process::{LimitValue, Process};
use tranche_exposition::{Labels, MetricsPage};

use crate::agent::Agent;

pub(super) fn write(agent: &Agent, page: &mut MetricsPage<'_>) -> fmt::Result {
    let started =
        agent.telemetry.counters.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    page.gauge("tranche_start_time_seconds", "When the daemon started, in Unix time", started)?;
    page.gauge(
        "tranche_compute_lateness_seconds",
        "How late the rounds are that say who may use a GPU; a daemon that keeps up is never late by much",
        agent.governor.lateness().as_secs_f64(),
    )?;
    page.gauge(
        "tranche_last_sample_age_seconds",
        "How long ago the GPUs were last looked at",
        agent.telemetry.counters.last_sample().as_secs_f64(),
    )?;
    page.counter(
        "tranche_state_save_failures",
        "Times that the slices could not be kept on disk",
        agent.telemetry.counters.times_unsaved(),
    )?;
    let events = agent.telemetry.events.counts().into_iter().map(|((kind, slice), count)| {
        let slice = slice.map(|slice| slice.to_string()).unwrap_or_default();
        (vec![("kind", kind.to_string()), ("slice", slice)], count)
    });
    page.counters(
        "tranche_events",
        "Events by their kinds, and by their slices where they are about one",
        events,
    )?;
    // Values that cannot be read are omitted.
    Process::myself().map_or(Ok(()), |process| process_metrics(&process, page))
}

/// Process metrics under the customary names.
fn process_metrics(process: &Process, page: &mut MetricsPage<'_>) -> fmt::Result {
    let one = |value: Option<u64>| value.map(|value| (Labels::new(), value));
    let stat = process.stat().ok();
    let memory = stat.as_ref().map(|stat| stat.rss * procfs::page_size());
    page.gauges("process_resident_memory_bytes", "Memory of the daemon", one(memory))?;
    let ticks =
        stat.as_ref().map(|stat| (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64);
    page.counters(
        "process_cpu_seconds",
        "Processor time of the daemon",
        ticks.map(|used| (Labels::new(), used)),
    )?;
    page.gauges(
        "process_open_fds",
        "Files that the daemon has open",
        one(process.fd_count().ok().map(|n| n as u64)),
    )?;
    let most = process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(most) => Some(most),
        LimitValue::Unlimited => None,
    });
    page.gauges("process_max_fds", "Files that the daemon may have open", one(most))
}
