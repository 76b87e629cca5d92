use super::*;
use crate::compute::Priority;
use crate::cordon::Cordon;
use crate::id::GpuSelector;
use crate::jobs::JobId;
use crate::request::{ComputeMode, Fraction, Share};
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

const ORIGIN: Origin = Origin { uid: 1000, now_unix_ms: 5, job: None };

pub(crate) fn node(gpus: u32) -> Node {
    let gpu = |index: u32| Gpu {
        index,
        uuid: GpuUuid::from_bytes(u128::from(index).to_be_bytes()),
        island: index / 4,
        capacity: Bytes::mib(32510),
        obstacle: None,
    };
    Node::new((0..gpus).map(gpu).collect())
}

pub(crate) fn request(share: &str) -> SliceRequest {
    SliceRequest::of(share.parse().unwrap())
}

fn permille(share: u32) -> Permille {
    Permille::try_from(share).unwrap()
}

pub(crate) fn name(text: &str) -> SliceName {
    text.parse().unwrap()
}

#[test]
fn half_of_a_v100_gets_16255_mib_and_a_name() {
    let mut node = node(1);
    let slice = node.create(&request("0.5"), ORIGIN).unwrap().clone();
    assert_eq!(slice.name, name("slice-1"));
    assert_eq!(slice.parts[0].cap, Bytes::mib(16255));
    assert_eq!((slice.compute, slice.owner_uid), (permille(500), 1000));
    assert_eq!(node.create(&request("0.5"), ORIGIN).unwrap().name, name("slice-2"));
    node.delete(&name("slice-1")).unwrap();
    assert_eq!(node.create(&request("0.1"), ORIGIN).unwrap().name, name("slice-1"));
}

#[test]
fn a_name_taken_is_refused() {
    let mut node = node(2);
    let named = SliceRequest { name: Some(name("a")), ..request("0.1") };
    node.create(&named, ORIGIN).unwrap();
    assert_eq!(node.create(&named, ORIGIN), Err(Refusal::Exists(name("a"))));
}

#[test]
fn memory_and_compute_replace_what_the_share_implies() {
    let mut node = node(1);
    let asked =
        SliceRequest { memory: Some(Bytes::mib(1000)), compute: Some(permille(300)), ..request("0.5") };
    let slice = node.create(&asked, ORIGIN).unwrap();
    assert_eq!((slice.parts[0].cap, slice.compute), (Bytes::mib(1000), permille(300)));
}

#[test]
fn best_effort_takes_no_compute_from_anybody() {
    let mut node = node(1);
    let idle = SliceRequest { mode: ComputeMode::BestEffort, ..request("0.5") };
    assert_eq!(node.create(&idle, ORIGIN).unwrap().compute, Permille::ZERO);
    let both = SliceRequest { compute: Some(permille(100)), ..idle.clone() };
    assert!(matches!(node.create(&both, ORIGIN), Err(Refusal::Contradiction(_))));
    let larger = Resize { fraction: Fraction::try_from(700).ok(), ..Resize::default() };
    assert_eq!(node.resize(&name("slice-1"), larger).unwrap().guaranteed(), Permille::ZERO);
    let nothing = SliceRequest { compute: Some(Permille::ZERO), ..request("0.5") };
    assert!(matches!(node.create(&nothing, ORIGIN), Err(Refusal::Contradiction(_))));
}

#[test]
fn the_mode_says_the_limit_where_nobody_else_does() {
    let mut node = node(3);
    let made = |node: &mut Node, mode, limit| {
        let asked = SliceRequest { mode, limit, ..request("0.3") };
        node.create(&asked, ORIGIN).map(|slice| slice.limit)
    };
    assert_eq!(made(&mut node, ComputeMode::Fair, None), Ok(Permille::WHOLE));
    assert_eq!(made(&mut node, ComputeMode::Strict, None), Ok(permille(300)));
    assert_eq!(made(&mut node, ComputeMode::Fair, Some(permille(400))), Ok(permille(400)));
    assert_eq!(made(&mut node, ComputeMode::BestEffort, Some(permille(50))), Ok(permille(50)));
    let below = Refusal::LimitBelowRequest { limit: permille(299), request: permille(300) };
    assert_eq!(made(&mut node, ComputeMode::Fair, Some(permille(299))), Err(below));
    for (mode, limit) in [(ComputeMode::Strict, 400), (ComputeMode::BestEffort, 0)] {
        let refused = made(&mut node, mode, Some(permille(limit)));
        assert!(matches!(refused, Err(Refusal::Contradiction(_))), "{refused:?}");
    }
}

#[test]
fn a_limit_follows_a_strict_request_and_stays_above_a_fair_one() {
    let mut node = node(2);
    let strict = SliceRequest { mode: ComputeMode::Strict, ..request("0.3") };
    let strict = node.create(&strict, ORIGIN).unwrap().name.clone();
    let fair = SliceRequest { limit: Some(permille(400)), ..request("0.3") };
    let fair = node.create(&fair, ORIGIN).unwrap().name.clone();
    let compute = |share| Resize { compute: Some(permille(share)), ..Resize::default() };
    let limit = |share| Resize { limit: Some(permille(share)), ..Resize::default() };
    assert_eq!(node.resize(&strict, compute(200)).unwrap().limit, permille(200));
    assert!(matches!(node.resize(&strict, limit(300)), Err(Refusal::Contradiction(_))));
    let before = node.clone();
    let refused = node.resize(&fair, compute(500)).unwrap_err().to_string();
    assert!(refused.contains("limit of 40 %") && refused.contains("request of 50 %"), "{refused}");
    assert_eq!(node, before);
    let both = Resize { limit: Some(permille(600)), ..compute(500) };
    let slice = node.resize(&fair, both).unwrap();
    assert_eq!((slice.compute, slice.limit), (permille(500), permille(600)));
}

#[test]
fn whole_gpus_can_be_ranked_and_frozen_like_fractions() {
    let mut node = node(2);
    let name = node.create(&request("2"), ORIGIN).unwrap().name.clone();
    let priority = Priority::try_from(7).ok();
    let slice = node.resize(&name, Resize { priority, frozen: Some(true), ..Resize::default() }).unwrap();
    assert_eq!((Some(slice.priority), slice.frozen), (priority, true));
    let slice = node.resize(&name, Resize { frozen: Some(false), ..Resize::default() }).unwrap();
    assert_eq!((Some(slice.priority), slice.frozen), (priority, false), "what is absent stays");
    let half = Resize { limit: Some(permille(500)), ..Resize::default() };
    assert!(matches!(node.resize(&name, half), Err(Refusal::LimitBelowRequest { .. })));
}

#[test]
fn whole_gpus_are_given_entirely() {
    let mut node = node(4);
    let slice = node.create(&request("2"), ORIGIN).unwrap().clone();
    assert_eq!(slice.parts.len(), 2);
    assert!(slice.parts.iter().all(|part| part.cap == Bytes::mib(32510)));
    let other = node.create(&request("0.001"), ORIGIN).unwrap();
    assert!(slice.part_of(other.parts[0].gpu).is_none());
    let contradiction = SliceRequest { memory: Some(Bytes::mib(1)), ..request("2") };
    assert!(matches!(node.create(&contradiction, ORIGIN), Err(Refusal::Contradiction(_))));
    assert!(matches!(node.create(&request("17"), ORIGIN), Err(Refusal::Contradiction(_))));
    let resize = Resize { memory: Some(Bytes::mib(5)), ..Resize::default() };
    assert_eq!(node.resize(&slice.name, resize), Err(Refusal::WholeGpus(slice.name)));
}

/// These GPUs of the node.
fn on<const COUNT: usize>(indices: [u32; COUNT]) -> Vec<GpuSelector> {
    indices.map(GpuSelector::Index).into()
}

#[test]
fn a_part_of_each_of_several_gpus_is_one_slice_and_grows_on_all_or_none() {
    let mut node = node(3);
    let both = SliceRequest { gpus: on([2, 0]), ..request("0.5") };
    let slice = node.create(&both, ORIGIN).unwrap().clone();
    let gpus: Vec<_> = slice.parts.iter().map(|part| part.gpu).collect();
    assert_eq!(gpus, [node.gpus()[0].uuid, node.gpus()[2].uuid]);
    assert!(slice.parts.iter().all(|part| part.cap == Bytes::mib(16255)) && slice.compute == permille(500));
    node.create(&SliceRequest { gpus: on([2]), ..request("0.3") }, ORIGIN).unwrap();
    let to = |share| Resize { fraction: Some(Fraction::try_from(share).unwrap()), ..Resize::default() };
    let before = node.clone();
    assert!(matches!(node.resize(&slice.name, to(800)), Err(Refusal::CannotGrow { index: 2, .. })));
    assert_eq!(node, before);
    let grown = node.resize(&slice.name, to(700)).unwrap();
    assert!(grown.parts.iter().all(|part| part.cap == Bytes::mib(22757)));
}

#[test]
fn whole_gpus_that_are_named_are_those() {
    let mut node = node(4);
    let slice = node.create(&SliceRequest { gpus: on([3, 1]), ..request("2") }, ORIGIN).unwrap();
    let gpus: Vec<_> = slice.parts.iter().map(|part| part.gpu).collect();
    assert_eq!(gpus, [node.gpus()[1].uuid, node.gpus()[3].uuid]);
    let fewer = SliceRequest { gpus: on([0]), ..request("2") };
    assert!(matches!(node.create(&fewer, ORIGIN), Err(Refusal::Contradiction(_))));
    let taken = SliceRequest { gpus: on([0, 1]), ..request("2") };
    assert!(node.create(&taken, ORIGIN).unwrap_err().may_pass());
}

#[test]
fn a_slice_grows_only_where_it_fits() {
    let mut node = node(2);
    let on_first = SliceRequest { gpus: vec![GpuSelector::Index(0)], ..request("0.5") };
    let first = node.create(&on_first, ORIGIN).unwrap().name.clone();
    node.create(&SliceRequest { gpus: vec![GpuSelector::Index(0)], ..request("0.3") }, ORIGIN).unwrap();
    let to = |share| Resize { fraction: Some(Fraction::try_from(share).unwrap()), ..Resize::default() };
    let before = node.clone();
    let refused = node.resize(&first, to(800)).unwrap_err().to_string();
    assert!(refused.contains("at most 22757 MiB and 70 % of compute"), "{refused}");
    assert_eq!(node, before);
    assert_eq!(node.resize(&first, to(700)).unwrap().parts[0].cap, Bytes::mib(22757));
    assert_eq!(node.resize(&first, to(100)).unwrap().compute, permille(100));
    let memory = Resize { memory: Some(Bytes::mib(64)), ..Resize::default() };
    let slice = node.resize(&first, memory).unwrap();
    assert_eq!((slice.parts[0].cap, slice.compute), (Bytes::mib(64), permille(100)), "what is absent stays");
    assert_eq!(node.resize(&name("nobody"), memory), Err(Refusal::Unknown(name("nobody"))));
}

#[test]
fn a_jobs_slice_stays_as_large_and_as_urgent_as_its_job_and_can_be_frozen() {
    let mut node = node(1);
    let job = Some(MemberId { job: JobId(3), index: 0 });
    let made = node.create(&request("0.1"), Origin { job, ..ORIGIN }).unwrap().clone();
    let changes = [
        Resize { fraction: Some(Fraction::try_from(200).unwrap()), ..Resize::default() },
        Resize { memory: Some(Bytes::mib(9)), ..Resize::default() },
        Resize { compute: Some(permille(200)), ..Resize::default() },
        Resize { latency: Some(None), ..Resize::default() },
        Resize { priority: Some(Priority::new(1)), frozen: Some(true), ..Resize::default() },
    ];
    for change in changes {
        assert_eq!(node.resize(&made.name, change), Err(Refusal::OfJob(made.name.clone())));
        assert_eq!(node.slice(&made.name), Ok(&made));
    }
    let told = Refusal::OfJob(made.name.clone()).to_string();
    assert!(told.contains("another -g") && told.contains("delete the job"), "{told}");
    let lesser = Resize { limit: Some(permille(300)), frozen: Some(true), ..Resize::default() };
    assert!(node.resize(&made.name, lesser).unwrap().frozen);
}

#[test]
fn only_what_was_made_for_nobody_can_be_claimed() {
    let mut node = node(1);
    let [first, second] = [3, 4].map(|job| MemberId { job: JobId(job), index: 0 });
    let made = node.create(&request("0.1"), ORIGIN).unwrap().name.clone();
    for member in [first, second] {
        node.claim(&made, member);
        assert_eq!(node.slice(&made).unwrap().job, Some(first));
    }
}

#[test]
fn only_a_lack_of_room_is_worth_waiting_for() {
    let mut node = node(1);
    node.create(&request("0.5"), ORIGIN).unwrap();
    assert!(node.check(&request("0.6")).unwrap_err().may_pass());
    assert!(!node.check(&request("2")).unwrap_err().may_pass());
    let elsewhere = SliceRequest { gpus: vec![GpuSelector::Index(9)], ..request("0.1") };
    assert!(!node.check(&elsewhere).unwrap_err().may_pass());
}

#[test]
fn a_slice_from_before_needs_its_gpu() {
    let mut before = node(2);
    let slice = before.create(&SliceRequest { gpus: vec![GpuSelector::Index(1)], ..request("0.5") }, ORIGIN);
    let slice = slice.unwrap().clone();
    let mut after = node(1);
    assert!(matches!(after.adopt(slice.clone()), Err(Refusal::Stranded { .. })));
    let mut after = node(2);
    after.adopt(slice.clone()).unwrap();
    assert_eq!(after, before);
    assert!(matches!(after.adopt(slice), Err(Refusal::Exists(_))));
}

fn cordon(reason: Option<&str>) -> Cordon {
    let reason = reason.map(|reason| reason.parse().unwrap());
    Cordon { by_uid: 0, since_unix_ms: 5, reason, told: "cordoned by root".to_string() }
}

#[test]
fn cordoning_concerns_all_of_the_gpus_that_are_named_or_none() {
    let mut node = node(3);
    let gpus = |gpus: &[u32]| gpus.iter().copied().map(GpuSelector::Index).collect::<Vec<_>>();
    for bad in [&[0, 9][..], &[1, 1], &[]] {
        assert!(node.cordon(&gpus(bad), &cordon(None)).is_err(), "{bad:?}");
        assert!(node.uncordon(&gpus(bad)).is_err(), "{bad:?}");
    }
    assert!(node.cordons().is_empty());
    let done = node.cordon(&gpus(&[2, 0]), &cordon(None)).unwrap();
    assert_eq!(done.iter().map(|gpu| (gpu.index, gpu.changed)).collect::<Vec<_>>(), [(0, true), (2, true)]);
    let uuid = GpuSelector::Uuid(node.gpus()[0].uuid);
    assert!(node.uncordon(&[uuid]).unwrap()[0].changed);
    assert!(!node.uncordon(&[uuid]).unwrap()[0].changed);
    assert_eq!(node.cordons().keys().collect::<Vec<_>>(), [&node.gpus()[2].uuid]);
}

#[test]
fn a_cordon_that_stands_is_kept_unless_there_is_a_reason_to_tell() {
    let mut node = node(1);
    let gpu = [GpuSelector::Index(0)];
    let mine = Cordon { by_uid: 7, ..cordon(Some("fan")) };
    node.cordon(&gpu, &mine).unwrap();
    let again = &node.cordon(&gpu, &cordon(None)).unwrap()[0];
    assert_eq!((again.changed, again.cordon.as_ref()), (false, Some(&mine)));
    let told = node.cordon(&gpu, &cordon(Some("memory"))).unwrap();
    assert!(told[0].changed && told[0].cordon.as_ref().unwrap().by_uid == 0);
}

#[test]
fn what_is_on_a_cordoned_gpu_stays_and_can_be_resized() {
    let mut node = node(1);
    let slice = node.create(&request("0.5"), ORIGIN).unwrap().name.clone();
    node.cordon(&[GpuSelector::Index(0)], &cordon(None)).unwrap();
    let fraction = Some(Fraction::try_from(700).unwrap());
    node.resize(&slice, Resize { fraction, ..Resize::default() }).unwrap();
    assert_eq!(node.slices_on(node.gpus()[0].uuid).collect::<Vec<_>>(), [&slice]);
    assert!(node.check(&request("0.1")).unwrap_err().may_pass());
    let named = SliceRequest { gpus: vec![GpuSelector::Index(0)], ..request("0.1") };
    assert!(node.check(&named).unwrap_err().may_pass());
    node.uncordon(&[GpuSelector::Index(0)]).unwrap();
    assert_eq!(node.check(&named), Ok(()));
}

fn any_request() -> impl Strategy<Value = SliceRequest> {
    let share = prop_oneof![
        (1u32..1000).prop_map(|share| Share::Fraction(Fraction::try_from(share).unwrap())),
        (1u32..4).prop_map(|count| Share::Whole(count.try_into().unwrap())),
        (1u64..33000).prop_map(|mib| Share::Memory(Bytes::mib(mib))),
    ];
    let compute = proptest::option::of((0u32..=1000).prop_map(permille));
    let gpus = proptest::collection::vec((0u32..5).prop_map(GpuSelector::Index), 0..4);
    (share, compute, any::<bool>(), gpus).prop_map(|(share, compute, idle, gpus)| SliceRequest {
        compute,
        gpus,
        mode: if idle { ComputeMode::BestEffort } else { ComputeMode::Fair },
        ..SliceRequest { share, ..request("0.5") }
    })
}

fn assert_lawful(node: &Node) -> Result<(), TestCaseError> {
    for gpu in node.gpus() {
        let parts = || node.slices().values().filter_map(|slice| Some((slice, slice.part_of(gpu.uuid)?)));
        let memory: u64 = parts().map(|(_, part)| part.cap.get()).sum();
        let compute: u32 = parts().map(|(slice, _)| slice.compute.get()).sum();
        prop_assert!(memory <= gpu.capacity.get(), "memory of a GPU is never promised twice");
        prop_assert!(compute <= 1000, "nor is its compute");
    }
    Ok(())
}

proptest! {
    #[test]
    fn whatever_is_asked_no_gpu_is_promised_twice(
        requests in proptest::collection::vec((any_request(), 0usize..8, 1u32..1000), 1..40)
    ) {
        let mut node = node(5);
        for (request, victim, share) in requests {
            let _ = node.create(&request, ORIGIN);
            assert_lawful(&node)?;
            let names: Vec<SliceName> = node.slices().keys().cloned().collect();
            let Some(victim) = names.get(victim) else { continue };
            if share % 2 == 0 {
                node.delete(victim).unwrap();
            } else {
                let fraction = Some(Fraction::try_from(share).unwrap());
                let _ = node.resize(victim, Resize { fraction, ..Resize::default() });
            }
            assert_lawful(&node)?;
        }
    }

    #[test]
    fn whatever_is_asked_no_slice_is_put_on_a_cordoned_gpu(
        steps in proptest::collection::vec((any_request(), 0u32..4, 0u8..3), 1..40)
    ) {
        let (mut node, empty) = (node(4), node(4));
        for (request, gpu, what) in steps {
            let (gpu, before) = ([GpuSelector::Index(gpu)], node.slices().clone());
            let changed = match what {
                0 => node.cordon(&gpu, &cordon(None)),
                1 => node.uncordon(&gpu),
                _ => Ok(Vec::new()),
            };
            prop_assert!(changed.is_ok() && *node.slices() == before, "what is there stays");
            let cordons = node.cordons().clone();
            match node.create(&request, ORIGIN) {
                Ok(slice) => prop_assert!(slice.parts.iter().all(|part| !cordons.contains_key(&part.gpu))),
                Err(refusal) if refusal.may_pass() => {
                    prop_assert_eq!(empty.check(&request), Ok(()), "{}", refusal);
                }
                Err(refusal) => {
                    let mut open = node.clone();
                    open.restore_cordons(BTreeMap::new());
                    let without = open.check(&request).map_err(|refusal| refusal.may_pass());
                    prop_assert_eq!(without, Err(false), "no cordon is to blame: {}", refusal);
                }
            }
        }
    }

    #[test]
    fn making_and_deleting_leaves_the_node_as_it_was(first in any_request(), second in any_request()) {
        let mut node = node(3);
        let _ = node.create(&first, ORIGIN);
        let before = node.clone();
        if let Ok(slice) = node.create(&second, ORIGIN) {
            let name = slice.name.clone();
            node.delete(&name).unwrap();
        }
        prop_assert_eq!(node, before);
    }

    #[test]
    fn the_same_requests_give_the_same_node(
        requests in proptest::collection::vec(any_request(), 1..20)
    ) {
        let run = || {
            let mut node = node(4);
            for request in &requests {
                let _ = node.create(request, ORIGIN);
            }
            node
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_check_tells_what_a_creation_would(requests in proptest::collection::vec(any_request(), 1..20)) {
        let mut node = node(2);
        for request in requests {
            let told = node.check(&request);
            prop_assert_eq!(node.create(&request, ORIGIN).map(drop), told);
        }
    }
}

#[test]
fn a_full_node_has_parts_for_everybody() {
    let mut node = node(1);
    let caps: Vec<Bytes> = vec!["0.5", "0.3", "0.2"]
        .into_iter()
        .map(|share| node.create(&request(share), ORIGIN).unwrap().parts[0].cap)
        .collect();
    assert_eq!(caps, [Bytes::mib(16255), Bytes::mib(9753), Bytes::mib(6502)]);
}

#[test]
fn what_a_shrunk_slice_still_holds_is_promised_to_nobody() {
    let mut node = node(1);
    let first = node.create(&request("0.5"), ORIGIN).unwrap().name.clone();
    let gpu = node.gpus()[0].uuid;
    let fraction = Some(Fraction::try_from(100).unwrap());
    node.resize(&first, Resize { fraction, ..Resize::default() }).unwrap();
    assert!(node.set_excess(&first, gpu, Bytes::mib(13004)));
    assert!(!node.set_excess(&first, gpu, Bytes::mib(13004)), "nothing new");
    assert!(node.check(&request("0.6")).unwrap_err().may_pass());
    let back = Some(Fraction::try_from(500).unwrap());
    assert!(node.clone().resize(&first, Resize { fraction: back, ..Resize::default() }).is_ok());
    assert!(node.set_excess(&first, gpu, Bytes::ZERO));
    assert!(node.check(&request("0.6")).is_ok());
}

#[test]
fn what_a_slice_says_that_it_freed_is_promised_to_others_when_the_driver_confirms_it() {
    let mut node = node(1);
    let first = node.create(&request("0.5"), ORIGIN).unwrap().name.clone();
    let (gpu, before) = (node.gpus()[0].uuid, node.clone());
    let fraction = Some(Fraction::try_from(100).unwrap());
    node.resize(&first, Resize { fraction, ..Resize::default() }).unwrap();
    node.hold_back(&first, &before);
    assert_eq!(node.committed(gpu), (before.committed(gpu).0, Permille::try_from(100).unwrap()));
    assert!(!node.confirm_excess(&first, gpu, Bytes::ZERO, Bytes::new(u64::MAX)), "nobody has looked");
    assert!(node.confirm_excess(&first, gpu, Bytes::ZERO, Bytes::mib(5000)), "part of it is free");
    assert_eq!(node.excess(&first, gpu), Bytes::mib(5000));
    assert!(
        !node.confirm_excess(&first, gpu, Bytes::ZERO, Bytes::mib(9000)),
        "what is seen alone raises nothing"
    );
    assert!(
        node.confirm_excess(&first, gpu, Bytes::mib(7000), Bytes::ZERO),
        "what it says is believed upwards"
    );
    assert!(node.confirm_excess(&first, gpu, Bytes::ZERO, Bytes::ZERO));
    assert!(node.check(&request("0.6")).is_ok());
}
