//! What has to be looked at again and again: utilisation, slices over their caps, GPUs lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tranche_domain::event::{Happening, Kind};
use tranche_domain::id::{GpuUuid, HostPid};
use tranche_inventory::ProcessUtilization;
use tranche_shm::crash::point;

use crate::agent::Agent;
use crate::config::OverCap;
use crate::girth;
use crate::obstacles;
use crate::tenancy::Tenancy;
use crate::trueup;
use crate::truth;

/// Time between two samples.
const SAMPLE: Duration = Duration::from_secs(1);
/// Time between two looks at slices that are over their caps.
const TRIM: Duration = Duration::from_millis(20);

/// Runs until the daemon ends.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut sampling = interval(SAMPLE);
    let mut trimming = interval(TRIM);
    sampling.set_missed_tick_behavior(MissedTickBehavior::Delay);
    trimming.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since = BTreeMap::new();
    let (mut over, mut unsure) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            _ = sampling.tick() => {
                over = look_after(&agent, &over);
                unsure = truth::confirm(&agent, &agent.tenancies()).await;
                since = sample(&agent, since).await;
            }
            _ = trimming.tick(), if !over.is_empty() || !unsure.is_empty() => {
                let before = over;
                over = trim(&agent, &before, &before);
                unsure = truth::confirm(&agent, &[before, unsure].concat()).await;
            }
        }
    }
}

/// Everything that takes no time; returns the slices that are over their caps.
fn look_after(agent: &Arc<Agent>, over: &[Arc<Tenancy>]) -> Vec<Arc<Tenancy>> {
    let tenancies = agent.tenancies();
    for tenancy in &tenancies {
        if tenancy.regions.were_damaged() {
            girth::tell_truncated(agent, &tenancy.name);
        }
        girth::mend(agent, tenancy);
        agent.end_if_over(tenancy);
    }
    trim(agent, &tenancies, over)
}

/// Looks at these slices; returns those that are over their caps, and tells of those that were not before, or are no
/// more.
fn trim(agent: &Agent, tenancies: &[Arc<Tenancy>], before: &[Arc<Tenancy>]) -> Vec<Arc<Tenancy>> {
    let is_over = |tenancy: &&Arc<Tenancy>| {
        let over = agent.note_excess(tenancy);
        enforce(agent, tenancy, over);
        over
    };
    let over: Vec<_> = tenancies.iter().filter(is_over).cloned().collect();
    tell(
        agent,
        alone(&over, before),
        Kind::OverCap,
        "it holds more than its cap and gets nothing new until it frees some",
    );
    let lives = |tenancy: &&Arc<Tenancy>| {
        tenancies.iter().any(|live| Arc::ptr_eq(live, tenancy)) && !tenancy.is_deserted()
    };
    tell(agent, alone(before, &over).filter(lives), Kind::WithinCap, "it is within its cap");
    over
}

/// Those of these that are not among those.
fn alone<'a>(these: &'a [Arc<Tenancy>], those: &'a [Arc<Tenancy>]) -> impl Iterator<Item = &'a Arc<Tenancy>> {
    these.iter().filter(|this| !those.iter().any(|that| Arc::ptr_eq(this, that)))
}

fn tell<'a>(agent: &Agent, whom: impl Iterator<Item = &'a Arc<Tenancy>>, kind: Kind, what: &str) {
    whom.for_each(|tenancy| agent.events.record(Happening::new(kind.clone(), what).of(&tenancy.name)));
}

/// What is done about a slice that stays over its cap: nothing, unless the operator said so.
fn enforce(agent: &Agent, tenancy: &Tenancy, over: bool) {
    let over_for = tenancy.over_for(over);
    let OverCap::Kill { grace } = agent.over_cap() else { return };
    let Some(time) = over_for.filter(|time| *time >= grace) else { return };
    if let Some(pid) = tenancy.kill_largest() {
        let name = &tenancy.name;
        let seconds = time.as_secs();
        agent.note(format!(
            "killed process {pid} of slice {name}, which was over its cap for {seconds} s; `over_cap` says so"
        ));
        let told = format!("its slice was over its cap for {seconds} s, and `over_cap` says so");
        agent.events.record(Happening::new(Kind::Killed, told).of(name).by(pid));
    }
}

/// When each GPU's last sample was taken, on the driver's clock.
type Since = BTreeMap<GpuUuid, u64>;

async fn sample(agent: &Arc<Agent>, since: Since) -> Since {
    let asked = Arc::clone(agent);
    let looked = tokio::task::spawn_blocking(move || {
        point("sampler: looks");
        asked.save_again();
        trueup::look(&asked);
        look(&asked, since)
    })
    .await;
    let Ok((since, samples)) = looked else { return Since::new() };
    agent.tally.sampled();
    for tenancy in agent.tenancies() {
        let members = tenancy.occupants().members;
        let pids: Vec<HostPid> = members.values().map(|member| member.pid).collect();
        for (device, gpu) in tenancy.devices() {
            if let Some(samples) = samples.get(&gpu) {
                let (busy, memory) = sum(samples, &pids);
                tenancy.set_utilization(device, busy, memory);
            }
        }
    }
    since
}

/// Asks the driver: this may block.
fn look(agent: &Agent, mut since: Since) -> (Since, BTreeMap<GpuUuid, Vec<ProcessUtilization>>) {
    let mut samples = BTreeMap::new();
    let gpus = agent.driver.gpus().unwrap_or_default();
    agent.faults.look(agent, &gpus);
    for gpu in gpus {
        obstacles::look(agent, &gpu);
        let last = since.entry(gpu.uuid).or_default();
        if let Ok(new) = agent.driver.process_utilization(gpu.uuid, *last) {
            *last = new.iter().map(|sample| sample.timestamp_us).max().unwrap_or(*last);
            samples.insert(gpu.uuid, new);
        }
    }
    (since, samples)
}

/// Adds up the newest sample of each process, in percent of the GPU.
fn sum(samples: &[ProcessUtilization], pids: &[HostPid]) -> (u32, u32) {
    let newest = |pid: &HostPid| {
        samples.iter().filter(|sample| sample.pid == *pid).max_by_key(|sample| sample.timestamp_us)
    };
    let ours = pids.iter().filter_map(newest);
    let (busy, memory) = ours.fold((0, 0), |(busy, memory), sample| {
        (busy + sample.sm_percent.min(100), memory + sample.memory_percent.min(100))
    });
    (busy.min(100), memory.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slices_utilisation_is_the_sum_of_its_processes_newest_samples() {
        let sample = |pid, sm_percent, timestamp_us| ProcessUtilization {
            pid: HostPid::new(pid),
            sm_percent,
            memory_percent: 1,
            timestamp_us,
        };
        let samples = [sample(1, 90, 1), sample(1, 30, 2), sample(2, 20, 2), sample(3, 50, 2)];
        assert_eq!(sum(&samples, &[HostPid::new(1), HostPid::new(2), HostPid::new(9)]), (50, 2));
        assert_eq!(sum(&[sample(1, 80, 1), sample(2, 70, 1)], &[HostPid::new(1), HostPid::new(2)]).0, 100);
    }
}
