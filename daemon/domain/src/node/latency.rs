//! Admission of latency targets.

use alloc::vec::Vec;

use super::{Node, Refusal};
use crate::admission::holds_latency;
use crate::compute::Latency;
use crate::id::{GpuUuid, SliceName};
use crate::placement::{self, Demand, GpuRoom, PlacedPart};
use crate::request::{ComputeMode, SliceRequest};
use crate::slice::Slice;

impl Node {
    /// Places a demand on GPUs where the request's latency target can be held beside those of others.
    pub(super) fn place(
        &self,
        request: &SliceRequest,
        demand: Demand,
        rooms: &[GpuRoom],
    ) -> Result<Vec<PlacedPart>, Refusal> {
        let Some(target) = request.latency else {
            return Ok(placement::place(rooms, demand, &request.gpus)?);
        };
        check_mode(request.mode)?;
        let holds = |room: &&GpuRoom| self.hold_latency(room.uuid, target, None).is_ok();
        let apt: Vec<GpuRoom> = rooms.iter().filter(holds).cloned().collect();
        if let Ok(places) = placement::place(&apt, demand, &request.gpus) {
            return Ok(places);
        }
        let places = placement::place(rooms, demand, &request.gpus)?;
        for place in &places {
            self.hold_latency(place.gpu, target, None)?;
        }
        Ok(places)
    }

    /// Checks that the new target of a slice can be held on each of its GPUs.
    pub(super) fn admit_latency(&self, slice: &Slice, latency: Option<Latency>) -> Result<(), Refusal> {
        let Some(target) = latency else { return Ok(()) };
        check_mode(slice.mode)?;
        slice.parts.iter().try_for_each(|part| self.hold_latency(part.gpu, target, Some(&slice.name)))
    }

    /// Latency targets of the slices on a GPU, in the order of their names.
    pub(super) fn latencies(&self, gpu: GpuUuid) -> impl Iterator<Item = (&Slice, Latency)> {
        let present = self.slices.values().filter(move |slice| slice.part_of(gpu).is_some());
        present.filter_map(|slice| Some((slice, slice.latency?)))
    }

    /// Checks that a target can be held on a GPU beside those of the slices there but `own`.
    fn hold_latency(&self, gpu: GpuUuid, target: Latency, own: Option<&SliceName>) -> Result<(), Refusal> {
        let others = self.latencies(gpu).filter(|(slice, _)| Some(&slice.name) != own);
        let others: Vec<Latency> = others.map(|(_, latency)| latency).collect();
        if holds_latency(target, &others) {
            return Ok(());
        }
        let index = self.gpus.iter().find(|known| known.uuid == gpu).map_or(0, |known| known.index);
        let tightest = others.iter().copied().fold(target, Latency::min);
        let least = Latency::least_of(others.len() + 1);
        Err(Refusal::Latency { index, target, others: others.len(), tightest, least, moves: own.is_none() })
    }
}

fn check_mode(mode: ComputeMode) -> Result<(), Refusal> {
    match mode {
        ComputeMode::BestEffort => Err(Refusal::Contradiction(
            "a best-effort slice waits until others leave the GPU idle, so no latency can be held for it: \
             leave the latency out, or make the slice fair",
        )),
        ComputeMode::Fair | ComputeMode::Strict => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gpu, Origin};
    use super::*;
    use crate::id::GpuSelector;
    use crate::request::{Fraction, Resize, Share};
    use crate::units::Bytes;
    use alloc::string::ToString;
    use alloc::vec;

    const ORIGIN: Origin = Origin { uid: 1, now_unix_ms: 0, job: None };

    fn node(gpus: u8) -> Node {
        let gpu = |index: u8| Gpu {
            index: index.into(),
            uuid: GpuUuid::from_bytes([index + 1; 16]),
            island: 0,
            capacity: Bytes::mib(10_000),
            obstacle: None,
        };
        Node::new((0..gpus).map(gpu).collect())
    }

    fn request(millis: Option<u32>) -> SliceRequest {
        SliceRequest {
            latency: millis.map(|millis| Latency::try_from(millis * 1000).unwrap()),
            ..SliceRequest::of("0.2".parse::<Share>().unwrap())
        }
    }

    #[test]
    fn target_that_would_break_another_is_refused_and_changes_nothing() {
        let mut node = node(1);
        node.create(&request(Some(3)), ORIGIN).unwrap();
        node.create(&request(None), ORIGIN).unwrap();
        let before = node.clone();
        let refusal = node.create(&request(Some(50)), ORIGIN).unwrap_err();
        assert!(refusal.to_string().contains("GPU 0"), "{refusal}");
        assert!(refusal.may_pass());
        assert_eq!(node, before);
    }

    #[test]
    fn target_moves_to_a_gpu_where_it_can_be_held() {
        let mut node = node(2);
        let first = node.create(&request(Some(3)), ORIGIN).unwrap().parts[0].gpu;
        let second = node.create(&request(Some(3)), ORIGIN).unwrap().parts[0].gpu;
        assert_ne!(first, second);
        let named = SliceRequest { gpus: vec![GpuSelector::Index(0)], ..request(Some(3)) };
        assert!(matches!(node.create(&named, ORIGIN), Err(Refusal::Latency { index: 0, others: 1, .. })));
        let name = node.slices().keys().next().unwrap().clone();
        node.delete(&name).unwrap();
        node.create(&named, ORIGIN).unwrap();
    }

    #[test]
    fn resized_target_is_admitted_beside_the_others_only() {
        let mut node = node(1);
        let first = node.create(&request(Some(3)), ORIGIN).unwrap().name.clone();
        let second = node.create(&request(None), ORIGIN).unwrap().name.clone();
        let to = |millis: u32| Resize {
            latency: Some((millis > 0).then(|| Latency::try_from(millis * 1000).unwrap())),
            ..Resize::default()
        };
        assert_eq!(
            node.resize(&first, to(2)).unwrap().latency,
            Some(Latency::LEAST),
            "its own does not count"
        );
        let before = node.clone();
        let refusal = node.resize(&second, to(50)).unwrap_err();
        assert!(refusal.to_string().ends_with("ask for more, or leave it out"), "{refusal}");
        assert_eq!(node, before);
        node.resize(&first, to(4)).unwrap();
        assert_eq!(node.resize(&second, to(50)).unwrap().latency.map(Latency::micros), Some(50_000));
        assert!(matches!(node.resize(&first, to(3)), Err(Refusal::Latency { others: 1, .. })));
        let fraction = Fraction::try_from(100).ok();
        node.resize(&first, Resize { fraction, ..Resize::default() }).unwrap();
        assert!(node.slice(&first).unwrap().latency.is_some(), "another change leaves it");
        assert_eq!(node.resize(&first, to(0)).unwrap().latency, None);
    }

    #[test]
    fn best_effort_slice_is_given_no_target() {
        let mut node = node(1);
        let idle = SliceRequest { mode: ComputeMode::BestEffort, ..request(None) };
        let name = node.create(&idle, ORIGIN).unwrap().name.clone();
        let target = Resize { latency: Some(Some(Latency::MOST)), ..Resize::default() };
        assert!(matches!(node.resize(&name, target), Err(Refusal::Contradiction(_))));
        let none = Resize { latency: Some(None), ..Resize::default() };
        assert_eq!(node.resize(&name, none).unwrap().latency, None);
    }

    #[test]
    fn best_effort_has_no_target() {
        let request = SliceRequest { mode: ComputeMode::BestEffort, ..request(Some(5)) };
        assert!(matches!(node(1).create(&request, ORIGIN), Err(Refusal::Contradiction(_))));
    }
}
