//! A driver restricted to selected GPUs.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use tranche_domain::id::{GpuSelector, GpuUuid};

use crate::{
    Driver, GpuFacts, GpuFault, GpuProcess, GpuState, Hear, InventoryError, NodeFacts, ProcessUtilization,
};

/// Restricts another driver to selected GPUs.
struct Chosen {
    all: Box<dyn Driver>,
    names: Vec<GpuSelector>,
    /// UUIDs of the selected GPUs observed so far.
    ours: Mutex<BTreeSet<GpuUuid>>,
}

/// Error for a selected GPU that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no GPU {name} on this node; there is {}", list(.known))]
pub struct NoSuchGpu {
    /// Selector that matches no GPU.
    pub name: GpuSelector,
    /// Index and UUID of the existing GPUs; the UUID is `None` if unreadable.
    pub known: Vec<(u32, Option<GpuUuid>)>,
}

/// Restricts a driver to the selected GPUs.
///
/// # Errors
/// If one of them does not exist. Without a driver this cannot be checked, and is no error.
pub fn choose(driver: Box<dyn Driver>, names: &[GpuSelector]) -> Result<Box<dyn Driver>, NoSuchGpu> {
    if let (Ok(gpus), Ok(facts)) = (driver.gpus(), driver.facts()) {
        let readable = gpus.iter().map(|gpu| (gpu.index, Some(gpu.uuid)));
        let mut known: Vec<_> =
            readable.chain(facts.unreadable.iter().map(|gpu| (gpu.index, None))).collect();
        known.sort_unstable();
        let is_there = |name: &GpuSelector| known.iter().any(|(index, uuid)| name.names(*index, *uuid));
        if let Some(name) = names.iter().copied().find(|name| !is_there(name)) {
            return Err(NoSuchGpu { name, known });
        }
    }
    Ok(Box::new(Chosen { all: driver, names: names.to_vec(), ours: Mutex::default() }))
}

fn list(known: &[(u32, Option<GpuUuid>)]) -> String {
    let gpu = |(index, uuid): &(u32, Option<GpuUuid>)| match uuid {
        Some(uuid) => format!("{index} ({uuid})"),
        None => format!("{index} (which does not tell its UUID)"),
    };
    if known.is_empty() { "none".into() } else { known.iter().map(gpu).collect::<Vec<_>>().join(", ") }
}

impl Chosen {
    fn has(&self, index: u32, uuid: Option<GpuUuid>) -> bool {
        self.names.iter().any(|name| name.names(index, uuid))
    }

    fn check(&self, gpu: GpuUuid) -> Result<(), InventoryError> {
        let known = || self.ours.lock().expect("nothing panics while it holds them").contains(&gpu);
        // The set is empty until the GPUs were listed once.
        let ours = known() || (self.gpus().is_ok() && known());
        if ours { Ok(()) } else { Err(InventoryError::UnknownGpu(gpu)) }
    }
}

impl Driver for Chosen {
    fn facts(&self) -> Result<NodeFacts, InventoryError> {
        let mut facts = self.all.facts()?;
        facts.unreadable.retain(|gpu| self.has(gpu.index, None));
        Ok(facts)
    }

    fn gpus(&self) -> Result<Vec<GpuFacts>, InventoryError> {
        let mut gpus = self.all.gpus()?;
        gpus.retain(|gpu| self.has(gpu.index, Some(gpu.uuid)));
        let mut ours = self.ours.lock().expect("nothing panics while it holds them");
        ours.extend(gpus.iter().map(|gpu| gpu.uuid));
        drop(ours);
        Ok(gpus)
    }

    fn state(&self, gpu: GpuUuid) -> Result<GpuState, InventoryError> {
        self.check(gpu)?;
        self.all.state(gpu)
    }

    fn processes(&self, gpu: GpuUuid) -> Result<Vec<GpuProcess>, InventoryError> {
        self.check(gpu)?;
        self.all.processes(gpu)
    }

    fn process_utilization(
        &self,
        gpu: GpuUuid,
        since_us: u64,
    ) -> Result<Vec<ProcessUtilization>, InventoryError> {
        self.check(gpu)?;
        self.all.process_utilization(gpu, since_us)
    }

    /// Passes on faults of selected GPUs, and those without a known GPU.
    fn follow_faults(&self, patience: Duration, hear: &mut Hear<'_>) -> Result<(), InventoryError> {
        let ours = |fault: &GpuFault| fault.gpu.is_none_or(|gpu| self.check(gpu).is_ok());
        self.all.follow_faults(patience, &mut |fault| hear(fault.filter(ours)))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::open;
    use crate::scripted::{ScriptedDriver, v100};
    use tranche_domain::fault::Xid;

    fn node() -> ScriptedDriver {
        ScriptedDriver::new((0..3).map(v100).collect())
    }

    #[test]
    fn only_selected_gpus_exist() {
        let names = [GpuSelector::Index(2), GpuSelector::Uuid(v100(0).uuid)];
        let driver = choose(Box::new(node()), &names).ok().unwrap();
        let there: Vec<u32> = driver.gpus().unwrap().iter().map(|gpu| gpu.index).collect();
        assert_eq!(there, [0, 2]);
        assert!(driver.state(v100(2).uuid).is_ok());
        let refused = InventoryError::UnknownGpu(v100(1).uuid);
        assert_eq!(driver.state(v100(1).uuid).unwrap_err(), refused);
        assert_eq!(driver.processes(v100(1).uuid).unwrap_err(), refused);
        assert_eq!(driver.process_utilization(v100(1).uuid, 0).unwrap_err(), refused);
    }

    #[test]
    fn missing_gpu_error_lists_existing_gpus() {
        let refused =
            choose(Box::new(node()), &[GpuSelector::Index(0), GpuSelector::Index(3)]).err().unwrap();
        let text = refused.to_string();
        assert!(text.starts_with("there is no GPU 3 on this node; there is 0 (GPU-"), "{text}");
        let none = open(Some("/nonexistent/libnvidia-ml.so.1".as_ref()));
        assert!(choose(none, &[GpuSelector::Index(3)]).is_ok(), "nobody knows");
    }

    #[test]
    fn faults_of_other_gpus_are_dropped() {
        let scripted = node();
        let driver = choose(Box::new(scripted.clone()), &[GpuSelector::Index(0)]).ok().unwrap();
        let mut next = [Some(v100(1).uuid), Some(v100(0).uuid), None].into_iter();
        let mut heard = Vec::new();
        // Faults are reported from the beginning of the call only.
        let mut hear = |fault: Option<GpuFault>| {
            heard.push(fault.map(|fault| fault.gpu));
            match next.next() {
                Some(gpu) => scripted.raise(GpuFault { gpu, xid: Xid::new(48) }),
                None => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        };
        driver.follow_faults(Duration::from_millis(1), &mut hear).unwrap();
        assert_eq!(heard, [None, None, Some(Some(v100(0).uuid)), Some(None)]);
    }
}
