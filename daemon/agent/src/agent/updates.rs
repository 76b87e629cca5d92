//! Changes to live slices: terms, labels, context reserves, and new root processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::access::Verb;
use tranche_domain::event::{Actor, EventKind, Happening};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::node::Refusal;
use tranche_domain::pod::PodContainer;
use tranche_domain::request::Resize;
use tranche_domain::slice::{ProcessId, Slice};
use tranche_domain::units::Bytes;
use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;

use super::notices::{changed, labelled};
use super::{Agent, Core};
use crate::access::Caller;
use crate::context::{self, Measurement};
use crate::failure::{RequestFailure, Requested};
use crate::sockets::FilesError;
use tranche_linux::process::Process;
use tranche_slices::slice_runtime::SliceRuntime;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

impl Agent {
    /// Changes the terms of a slice on its GPUs.
    pub(crate) fn resize(&self, name: &SliceName, resize: Resize, caller: &Caller) -> Requested<()> {
        let mut core = self.core();
        for verb in verbs(resize) {
            self.permit(&core, name, caller, verb)?;
        }
        self.refuse_other_version(&core, name)?;
        let before = core.node.clone();
        let slice = core.node.resize(name, resize)?.clone();
        core.node.hold_back(name, &before);
        if let Err(failure) = core.save() {
            core.node = before;
            return Err(failure);
        }
        point("resize: recorded");
        self.governor.change(&slice);
        let parts = core.contexts.with_reserve(&slice.parts);
        let runtime = core.live.get(name).cloned();
        let shrank = slice.parts.iter().any(|part| core.node.excess(name, part.gpu) > Bytes::ZERO);
        if let Some(runtime) = runtime.as_ref().filter(|_| shrank) {
            runtime.driver_use.invalidate();
        }
        drop(core);
        if let Some(runtime) = runtime {
            runtime.set_limits(&parts);
            self.note_excess(&runtime);
        }
        point("resize: in force");
        let actor = caller.actor();
        let changed = changed(&resize, &slice).into_iter();
        changed.for_each(|happening| self.telemetry.record(happening.asked_by(actor.clone())));
        self.notify_capacity();
        Ok(())
    }

    /// Sets the pod that a slice belongs to.
    pub(crate) fn label(
        &self,
        name: &SliceName,
        pod: Option<PodContainer>,
        caller: &Caller,
    ) -> Requested<()> {
        let mut core = self.core();
        self.permit(&core, name, caller, Verb::Label)?;
        let actor = caller.actor();
        let before = core.node.slice(name)?.pod.clone();
        if !core.node.label(name, pod)? {
            return Ok(());
        }
        if let Err(failure) = core.save() {
            core.node.label(name, before)?;
            return Err(failure);
        }
        self.telemetry.record(labelled(core.node.slice(name)?).asked_by(actor));
        Ok(())
    }

    /// Keeps memory committed that a shrunk slice still holds. The amount is its own report, or the driver's last
    /// figures. Returns true if it is over its cap by its own report.
    pub(crate) fn note_excess(&self, runtime: &SliceRuntime) -> bool {
        let over = runtime.trim();
        let mut core = self.core();
        let (name, mut news, mut doubtful) = (&runtime.name, false, false);
        for (gpu, excess) in &over {
            news |= core.node.confirm_excess(name, *gpu, *excess, runtime.driver_excess(*gpu));
            doubtful |= core.node.excess(name, *gpu) > *excess;
        }
        drop(core);
        runtime.driver_use.set_doubtful(doubtful);
        if news {
            self.notify_capacity();
        }
        over.iter().any(|(_, excess)| *excess > Bytes::ZERO)
    }

    /// Sets costs of contexts that were measured after the start.
    pub(crate) fn set_contexts(&self, costs: BTreeMap<GpuUuid, Measurement>) {
        let mut core = self.core();
        core.contexts.costs.extend(costs);
        self.publish_contexts(&core);
    }

    /// Publishes each slice's context reserves, and sets a condition for each one above the measured cost.
    /// Reserves depend on samples of the slice's own processes.
    pub(crate) fn review_reserves(&self) {
        let core = self.core();
        let conditions = &self.telemetry.conditions;
        for (name, runtime) in &core.live {
            let Ok(slice) = core.node.slice(name) else { continue };
            let raised = runtime.review_reserves(&core.contexts.with_reserve(&slice.parts));
            for (device, _) in runtime.devices() {
                let subject = ConditionSubject::Device(name.clone(), device.index());
                match raised.iter().find(|(of, ..)| *of == device) {
                    Some(raised) => {
                        conditions.set(Condition::ContextCostRaised, subject, raised_cost(name, raised));
                    }
                    None => conditions.clear(Condition::ContextCostRaised, subject),
                }
            }
        }
    }

    /// Discards the context costs that samples showed, and the measured ones. The latter stay in force until the next
    /// start repeats the measurement. Returns the slices and the models concerned.
    pub(crate) fn forget_reserves(&self, actor: Actor) -> Requested<(Vec<SliceName>, Vec<String>)> {
        let path = &self.layout.state;
        let failed = |cause| FilesError::Io { doing: "forget measurements in", path: path.clone(), cause };
        let models = context::forget(path).map_err(failed)?;
        let core = self.core();
        let forgotten = core.live.iter().filter(|(_, runtime)| runtime.forget_reserves());
        let slices: Vec<SliceName> = forgotten.map(|(name, _)| name.clone()).collect();
        drop(core);
        self.review_reserves();
        let evidence = format!(
            "what contexts take: shown in {} slices, measured of {} models",
            slices.len(),
            models.len()
        );
        self.telemetry.record(Happening::new(EventKind::ReservesForgotten, evidence).asked_by(actor));
        Ok((slices, models))
    }

    fn publish_contexts(&self, core: &Core) {
        for (name, runtime) in &core.live {
            if let Ok(slice) = core.node.slice(name) {
                runtime.set_limits(&core.contexts.with_reserve(&slice.parts));
            }
        }
    }

    /// Makes the client's process a root of a slice.
    pub(crate) fn enter(self: &Arc<Self>, name: &SliceName, caller: &Caller) -> Requested<Slice> {
        let id = caller.process()?;
        let mut core = self.core();
        self.permit(&core, name, caller, Verb::Enter)?;
        self.admit(&mut core, name, id)
    }

    /// Makes a process a root of a slice.
    pub(crate) fn admit(
        self: &Arc<Self>,
        core: &mut Core,
        name: &SliceName,
        id: ProcessId,
    ) -> Requested<Slice> {
        self.refuse_other_version(core, name)?;
        let root = Process::reopen(id).map_err(|_| RequestFailure::CallerGone(id.pid))?;
        let slice = core.node.slice(name)?.clone();
        let runtime = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let root = Arc::new(root);
        if runtime.enter(&root).map_err(|_| RequestFailure::Ending(name.clone()))? {
            self.reaper.watch_root(&runtime, Arc::clone(&root));
        }
        point("enter: entered");
        root.admit_to_gpus(runtime.generation)
            .map_err(|cause| RequestFailure::NoGpus(name.clone(), cause))?;
        core.save()?;
        point("enter: recorded");
        Ok(slice)
    }
}

fn raised_cost(slice: &SliceName, (device, reserve, measured): &(DeviceSlot, Bytes, Bytes)) -> String {
    format!(
        "contexts of slice {slice} take more than was measured on its device {}: {reserve} instead of {measured} are charged to this slice \
         for each, as long as its processes show that",
        device.index()
    )
}

/// Permissions that a change needs.
fn verbs(resize: Resize) -> impl Iterator<Item = Verb> {
    let freezes = resize.frozen.is_some();
    let resizes = Resize { frozen: None, ..resize } != Resize::default();
    [resizes.then_some(Verb::Resize), freezes.then_some(Verb::Freeze)].into_iter().flatten()
}
