//! Cost of a context on each GPU. Measured once for each driver version and model, stored, and assumed where it
//! cannot be measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tranche_domain::id::GpuUuid;
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_inventory::{Driver, GpuFacts, InventoryError, calibrate};

use tranche_linux::atomic_file::{PRIVATE, Survives, replace};
use tranche_linux::clock::now_unix_ms;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject, Conditions};

/// Longest time that the start waits for measurements; later ones are applied when they arrive.
const PATIENCE: Duration = Duration::from_secs(2);
/// File of measured costs, by model.
const FILE: &str = "contexts.json";
/// File of releases that charged every tenant of a model what one process was seen to take. Its content cannot be
/// trusted.
const DISTRUSTED: &str = "contexts-seen.json";

/// Known costs of contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// Measured costs, by GPU.
    pub(crate) costs: BTreeMap<GpuUuid, Measurement>,
    /// Cost where none is measured.
    pub(crate) assumed: Bytes,
    /// Models whose cost is assumed, with the reason.
    assumed_of: BTreeMap<Model, String>,
}

/// Cost of a context, with the time of its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub(crate) struct Measurement {
    pub(crate) cost: Bytes,
    /// Unix time in milliseconds; 0 for measurements of an earlier release.
    pub(crate) unix_ms: u64,
}

/// Format on disk; earlier releases stored the cost alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    At { cost: Bytes, unix_ms: u64 },
    Cost(Bytes),
}

impl From<Kept> for Measurement {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::At { cost, unix_ms } => Self { cost, unix_ms },
            Kept::Cost(cost) => Self { cost, unix_ms: 0 },
        }
    }
}

/// Result for one model.
type Measured = (Model, Result<Bytes, InventoryError>);

/// Measurements that were not ready in time.
pub struct PendingMeasurements {
    results: mpsc::Receiver<Measured>,
    models: BTreeMap<Model, Vec<GpuFacts>>,
}

/// Driver version and product name, on which the cost depends.
type Model = String;

impl Contexts {
    /// Assumes this cost for every GPU.
    pub const fn assumed(assumed: Bytes) -> Self {
        Self { costs: BTreeMap::new(), assumed, assumed_of: BTreeMap::new() }
    }

    /// Cost of a context on a GPU, measured by the daemon itself or assumed. Values that tenants influence do not
    /// enter.
    pub(crate) fn cost(&self, gpu: GpuUuid) -> Bytes {
        self.costs.get(&gpu).map_or(self.assumed, |measured| measured.cost)
    }

    /// Time of the measurement in Unix milliseconds; `None` where the cost is assumed.
    pub(crate) fn measured_at(&self, gpu: GpuUuid) -> Option<u64> {
        self.costs.get(&gpu).map(|measured| measured.unix_ms)
    }

    pub(crate) fn with_reserve(&self, parts: &[Part]) -> Vec<(Part, Bytes)> {
        parts.iter().map(|part| (*part, self.cost(part.gpu))).collect()
    }

    /// Reads stored measurements, measures the rest and waits up to `PATIENCE`. Blocks.
    pub fn measure(driver: &Arc<dyn Driver>, state: &Path, assumed: Bytes) -> (Self, PendingMeasurements) {
        let mut contexts = Self::assumed(assumed);
        let version = driver.facts().map(|facts| facts.driver_version).unwrap_or_default();
        let mut models: BTreeMap<Model, Vec<GpuFacts>> = BTreeMap::new();
        for gpu in driver.gpus().unwrap_or_default().into_iter().filter(|gpu| gpu.not_sliceable.is_none()) {
            models.entry(format!("{version} {}", gpu.name)).or_default().push(gpu);
        }
        drop_distrusted(state);
        let known = read(state, FILE);
        for (model, gpus) in &models {
            if let Some(cost) = known.get(model) {
                contexts.costs.extend(gpus.iter().map(|gpu| (gpu.uuid, *cost)));
            }
        }
        models.retain(|model, _| !known.contains_key(model));
        let mut outstanding = PendingMeasurements { results: start_measuring(driver, &models), models };
        let deadline = Instant::now() + PATIENCE;
        while let Some(measured) = outstanding.next(deadline) {
            contexts.take(measured, state);
        }
        for model in outstanding.models.keys() {
            let message = format!(
                "what a context costs on {model} is still being measured; until then {assumed} are charged"
            );
            contexts.assumed_of.insert(model.clone(), message);
        }
        (contexts, outstanding)
    }

    /// Sets a condition for each model whose cost is assumed.
    pub(crate) fn report(&self, conditions: &Conditions) {
        self.assumed_of.keys().for_each(|model| self.report_of(model, conditions));
    }

    /// Sets the condition of a model whose cost is assumed, or clears it where the cost was measured.
    pub(crate) fn report_of(&self, model: &str, conditions: &Conditions) {
        let subject = ConditionSubject::Node(model.to_owned());
        match self.assumed_of.get(model) {
            Some(message) => conditions.set(Condition::ContextCostAssumed, subject, message),
            None => conditions.clear(Condition::ContextCostAssumed, subject),
        }
    }

    /// Takes in a measurement and stores it.
    pub(crate) fn take(&mut self, (model, gpus, measured): Arrived, state: &Path) {
        match measured {
            Ok(cost) => {
                tracing::info!(model, %cost, "measured what a context costs");
                self.assumed_of.remove(&model);
                let measured = Measurement { cost, unix_ms: now_unix_ms() };
                self.costs.extend(gpus.iter().map(|gpu| (gpu.uuid, measured)));
                if let Err(error) = remember(state, model, measured) {
                    tracing::warn!(%error, "cannot keep the measurement; it is taken again at the next start");
                }
            }
            Err(error) => {
                let message = format!("{error}; {} are charged for each context", self.assumed);
                self.assumed_of.insert(model, message);
            }
        }
    }
}

/// A measurement with the GPUs that it applies to.
pub(crate) type Arrived = (Model, Vec<GpuFacts>, Result<Bytes, InventoryError>);

impl PendingMeasurements {
    /// Next measurement; `None` at the deadline or when none is left.
    pub(crate) fn next(&mut self, deadline: Instant) -> Option<Arrived> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let (model, measured) = self.results.recv_timeout(patience).ok()?;
        let gpus = self.models.remove(&model).unwrap_or_default();
        Some((model, gpus, measured))
    }

    /// Returns true if no measurement is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.models.is_empty()
    }
}

/// Measures models one after the other, so that no measurement sees another's context.
fn start_measuring(
    driver: &Arc<dyn Driver>,
    models: &BTreeMap<Model, Vec<GpuFacts>>,
) -> mpsc::Receiver<Measured> {
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

/// Reads stored measurements. An unreadable file counts as empty: everything in it can be measured again.
fn read(state: &Path, file: &str) -> BTreeMap<Model, Measurement> {
    let text = fs::read(state.join(file)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Removes the file of an earlier release.
fn drop_distrusted(state: &Path) {
    let learned = read(state, DISTRUSTED);
    match fs::remove_file(state.join(DISTRUSTED)) {
        Ok(()) => tracing::warn!(
            ?learned,
            "an earlier release learned from tenants what contexts take; that is dropped"
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "cannot remove {DISTRUSTED}, which is not used any more"),
    }
}

/// Removes stored measurements so that the next start repeats them; returns their models.
///
/// # Errors
/// The file system's.
pub(crate) fn forget(state: &Path) -> std::io::Result<Vec<Model>> {
    let known = read(state, FILE);
    tranche_privileged::remove(&state.join(FILE))?;
    Ok(known.into_keys().collect())
}

fn remember(state: &Path, model: Model, measured: Measurement) -> std::io::Result<()> {
    let mut known = read(state, FILE);
    known.insert(model, measured);
    replace(&state.join(FILE), &serde_json::to_vec_pretty(&known)?, PRIVATE, Survives::ProcessDeath)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_inventory::scripted::{ScriptedDriver, v100};

    #[test]
    fn stored_measurement_is_not_repeated() {
        let state = tempfile::tempdir().unwrap();
        let driver: Arc<dyn Driver> = Arc::new(ScriptedDriver::new(vec![v100(0), v100(1)]));
        let model = format!("{} {}", driver.facts().unwrap().driver_version, v100(0).name);
        // The format of an earlier release.
        let kept = serde_json::to_vec(&BTreeMap::from([(model.clone(), Bytes::mib(308))])).unwrap();
        fs::write(state.path().join(FILE), kept).unwrap();
        let (contexts, outstanding) = Contexts::measure(&driver, state.path(), Bytes::mib(512));
        assert!(outstanding.is_empty() && contexts.assumed_of.is_empty());
        assert_eq!(contexts.cost(v100(1).uuid), Bytes::mib(308));
        assert_eq!(contexts.measured_at(v100(1).uuid), Some(0));
        let elsewhere = GpuUuid::from_bytes([9; 16]);
        assert_eq!((contexts.cost(elsewhere), contexts.measured_at(elsewhere)), (Bytes::mib(512), None));
        let measured = Measurement { cost: Bytes::mib(309), unix_ms: 7 };
        remember(state.path(), model.clone(), measured).unwrap();
        let (contexts, _) = Contexts::measure(&driver, state.path(), Bytes::mib(512));
        assert_eq!(
            (contexts.cost(v100(0).uuid), contexts.measured_at(v100(0).uuid)),
            (Bytes::mib(309), Some(7))
        );
        assert_eq!(forget(state.path()).unwrap(), [model]);
        assert_eq!(forget(state.path()).unwrap(), Vec::<Model>::new());
    }

    #[test]
    fn untrusted_reserves_file_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let driver: Arc<dyn Driver> = Arc::new(ScriptedDriver::new(vec![v100(0)]));
        let model = format!("{} {}", driver.facts().unwrap().driver_version, v100(0).name);
        remember(state.path(), model.clone(), Measurement { cost: Bytes::mib(310), unix_ms: 7 }).unwrap();
        let poisoned = serde_json::to_vec(&BTreeMap::from([(model, Bytes::mib(620))])).unwrap();
        fs::write(state.path().join(DISTRUSTED), poisoned).unwrap();
        let (contexts, _) = Contexts::measure(&driver, state.path(), Bytes::mib(512));
        assert_eq!(contexts.cost(v100(0).uuid), Bytes::mib(310));
        assert!(!state.path().join(DISTRUSTED).exists());
    }

    #[test]
    fn failed_measurement_is_assumed_and_noted() {
        let state = tempfile::tempdir().unwrap();
        let gpu = v100(0);
        let cause = "no luck".to_string();
        let failure = Err(InventoryError::Calibration { gpu: gpu.uuid, cause });
        let mut contexts = Contexts::assumed(Bytes::mib(512));
        contexts.take(("m".into(), vec![gpu.clone()], failure), state.path());
        assert_eq!(contexts.cost(gpu.uuid), Bytes::mib(512));
        let reason = contexts.assumed_of.values().next().unwrap();
        assert!(reason.contains("no luck; 512 MiB are charged"), "{reason}");
    }
}
