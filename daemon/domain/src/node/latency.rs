//! Admission of latency targets.

use alloc::vec::Vec;

use super::{Node, Refusal};
use crate::compute::Latency;
use crate::id::GpuUuid;
use crate::placement::{self, Demand, GpuRoom, PlacedPart};
use crate::request::{ComputeMode, SliceRequest};

impl Node {
    /// Places a demand on GPUs where the request's latency target can be held beside those of others.
    pub(super) fn place(&self, request: &SliceRequest, demand: Demand) -> Result<Vec<PlacedPart>, Refusal> {
        let rooms = self.rooms();
        let Some(target) = request.latency else {
            return Ok(placement::place(&rooms, demand, &request.gpus)?);
        };
        if request.mode == ComputeMode::BestEffort {
            return Err(Refusal::Contradiction(
                "a best-effort slice waits until others leave the GPU idle, so no latency can be held for it: \
                 leave the latency out, or make the slice fair",
            ));
        }
        let apt: Vec<GpuRoom> =
            rooms.iter().filter(|room| self.tightest(room.uuid, target).is_ok()).cloned().collect();
        if let Ok(places) = placement::place(&apt, demand, &request.gpus) {
            return Ok(places);
        }
        let places = placement::place(&rooms, demand, &request.gpus)?;
        for place in &places {
            self.tightest(place.gpu, target)?;
        }
        Ok(places)
    }

    /// The least target on a GPU with one more, or a refusal if that cannot be held.
    fn tightest(&self, gpu: GpuUuid, target: Latency) -> Result<Latency, Refusal> {
        let present = self.slices.values().filter(|slice| slice.part_of(gpu).is_some());
        let targets: Vec<Latency> = present.filter_map(|slice| slice.latency).collect();
        let least = Latency::least_of(targets.len() + 1);
        let tightest = targets.iter().copied().fold(target, Latency::min);
        if tightest >= least {
            return Ok(tightest);
        }
        let index = self.gpus.iter().find(|known| known.uuid == gpu).map_or(0, |known| known.index);
        Err(Refusal::Latency { index, target, others: targets.len(), tightest, least })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gpu, Origin};
    use super::*;
    use crate::id::GpuSelector;
    use crate::request::Share;
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
            name: None,
            share: "0.2".parse::<Share>().unwrap(),
            memory: None,
            compute: None,
            limit: None,
            mode: ComputeMode::Fair,
            priority: crate::compute::Priority::DEFAULT,
            latency: millis.map(|millis| Latency::try_from(millis * 1000).unwrap()),
            gang: None,
            gpus: Vec::new(),
            ephemeral: false,
            pod: None,
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
    fn best_effort_has_no_target() {
        let request = SliceRequest { mode: ComputeMode::BestEffort, ..request(Some(5)) };
        assert!(matches!(node(1).create(&request, ORIGIN), Err(Refusal::Contradiction(_))));
    }
}
