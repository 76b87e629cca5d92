//! A driver with scripted answers for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::units::Bytes;

use crate::{
    ComputeCapability, Driver, GpuFacts, GpuFault, GpuProcess, GpuState, Hear, InventoryError, NodeFacts,
    NotSliceable, ProcessUtilization,
};

/// A simulated node. Clones share the script, so a test can change it after handing the driver over.
#[derive(Clone, Debug, Default)]
pub struct ScriptedDriver {
    script: Arc<Mutex<Script>>,
    news: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct Script {
    gpus: Vec<GpuFacts>,
    processes: BTreeMap<GpuUuid, Vec<GpuProcess>>,
    utilization: BTreeMap<GpuUuid, Vec<ProcessUtilization>>,
    failure: Option<InventoryError>,
    faults: Vec<GpuFault>,
    delay: Duration,
}

/// A V100 with 32510 MiB of capacity and this index.
pub fn v100(index: u32) -> GpuFacts {
    let mut uuid = [0; 16];
    uuid[12..].copy_from_slice(&index.to_be_bytes());
    GpuFacts {
        index,
        uuid: GpuUuid::from_bytes(uuid),
        name: "Tesla V100-SXM2-32GB".into(),
        pci_bus_id: format!("00000000:{:02X}:00.0", index + 4),
        compute_capability: ComputeCapability { major: 7, minor: 0 },
        total: Bytes::mib(32768),
        reserved: Bytes::mib(258),
        island: 0,
        numa_node: None,
        not_sliceable: None,
    }
}

impl ScriptedDriver {
    /// An idle node with these GPUs.
    pub fn new(gpus: Vec<GpuFacts>) -> Self {
        let script = Script { gpus, ..Script::default() };
        Self { script: Arc::new(Mutex::new(script)), news: Arc::default() }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics while it writes the script")
    }

    /// Replaces the GPUs of the node.
    pub fn set_gpus(&self, gpus: Vec<GpuFacts>) {
        self.script().gpus = gpus;
    }

    /// Replaces the processes on a GPU.
    pub fn set_processes(&self, gpu: GpuUuid, processes: Vec<GpuProcess>) {
        self.script().processes.insert(gpu, processes);
    }

    /// Adds a process with this memory, or changes its memory.
    pub fn set_process(&self, gpu: GpuUuid, pid: HostPid, used: Bytes) {
        let mut script = self.script();
        let processes = script.processes.entry(gpu).or_default();
        processes.retain(|process| process.pid != pid);
        processes.push(GpuProcess { pid, used: Some(used) });
        processes.sort_by_key(|process| process.pid);
    }

    /// Removes a process from every GPU.
    pub fn end_process(&self, pid: HostPid) {
        for processes in self.script().processes.values_mut() {
            processes.retain(|process| process.pid != pid);
        }
    }

    /// Delays every list of processes by this time.
    pub fn delay_processes(&self, delay: Duration) {
        self.script().delay = delay;
    }

    /// Replaces the utilisation samples of a GPU.
    pub fn set_utilization(&self, gpu: GpuUuid, samples: Vec<ProcessUtilization>) {
        self.script().utilization.insert(gpu, samples);
    }

    /// Makes a GPU lost.
    pub fn lose(&self, gpu: GpuUuid) {
        for facts in self.script().gpus.iter_mut().filter(|facts| facts.uuid == gpu) {
            facts.not_sliceable = Some(NotSliceable::Lost { cause: "fell off the bus".into() });
        }
    }

    /// Reports a fault to each follower.
    pub fn raise(&self, fault: GpuFault) {
        self.script().faults.push(fault);
        self.news.notify_all();
    }

    /// Fails every query with this error, until set to `None`.
    pub fn fail(&self, failure: Option<InventoryError>) {
        self.script().failure = failure;
    }

    fn answer(&self) -> Result<MutexGuard<'_, Script>, InventoryError> {
        let script = self.script();
        match &script.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(script),
        }
    }

    fn gpu(&self, gpu: GpuUuid) -> Result<MutexGuard<'_, Script>, InventoryError> {
        let script = self.answer()?;
        match script.gpus.iter().find(|facts| facts.uuid == gpu) {
            None => Err(InventoryError::UnknownGpu(gpu)),
            Some(GpuFacts { not_sliceable: Some(NotSliceable::Lost { cause }), .. }) => {
                Err(InventoryError::Lost { gpu, cause: cause.clone() })
            }
            Some(_) => Ok(script),
        }
    }
}

impl Driver for ScriptedDriver {
    fn facts(&self) -> Result<NodeFacts, InventoryError> {
        drop(self.answer()?);
        Ok(NodeFacts {
            driver_version: "580.00-scripted".into(),
            nvml_version: "13.580.00-simulated".into(),
            cuda_version: 13000,
            simulated: true,
            unreadable: Vec::new(),
        })
    }

    fn gpus(&self) -> Result<Vec<GpuFacts>, InventoryError> {
        Ok(self.answer()?.gpus.clone())
    }

    fn state(&self, gpu: GpuUuid) -> Result<GpuState, InventoryError> {
        let used = self.processes(gpu)?.iter().filter_map(|process| process.used).sum();
        Ok(GpuState { used, ..GpuState::default() })
    }

    fn processes(&self, gpu: GpuUuid) -> Result<Vec<GpuProcess>, InventoryError> {
        let delay = self.script().delay;
        std::thread::sleep(delay);
        Ok(self.gpu(gpu)?.processes.get(&gpu).cloned().unwrap_or_default())
    }

    fn process_utilization(
        &self,
        gpu: GpuUuid,
        since_us: u64,
    ) -> Result<Vec<ProcessUtilization>, InventoryError> {
        let samples = self.gpu(gpu)?.utilization.get(&gpu).cloned().unwrap_or_default();
        Ok(samples.into_iter().filter(|sample| sample.timestamp_us > since_us).collect())
    }

    fn follow_faults(&self, patience: Duration, hear: &mut Hear<'_>) -> Result<(), InventoryError> {
        let mut heard = self.answer()?.faults.len();
        loop {
            let waited =
                self.news.wait_timeout_while(self.answer()?, patience, |script| script.faults.len() <= heard);
            let fault =
                waited.expect("no test panics while it writes the script").0.faults.get(heard).copied();
            heard += usize::from(fault.is_some());
            if hear(fault).is_break() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_script() {
        let test = ScriptedDriver::new(vec![v100(0), v100(1)]);
        let given_away: Box<dyn Driver> = Box::new(test.clone());
        let gpu = v100(1).uuid;
        test.set_process(gpu, HostPid::new(9), Bytes::mib(3));
        assert_eq!(given_away.state(gpu).map(|state| state.used), Ok(Bytes::mib(3)));
        test.lose(gpu);
        assert!(matches!(given_away.processes(gpu), Err(InventoryError::Lost { .. })));
    }

    #[test]
    fn v100_capacity_is_32510_mib() {
        assert_eq!(v100(0).capacity(), Bytes::mib(32510));
    }
}
