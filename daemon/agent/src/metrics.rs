//! Metrics for Prometheus.
//!
//! Invariant: a scrape holds the core's lock only to copy the list of slices; the driver, regions and `/proc` are
//! read afterwards. Labels are few: GPUs, live slices, projects and kinds of faults; the pod or job of a slice
//! appears only in its info metric.

mod copied;
mod dcgm;
mod gpus;
mod health;
mod jobs;
mod labels;
mod slices;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tranche_exposition::{Figures, MetricsPage};

use crate::agent::Agent;
use crate::jobs::NodeDesk;
use copied::Copied;
use tranche_telemetry::counters::RequestOutcome;

/// Lateness of the scheduling loop from which the daemon counts as hanging.
const LATE: Duration = Duration::from_secs(20);
/// Age of the driver's last answer from which no working slice can be created.
const WAITS: Duration = Duration::from_secs(15);
/// Age of the last sample from which the daemon or its driver counts as hanging.
const BLIND: Duration = Duration::from_secs(120);

/// Source of the daemon's metrics and health.
pub(crate) struct DaemonMetrics {
    pub(crate) agent: Arc<Agent>,
    /// `None` where the stored jobs cannot be read.
    pub(crate) desk: Option<Arc<NodeDesk>>,
}

impl fmt::Debug for DaemonMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon")
    }
}

impl Figures for DaemonMetrics {
    fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let agent = &*self.agent;
        let core = Copied::of(agent);
        build(agent, page)?;
        let (gpus, slices) = (gpus::look(agent, &core), slices::look(agent, &core));
        gpus::write(agent, &core, &gpus, page)?;
        slices::write(&core, &slices, page)?;
        if agent.dcgm_names {
            dcgm::write(&gpus, &slices, page)?;
        }
        requests(agent, &core, page)?;
        jobs::write(self.desk.as_deref(), page)?;
        health::write(agent, page)
    }

    fn alive(&self) -> Result<(), String> {
        let late = self.agent.governor.lateness();
        if late > LATE {
            return Err(format!("the rounds of compute are {} s late", late.as_secs()));
        }
        let blind = self.agent.telemetry.counters.last_sample();
        if blind > BLIND {
            return Err(silence(blind));
        }
        drop(self.agent.core());
        Ok(())
    }

    /// Not a failure of liveness: a restarted daemon would hang in the same driver.
    fn remark(&self) -> Option<String> {
        let blind = self.agent.telemetry.counters.last_sample();
        (blind > WAITS).then(|| silence(blind))
    }

    fn ready(&self) -> Result<(), String> {
        if self.agent.gpus.is_empty() {
            return Err("there is no GPU to make slices of".into());
        }
        self.alive()?;
        self.remark().map_or(Ok(()), Err)
    }
}

fn silence(blind: Duration) -> String {
    format!(
        "the driver has not answered for {} s; `nvidia-smi` likely hangs as well, see `dmesg`",
        blind.as_secs()
    )
}

fn build(agent: &Agent, page: &mut MetricsPage<'_>) -> fmt::Result {
    page.build("tranche_build", "Version of the daemon")?;
    let facts = agent.facts.as_ref();
    let cuda = facts.map(|facts| format!("{}.{}", facts.cuda_version / 1000, facts.cuda_version % 1000 / 10));
    let node = vec![
        ("driver_version", facts.map(|facts| facts.driver_version.clone()).unwrap_or_default()),
        ("cuda_version", cuda.unwrap_or_default()),
        ("simulated", facts.is_some_and(|facts| facts.simulated).to_string()),
        ("privileged", agent.is_privileged().to_string()),
    ];
    page.infos("tranche_node", "The driver of the node, and whether the daemon serves all of it", [node])
}

fn requests(agent: &Agent, core: &Copied, page: &mut MetricsPage<'_>) -> fmt::Result {
    let endings = RequestOutcome::ALL
        .map(|ending| (vec![("outcome", ending.word().into())], agent.telemetry.counters.requests(ending)));
    page.counters(
        "tranche_slice_requests",
        "Requests for slices by how they ended: created, no_room (at once or in time), refused, failed",
        endings,
    )?;
    page.gauge("tranche_waiting_requests", "Requests for slices that wait for room", core.waiting as u64)?;
    page.gauge(
        "tranche_waiting_oldest_seconds",
        "How long the request has waited that waits longest; 0 where none does",
        core.waiting_since.map_or(0.0, |since| since.elapsed().as_secs_f64()),
    )?;
    page.gauge(
        "tranche_notes",
        "Things the operator should know, as tranche smi shows them",
        agent.telemetry.conditions.count() as u64,
    )
}
