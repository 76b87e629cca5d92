//! How slices change while they are lived in, and who enters them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::access::Verb;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::node::Refusal;
use tranche_domain::pod::PodContainer;
use tranche_domain::request::Resize;
use tranche_domain::slice::{ProcessId, Slice};
use tranche_domain::units::Bytes;
use tranche_shm::crash::point;

use super::telling::{changed, labelled};
use super::{Agent, Core};
use crate::access::Caller;
use crate::failure::Failure;
use crate::process::Process;
use crate::reaper;
use crate::tenancy::Tenancy;

impl Agent {
    /// Changes a slice's size where it is.
    pub(crate) fn resize(&self, name: &SliceName, resize: Resize, caller: &Caller) -> Result<(), Failure> {
        let mut core = self.core();
        for verb in verbs(resize) {
            self.permit(&core, name, caller, verb)?;
        }
        self.refuse_other_version(&core, name)?;
        let before = core.node.clone();
        let slice = core.node.resize(name, resize)?.clone();
        core.node.hold_back(name, &before);
        if let Err(failure) = core.save(&self.layout) {
            core.node = before;
            return Err(failure);
        }
        point("resize: recorded");
        self.governor.change(&slice);
        let parts = core.contexts.with_reserve(&slice.parts);
        let tenancy = core.live.get(name).cloned();
        let shrank = slice.parts.iter().any(|part| core.node.excess(name, part.gpu) > Bytes::ZERO);
        if let Some(tenancy) = tenancy.as_ref().filter(|_| shrank) {
            tenancy.look_away();
        }
        drop(core);
        if let Some(tenancy) = tenancy {
            tenancy.set_limits(&parts);
            self.note_excess(&tenancy);
        }
        point("resize: in force");
        changed(&resize, &slice).into_iter().for_each(|happening| self.events.record(happening));
        self.room_appeared();
        Ok(())
    }

    /// Says whom a slice is for.
    pub(crate) fn label(
        &self,
        name: &SliceName,
        pod: Option<PodContainer>,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let mut core = self.core();
        self.permit(&core, name, caller, Verb::Label)?;
        let before = core.node.slice(name)?.pod.clone();
        if !core.node.label(name, pod)? {
            return Ok(());
        }
        if let Err(failure) = core.save(&self.layout) {
            core.node.label(name, before)?;
            return Err(failure);
        }
        self.events.record(labelled(core.node.slice(name)?));
        Ok(())
    }

    /// Keeps what a shrunk slice still holds from being promised to others, be it by its own word or by what the driver
    /// was last seen to hold for it; says whether it is over its cap by its own word.
    pub(crate) fn note_excess(&self, tenancy: &Tenancy) -> bool {
        let over = tenancy.trim();
        let mut core = self.core();
        let (name, mut news, mut doubted) = (&tenancy.name, false, false);
        for (gpu, excess) in &over {
            news |= core.node.confirm_excess(name, *gpu, *excess, tenancy.seen_beyond(*gpu));
            doubted |= core.node.excess(name, *gpu) > *excess;
        }
        drop(core);
        tenancy.doubt(doubted);
        if news {
            self.room_appeared();
        }
        over.iter().any(|(_, excess)| *excess > Bytes::ZERO)
    }

    /// Sets what contexts cost on GPUs, where that became known after the start.
    pub(crate) fn set_contexts(&self, costs: BTreeMap<GpuUuid, Bytes>) {
        let mut core = self.core();
        core.contexts.costs.extend(costs);
        self.publish_contexts(&core);
    }

    /// A process was seen for whose context the driver took that much: from now on as much is charged before
    /// one is made, within reason.
    pub(crate) fn learn_reserve(&self, gpu: GpuUuid, cost: Bytes) {
        let Some(facts) = self.gpus.iter().find(|facts| facts.uuid == gpu) else { return };
        let version = self.facts.as_ref().map_or("", |facts| &facts.driver_version);
        let same = self.gpus.iter().filter(|other| other.name == facts.name).map(|other| other.uuid);
        let model = format!("{version} {}", facts.name);
        let mut core = self.core();
        let Some(reserve) = core.contexts.learn(&self.layout.state, model, same.collect(), cost) else {
            return;
        };
        let about = format!("contexts on {}", facts.name);
        core.notes.retain(|note| !note.starts_with(&about));
        core.notes
            .push(format!("{about} took more than was measured: {reserve} are charged for each from now on"));
        self.publish_contexts(&core);
    }

    fn publish_contexts(&self, core: &Core) {
        for (name, tenancy) in &core.live {
            if let Ok(slice) = core.node.slice(name) {
                tenancy.set_limits(&core.contexts.with_reserve(&slice.parts));
            }
        }
    }

    /// Makes the caller a root of a slice.
    pub(crate) fn enter(self: &Arc<Self>, name: &SliceName, caller: &Caller) -> Result<Slice, Failure> {
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
    ) -> Result<Slice, Failure> {
        self.refuse_other_version(core, name)?;
        let root = Process::reopen(id).map_err(|_| Failure::CallerGone(id.pid))?;
        let slice = core.node.slice(name)?.clone();
        let tenancy = core.live.get(name).cloned().ok_or_else(|| Refusal::Unknown(name.clone()))?;
        let root = Arc::new(root);
        if tenancy.enter(&root).map_err(|_| Failure::Ending(name.clone()))? {
            reaper::watch_root(self, &tenancy, root);
        }
        point("enter: entered");
        core.save(&self.layout)?;
        point("enter: recorded");
        Ok(slice)
    }
}

/// What somebody does who asks for a change: one of them, or both.
fn verbs(resize: Resize) -> impl Iterator<Item = Verb> {
    let freezes = resize.frozen.is_some();
    let resizes = Resize { frozen: None, ..resize } != Resize::default();
    [resizes.then_some(Verb::Resize), freezes.then_some(Verb::Freeze)].into_iter().flatten()
}
