//! GPUs that take no further slices because an operator said so.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Node, Refusal};
use crate::cordon::{Cordon, Cordoned};
use crate::id::{GpuSelector, GpuUuid, SliceName};
use crate::placement;

impl Node {
    /// The cordons, those of GPUs that are not here now included.
    pub const fn cordons(&self) -> &BTreeMap<GpuUuid, Cordon> {
        &self.cordons
    }

    /// Takes over the cordons that an earlier daemon knew.
    pub fn restore_cordons(&mut self, cordons: BTreeMap<GpuUuid, Cordon>) {
        self.cordons = cordons;
    }

    /// Keeps further slices off these GPUs: off all of them, or nothing changes. A cordon that stands is kept, unless
    /// the new one has a reason.
    pub fn cordon(&mut self, gpus: &[GpuSelector], cordon: &Cordon) -> Result<Vec<Cordoned>, Refusal> {
        self.each(gpus, |standing| match standing {
            Some(standing) if cordon.reason.is_none() => Some(standing),
            _ => Some(cordon.clone()),
        })
    }

    /// Lets slices on these GPUs again: on all of them, or nothing changes.
    pub fn uncordon(&mut self, gpus: &[GpuSelector]) -> Result<Vec<Cordoned>, Refusal> {
        self.each(gpus, |_| None)
    }

    fn each(
        &mut self,
        gpus: &[GpuSelector],
        next: impl Fn(Option<Cordon>) -> Option<Cordon>,
    ) -> Result<Vec<Cordoned>, Refusal> {
        if gpus.is_empty() {
            return Err(Refusal::Contradiction("no GPU is named: say which, by index or UUID"));
        }
        let chosen = placement::select(&self.rooms(), gpus)?;
        let change = |room: placement::Room| {
            let cordon = next(room.cordon.clone());
            match &cordon {
                Some(cordon) => self.cordons.insert(room.uuid, cordon.clone()),
                None => self.cordons.remove(&room.uuid),
            };
            Cordoned { index: room.index, uuid: room.uuid, changed: cordon != room.cordon, cordon }
        };
        Ok(chosen.into_iter().map(change).collect())
    }

    /// The slices that are on a GPU.
    pub fn slices_on(&self, gpu: GpuUuid) -> impl Iterator<Item = &SliceName> {
        self.slices.values().filter(move |slice| slice.part_of(gpu).is_some()).map(|slice| &slice.name)
    }
}
