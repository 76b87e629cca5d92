//! What a context costs on each GPU: measured once per driver and model, remembered, assumed where it
//! cannot be measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::id::GpuUuid;
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_inventory::{Driver, GpuFacts, InventoryError, calibrate};

use crate::whole::{PRIVATE, Survives, replace};

/// How long the daemon's start may wait for measurements; later ones are applied when they come.
const PATIENCE: Duration = Duration::from_secs(2);
/// What was measured, and what was seen to be more, each by model.
const FILE: &str = "contexts.json";
const LEARNED: &str = "contexts-seen.json";

/// What is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// By GPU, where measured.
    pub(crate) costs: BTreeMap<GpuUuid, Bytes>,
    /// What processes were seen to take, where that is more.
    pub(crate) learned: BTreeMap<GpuUuid, Bytes>,
    /// Elsewhere.
    pub(crate) assumed: Bytes,
    /// What could not be measured and why.
    pub(crate) notes: Vec<String>,
}

/// A measurement: the GPUs of one model, and what came out.
type Measured = (Model, Result<Bytes, InventoryError>);

/// Measurements that were not there in time.
pub struct Outstanding {
    results: mpsc::Receiver<Measured>,
    models: BTreeMap<Model, Vec<GpuFacts>>,
}

/// Driver version and product name: what the cost depends on.
type Model = String;

impl Contexts {
    /// Everything assumed.
    pub const fn assumed(assumed: Bytes) -> Self {
        Self { costs: BTreeMap::new(), learned: BTreeMap::new(), assumed, notes: Vec::new() }
    }

    /// What a context costs on a GPU.
    pub(crate) fn cost(&self, gpu: GpuUuid) -> Bytes {
        let learned = self.learned.get(&gpu).copied().unwrap_or(Bytes::ZERO);
        self.measured(gpu).max(learned.min(self.most(gpu)))
    }

    fn measured(&self, gpu: GpuUuid) -> Bytes {
        self.costs.get(&gpu).copied().unwrap_or(self.assumed)
    }

    /// One process that takes much by a way of its own must not make all others pay for it: beyond twice what
    /// was measured, it pays alone.
    fn most(&self, gpu: GpuUuid) -> Bytes {
        self.measured(gpu).saturating_add(self.measured(gpu))
    }

    /// A context took `cost` on a GPU of this model, which `gpus` are of. If that changes what is charged for
    /// one, says to what.
    pub(crate) fn learn(
        &mut self,
        state: &Path,
        model: Model,
        gpus: Vec<GpuUuid>,
        cost: Bytes,
    ) -> Option<Bytes> {
        let first = *gpus.first()?;
        let cost = cost.min(self.most(first));
        if cost <= self.cost(first) {
            return None;
        }
        self.learned.extend(gpus.into_iter().map(|gpu| (gpu, cost)));
        if let Err(error) = remember(state, LEARNED, model, cost) {
            tracing::warn!(%error, "cannot keep what a context takes");
        }
        Some(cost)
    }

    pub(crate) fn with_reserve(&self, parts: &[Part]) -> Vec<(Part, Bytes)> {
        parts.iter().map(|part| (*part, self.cost(part.gpu))).collect()
    }

    /// Looks up what was measured before, measures the rest, and waits a little for it. Blocks.
    pub fn measure(driver: &Arc<dyn Driver>, state: &Path, assumed: Bytes) -> (Self, Outstanding) {
        let mut contexts = Self::assumed(assumed);
        let version = driver.facts().map(|facts| facts.driver_version).unwrap_or_default();
        let mut models: BTreeMap<Model, Vec<GpuFacts>> = BTreeMap::new();
        for gpu in driver.gpus().unwrap_or_default().into_iter().filter(|gpu| gpu.not_sliceable.is_none()) {
            models.entry(format!("{version} {}", gpu.name)).or_default().push(gpu);
        }
        let (known, learned) = (read(state, FILE), read(state, LEARNED));
        for (model, gpus) in &models {
            if let Some(cost) = learned.get(model) {
                contexts.learned.extend(gpus.iter().map(|gpu| (gpu.uuid, *cost)));
            }
            if let Some(cost) = known.get(model) {
                contexts.costs.extend(gpus.iter().map(|gpu| (gpu.uuid, *cost)));
            }
        }
        models.retain(|model, _| !known.contains_key(model));
        let mut outstanding = Outstanding { results: begin(driver, &models), models };
        let deadline = Instant::now() + PATIENCE;
        while let Some(measured) = outstanding.next(deadline) {
            contexts.take(measured, state);
        }
        for model in outstanding.models.keys() {
            contexts.notes.push(format!(
                "what a context costs on {model} is still being measured; until then {assumed} are charged"
            ));
        }
        (contexts, outstanding)
    }

    /// Takes note of a measurement and keeps it.
    pub(crate) fn take(&mut self, (model, gpus, measured): Arrived, state: &Path) {
        match measured {
            Ok(cost) => {
                tracing::info!(model, %cost, "measured what a context costs");
                self.costs.extend(gpus.iter().map(|gpu| (gpu.uuid, cost)));
                if let Err(error) = remember(state, FILE, model, cost) {
                    tracing::warn!(%error, "cannot keep the measurement; it is taken again at the next start");
                }
            }
            Err(error) => self.notes.push(format!("{error}; {} are charged for each context", self.assumed)),
        }
    }
}

/// A measurement with the GPUs that it holds for.
pub(crate) type Arrived = (Model, Vec<GpuFacts>, Result<Bytes, InventoryError>);

impl Outstanding {
    /// The next measurement, or nothing at the deadline or when none is left.
    pub(crate) fn next(&mut self, deadline: Instant) -> Option<Arrived> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let (model, measured) = self.results.recv_timeout(patience).ok()?;
        let gpus = self.models.remove(&model).unwrap_or_default();
        Some((model, gpus, measured))
    }

    /// Whether anything is still to come.
    pub(crate) fn is_empty(&self) -> bool {
        self.models.is_empty()
    }
}

/// One after the other, so that no measurement sees another's context.
fn begin(driver: &Arc<dyn Driver>, models: &BTreeMap<Model, Vec<GpuFacts>>) -> mpsc::Receiver<Measured> {
    let (tell, told) = mpsc::channel();
    let driver = Arc::clone(driver);
    let first = |(model, gpus): (&Model, &Vec<GpuFacts>)| Some((model.clone(), gpus.first()?.clone()));
    let todo: Vec<(Model, GpuFacts)> = models.iter().filter_map(first).collect();
    thread::spawn(move || {
        for (model, gpu) in todo {
            if tell.send((model, calibrate::context_cost(driver.as_ref(), &gpu))).is_err() {
                return;
            }
        }
    });
    told
}

/// A file that cannot be read holds nothing: everything in it can be measured again.
fn read(state: &Path, file: &str) -> BTreeMap<Model, Bytes> {
    let text = fs::read(state.join(file)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn remember(state: &Path, name: &str, model: Model, cost: Bytes) -> std::io::Result<()> {
    let mut known = read(state, name);
    known.insert(model, cost);
    replace(&state.join(name), &serde_json::to_vec_pretty(&known)?, PRIVATE, Survives::Us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_inventory::scripted::{ScriptedDriver, v100};

    #[test]
    fn what_was_measured_before_is_not_measured_again() {
        let state = tempfile::tempdir().unwrap();
        let driver: Arc<dyn Driver> = Arc::new(ScriptedDriver::new(vec![v100(0), v100(1)]));
        let model = format!("{} {}", driver.facts().unwrap().driver_version, v100(0).name);
        remember(state.path(), FILE, model, Bytes::mib(308)).unwrap();
        let (contexts, outstanding) = Contexts::measure(&driver, state.path(), Bytes::mib(512));
        assert!(outstanding.is_empty() && contexts.notes.is_empty());
        assert_eq!(contexts.cost(v100(1).uuid), Bytes::mib(308));
        assert_eq!(contexts.cost(GpuUuid::from_bytes([9; 16])), Bytes::mib(512));
    }

    #[test]
    fn what_processes_were_seen_to_take_is_remembered_up_to_twice_what_was_measured() {
        let state = tempfile::tempdir().unwrap();
        let driver: Arc<dyn Driver> = Arc::new(ScriptedDriver::new(vec![v100(0), v100(1)]));
        let model = format!("{} {}", driver.facts().unwrap().driver_version, v100(0).name);
        remember(state.path(), FILE, model.clone(), Bytes::mib(300)).unwrap();
        let measure = || Contexts::measure(&driver, state.path(), Bytes::mib(512)).0;
        let (mut contexts, both) = (measure(), vec![v100(0).uuid, v100(1).uuid]);
        let mut learn = |mib| contexts.learn(state.path(), model.clone(), both.clone(), Bytes::mib(mib));
        assert_eq!((learn(300), learn(340), learn(320)), (None, Some(Bytes::mib(340)), None));
        assert_eq!(measure().cost(v100(1).uuid), Bytes::mib(340));
        assert_eq!((learn(9000), learn(9001)), (Some(Bytes::mib(600)), None));
        assert_eq!(measure().cost(v100(0).uuid), Bytes::mib(600));
    }

    #[test]
    fn what_cannot_be_measured_is_assumed_and_said() {
        let state = tempfile::tempdir().unwrap();
        let gpu = v100(0);
        let cause = "no luck".to_string();
        let failure = Err(InventoryError::Calibration { gpu: gpu.uuid, cause });
        let mut contexts = Contexts::assumed(Bytes::mib(512));
        contexts.take(("m".into(), vec![gpu.clone()], failure), state.path());
        assert_eq!(contexts.cost(gpu.uuid), Bytes::mib(512));
        assert!(contexts.notes[0].contains("no luck; 512 MiB are charged"), "{:?}", contexts.notes);
    }
}
