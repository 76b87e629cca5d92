//! Periodic sampling: utilization, overhead reconciliation, slices over their caps, lost GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tranche_domain::event::{EventCause, EventKind, Happening};
use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::view::ComputeState;
use tranche_inventory::ProcessUtilization;
use tranche_shm::crash::point;

use crate::agent::Agent;
use crate::audit;
use crate::config::OverCap;
use crate::gpu_users::GpuUserKind;
use crate::idleness::UseSample;
use crate::obstacles;
use crate::overhead::{self, LastCharges};
use crate::parking::EndedProcesses;
use tranche_slices::slice_runtime::SliceRuntime;
use tranche_slices::usage_guard;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Period at which GPUs and slices are sampled.
const SAMPLE_PERIOD: Duration = Duration::from_secs(1);
/// Period at which slices over their caps are checked.
const CAP_PERIOD: Duration = Duration::from_millis(20);

/// Samples until the daemon ends.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut sampling = interval(SAMPLE_PERIOD);
    let mut cap_checks = interval(CAP_PERIOD);
    sampling.set_missed_tick_behavior(MissedTickBehavior::Delay);
    cap_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut previous = Previous::default();
    let (mut over, mut resampled) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            _ = sampling.tick() => {
                over = check_slices(&agent, &over);
                resampled = audit::resample(&agent, &agent.runtimes()).await;
                previous = sample(&agent, previous).await;
            }
            _ = cap_checks.tick(), if !over.is_empty() || !resampled.is_empty() => {
                let before = over;
                over = check_caps(&agent, &before, &before);
                resampled = audit::resample(&agent, &[before, resampled].concat()).await;
            }
        }
    }
}

/// Checks that do not query the driver; returns the slices over their caps.
fn check_slices(agent: &Arc<Agent>, over: &[Arc<SliceRuntime>]) -> Vec<Arc<SliceRuntime>> {
    let runtimes = agent.runtimes();
    for runtime in &runtimes {
        if runtime.regions.were_damaged() {
            usage_guard::report_truncated(&agent.telemetry, &runtime.name);
        }
        usage_guard::restore_length(&agent.telemetry, runtime);
        agent.end_if_over(runtime);
    }
    check_caps(agent, &runtimes, over)
}

/// Checks these slices. Returns those over their caps, and records an event for each that went over or came back
/// within.
fn check_caps(
    agent: &Arc<Agent>,
    runtimes: &[Arc<SliceRuntime>],
    before: &[Arc<SliceRuntime>],
) -> Vec<Arc<SliceRuntime>> {
    let is_over = |runtime: &&Arc<SliceRuntime>| {
        let over = agent.note_excess(runtime);
        enforce(agent, runtime, over);
        over
    };
    let over: Vec<_> = runtimes.iter().filter(is_over).cloned().collect();
    record_each(
        agent,
        difference(&over, before),
        EventKind::OverCap,
        "it holds more than its cap and gets nothing new until it frees some",
    );
    let lives = |runtime: &&Arc<SliceRuntime>| {
        runtimes.iter().any(|live| Arc::ptr_eq(live, runtime)) && !runtime.is_deserted()
    };
    record_each(agent, difference(before, &over).filter(lives), EventKind::WithinCap, "it is within its cap");
    over
}

/// Slices of the first list that are not in the second.
fn difference<'a>(
    slices: &'a [Arc<SliceRuntime>],
    others: &'a [Arc<SliceRuntime>],
) -> impl Iterator<Item = &'a Arc<SliceRuntime>> {
    slices.iter().filter(|slice| !others.iter().any(|other| Arc::ptr_eq(slice, other)))
}

fn record_each<'a>(
    agent: &Agent,
    runtimes: impl Iterator<Item = &'a Arc<SliceRuntime>>,
    kind: EventKind,
    what: &str,
) {
    runtimes.for_each(|runtime| {
        agent.telemetry.record(Happening::new(kind.clone(), what).of(&runtime.name));
    });
}

/// Applies `over_cap` to a slice. Nothing by default, or its largest process is killed after the grace period.
fn enforce(agent: &Arc<Agent>, runtime: &Arc<SliceRuntime>, over: bool) {
    let over_for = runtime.over_for(over);
    let OverCap::Kill { grace } = agent.over_cap() else { return };
    let Some(time) = over_for.filter(|time| *time >= grace) else { return };
    let Some(process) = runtime.condemn_largest() else { return };
    let of = Arc::clone(runtime);
    let begun =
        agent.end_processes(&runtime.name, EndedProcesses::One(process.id), move |agent| {
            match process.kill() {
                Ok(()) => record_killed(agent, &of.name, process.id.pid, time),
                Err(_) => of.spare(),
            }
        });
    if !begun {
        runtime.spare();
    }
}

fn record_killed(agent: &Agent, name: &SliceName, pid: HostPid, over_for: Duration) {
    let seconds = over_for.as_secs();
    let message = format!(
        "killed process {pid} of slice {name}, which was over its cap for {seconds} s; `over_cap` says so"
    );
    let subject = ConditionSubject::Process(name.clone(), pid);
    agent.telemetry.conditions.set(Condition::KilledOverCap, subject, message);
    let detail = format!("its slice was over its cap for {seconds} s, and `over_cap` says so");
    let killed = Happening::new(EventKind::Killed, detail).of(name).by(pid);
    agent.telemetry.record(killed.caused_by(EventCause::OverCap));
}

/// Time of each GPU's last utilization sample, by the driver's clock, in microseconds.
type Since = BTreeMap<GpuUuid, u64>;

/// Last samples, with which the next are compared.
#[derive(Default)]
struct Previous {
    since: Since,
    charges: LastCharges,
}

async fn sample(agent: &Arc<Agent>, mut previous: Previous) -> Previous {
    let asked = Arc::clone(agent);
    let looked = tokio::task::spawn_blocking(move || {
        point("sampler: looks");
        asked.save_again();
        overhead::reconcile(&asked, &mut previous.charges);
        let samples = sample_gpus(&asked, &mut previous.since);
        (previous, samples)
    })
    .await;
    let Ok((previous, samples)) = looked else { return Previous::default() };
    agent.telemetry.counters.sampled();
    let runtimes = agent.runtimes();
    measure_unattached(agent, &samples);
    let measured: BTreeSet<&SliceName> = runtimes
        .iter()
        .filter(|runtime| set_utilization(runtime, &samples) > 0)
        .map(|runtime| &runtime.name)
        .collect();
    observe_use(agent, &measured);
    previous
}

/// Publishes the utilization of a slice's GPUs by its processes; returns the highest, in percent.
fn set_utilization(runtime: &SliceRuntime, samples: &BTreeMap<GpuUuid, Vec<ProcessUtilization>>) -> u32 {
    let members = runtime.occupants().members;
    let pids: Vec<HostPid> = members.values().map(|member| member.pid).collect();
    let mut highest = 0;
    for (device, gpu) in runtime.devices() {
        if let Some(samples) = samples.get(&gpu) {
            let (busy, memory) = sum(samples, pids.iter().copied());
            runtime.set_utilization(device, busy, memory);
            highest = highest.max(busy);
        }
    }
    highest
}

/// Counts the use of whole GPUs by programs of their pods, which have no shim that would report it.
fn measure_unattached(agent: &Agent, samples: &BTreeMap<GpuUuid, Vec<ProcessUtilization>>) {
    let core = agent.core();
    let users = core.gpu_users();
    let whole = core.node.slices().values().filter(|slice| users.has_whole_gpus(slice));
    let whole: Vec<_> =
        whole.flat_map(|slice| slice.parts.iter().map(|part| (slice.name.clone(), part.gpu))).collect();
    drop(core);
    for (name, gpu) in whole {
        let Some(samples) = samples.get(&gpu) else { continue };
        let is_its = |pid: &HostPid| users.classify(gpu, *pid) == GpuUserKind::Unattached(name.clone());
        let pids: BTreeSet<HostPid> = samples.iter().map(|sample| sample.pid).filter(is_its).collect();
        agent.governor.measure(&name, gpu, sum(samples, pids).0);
    }
}

/// Samples the use of GPUs by all slices, and records an event for each that is now idle. The driver measured use by
/// those of `measured`.
fn observe_use(agent: &Agent, measured: &BTreeSet<&SliceName>) {
    let core = agent.core();
    let slices = core.node.slices().values().filter(|slice| core.live.contains_key(&slice.name));
    let slices: Vec<_> = slices.map(|slice| (slice.name.clone(), slice.created_unix_ms)).collect();
    drop(core);
    let sample = |(name, created_unix_ms): (SliceName, u64)| {
        let shown = agent.governor.show(&name);
        let state = shown.as_ref().map(|shown| ComputeState::of(shown.why.clone()).0);
        let used = shown.map(|shown| shown.busy.iter().sum()).unwrap_or_default();
        let wants = state != Some(ComputeState::NoWork) || measured.contains(&name);
        UseSample { name, created_unix_ms, used, wants }
    };
    let samples: Vec<_> = slices.into_iter().map(sample).collect();
    for (name, unused) in agent.idleness.observe(&samples, Instant::now()) {
        let detail = format!("it has not used its GPU for {} s", unused.as_secs());
        agent.telemetry.record(Happening::new(EventKind::SliceIdle, detail).of(&name));
    }
}

/// Samples all GPUs. Queries the driver, and so may block.
fn sample_gpus(agent: &Agent, since: &mut Since) -> BTreeMap<GpuUuid, Vec<ProcessUtilization>> {
    let mut samples = BTreeMap::new();
    let gpus = agent.driver.gpus().unwrap_or_default();
    agent.faults.look(&gpus);
    for gpu in gpus {
        obstacles::update(agent, &gpu);
        let last = since.entry(gpu.uuid).or_default();
        if let Ok(new) = agent.driver.process_utilization(gpu.uuid, *last) {
            *last = new.iter().map(|sample| sample.timestamp_us).max().unwrap_or(*last);
            samples.insert(gpu.uuid, new);
        }
    }
    samples
}

/// Sums the newest sample of each process, in percent of the GPU.
fn sum(samples: &[ProcessUtilization], pids: impl IntoIterator<Item = HostPid>) -> (u32, u32) {
    let newest = |pid: HostPid| {
        samples.iter().filter(|sample| sample.pid == pid).max_by_key(|sample| sample.timestamp_us)
    };
    let ours = pids.into_iter().filter_map(newest);
    let (busy, memory) = ours.fold((0, 0), |(busy, memory), sample| {
        (busy + sample.sm_percent.min(100), memory + sample.memory_percent.min(100))
    });
    (busy.min(100), memory.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_sums_the_newest_sample_of_each_process() {
        let sample = |pid, sm_percent, timestamp_us| ProcessUtilization {
            pid: HostPid::new(pid),
            sm_percent,
            memory_percent: 1,
            timestamp_us,
        };
        let samples = [sample(1, 90, 1), sample(1, 30, 2), sample(2, 20, 2), sample(3, 50, 2)];
        assert_eq!(sum(&samples, [1, 2, 9].map(HostPid::new)), (50, 2));
        assert_eq!(sum(&[sample(1, 80, 1), sample(2, 70, 1)], [1, 2].map(HostPid::new)).0, 100);
    }
}
