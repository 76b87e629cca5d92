//! Cordons: GPUs that take no new slices by order of an operator.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Node, Refusal};
use crate::cordon::{Cordon, Cordoned};
use crate::id::{GpuSelector, GpuUuid, SliceName};
use crate::placement;

impl Node {
    /// All cordons, including those of absent GPUs.
    pub const fn cordons(&self) -> &BTreeMap<GpuUuid, Cordon> {
        &self.cordons
    }

    /// Restores the cordons of an earlier daemon.
    pub fn restore_cordons(&mut self, cordons: BTreeMap<GpuUuid, Cordon>) {
        self.cordons = cordons;
    }

    /// Cordons all of these GPUs or, on error, none. An existing cordon stays unless the new one has a
    /// reason.
    pub fn cordon(&mut self, gpus: &[GpuSelector], cordon: &Cordon) -> Result<Vec<Cordoned>, Refusal> {
        self.each(gpus, |standing| match standing {
            Some(standing) if cordon.reason.is_none() => Some(standing),
            _ => Some(cordon.clone()),
        })
    }

    /// Uncordons all of these GPUs or, on error, none.
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
        let change = |room: placement::GpuRoom| {
            let cordon = next(room.cordon.clone());
            match &cordon {
                Some(cordon) => self.cordons.insert(room.uuid, cordon.clone()),
                None => self.cordons.remove(&room.uuid),
            };
            Cordoned { index: room.index, uuid: room.uuid, changed: cordon != room.cordon, cordon }
        };
        Ok(chosen.into_iter().map(change).collect())
    }

    /// The slices with a part of this GPU, without those that are parked.
    pub fn slices_on(&self, gpu: GpuUuid) -> impl Iterator<Item = &SliceName> {
        let present = self.slices.values().filter(|slice| !slice.is_away());
        present.filter(move |slice| slice.part_of(gpu).is_some()).map(|slice| &slice.name)
    }
}
