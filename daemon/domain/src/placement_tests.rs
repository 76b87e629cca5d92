use super::*;
use crate::cordon::Cordon;
use alloc::string::ToString;
use core::num::NonZeroU32;
use proptest::prelude::*;

fn permille(share: u32) -> Permille {
    Permille::try_from(share).unwrap()
}

fn uuid(index: u32) -> GpuUuid {
    GpuUuid::from_bytes(u128::from(index).to_be_bytes())
}

fn room(index: u32, used: u32) -> GpuRoom {
    let capacity = Bytes::mib(32510);
    GpuRoom {
        index,
        uuid: uuid(index),
        island: index / 8,
        capacity,
        free: capacity.saturating_sub(capacity.part(permille(used))),
        free_compute: permille(1000 - used),
        kept: Permille::ZERO,
        occupied: used > 0,
        obstacle: None,
        cordon: None,
    }
}

fn part(share: u32) -> Demand {
    let share = permille(share);
    Demand::Part { memory: MemoryDemand::Share(share), compute: ComputeDemand::Share(share) }
}

fn whole(count: u32) -> Demand {
    Demand::Whole(NonZeroU32::new(count).unwrap())
}

fn indices(rooms: &[GpuRoom], places: &[PlacedPart]) -> Vec<u32> {
    let index = |place: &PlacedPart| rooms.iter().find(|room| room.uuid == place.gpu).unwrap().index;
    places.iter().map(index).collect()
}

fn chosen(rooms: &[GpuRoom], demand: Demand) -> Vec<u32> {
    indices(rooms, &place(rooms, demand, &[]).unwrap())
}

#[test]
fn a_part_goes_where_it_leaves_the_least() {
    let rooms = [room(0, 0), room(1, 300), room(2, 500), room(3, 700)];
    assert_eq!(chosen(&rooms, part(500)), [2]);
    assert_eq!(chosen(&rooms, part(300)), [3]);
    assert_eq!(chosen(&rooms, part(600)), [1]);
    assert_eq!(chosen(&rooms, part(900)), [0]);
}

fn cordon() -> Cordon {
    let told = "cordoned by root (uid 0) since noon: fan".to_string();
    Cordon { by_uid: 0, since_unix_ms: 5, reason: "fan".parse().ok(), told }
}

fn cordoned(index: u32, used: u32) -> GpuRoom {
    GpuRoom { cordon: Some(cordon()), ..room(index, used) }
}

#[test]
fn a_cordoned_gpu_is_passed_over_and_said_to_be_so() {
    assert_eq!(chosen(&[cordoned(0, 500), room(1, 0)], part(500)), [1]);
    assert_eq!(chosen(&[cordoned(0, 0), room(1, 0), room(2, 0)], whole(2)), [1, 2]);
    let refused = place(&[cordoned(0, 0), room(1, 900)], part(500), &[]).unwrap_err();
    assert!(matches!(refused, Unplaceable::NoRoom { ever: Ever::Later, .. }), "GPU 1 may become free");
    assert!(refused.to_string().contains("GPU 0 is cordoned by root (uid 0) since noon: fan"), "{refused}");
    let refused = place(&[cordoned(0, 0)], part(500), &[]).unwrap_err();
    assert!(matches!(refused, Unplaceable::NoRoom { ever: Ever::Uncordoned, .. }));
    assert!(refused.to_string().ends_with("(`tranche gpu uncordon`, or wait with `--wait`)"), "{refused}");
    let mig = GpuRoom { obstacle: Some("MIG".to_string()), ..cordoned(0, 0) };
    let refused = place(&[mig], part(500), &[]).unwrap_err();
    assert!(
        matches!(refused, Unplaceable::NoRoom { ever: Ever::Never, .. }),
        "that is no operator's cordon alone"
    );
}

#[test]
fn a_cordoned_gpu_that_is_named_is_refused_by_who_cordoned_it() {
    let named = [GpuSelector::Index(0)];
    let refused = place(&[cordoned(0, 0), room(1, 0)], part(500), &named).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "GPU 0 takes no further slices: it is cordoned by root (uid 0) since noon: fan; `tranche gpu uncordon 0` \
         ends that"
    );
}

#[test]
fn equal_gpus_are_taken_by_index() {
    assert_eq!(chosen(&[room(1, 0), room(0, 0)], part(10)), [0]);
}

#[test]
fn room_in_memory_alone_is_not_room() {
    let full = GpuRoom { free_compute: permille(100), ..room(0, 500) };
    assert_eq!(chosen(&[full, room(1, 0)], part(400)), [1]);
}

#[test]
fn whole_gpus_come_from_one_island_and_the_fuller_one() {
    let mut rooms: Vec<GpuRoom> = (0..16).map(|index| room(index, 0)).collect();
    for (index, taken) in rooms.iter_mut().enumerate().take(4) {
        *taken = room(index as u32, 1);
    }
    assert_eq!(chosen(&rooms, whole(2)), [4, 5]);
    assert_eq!(chosen(&rooms, whole(5)), [8, 9, 10, 11, 12]);
    assert_eq!(chosen(&rooms, whole(12)).len(), 12, "only then over two islands");
}

#[test]
fn a_slice_that_does_not_fit_says_what_is_free() {
    let refused = place(&[room(0, 700), room(1, 900)], part(500), &[]).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("GPU 0 has 9753 MiB of 32510 MiB and 30 % of compute free"), "{text}");
    assert!(text.contains("GPU 1 has") && text.contains("fits once others have ended"), "{text}");
    assert!(matches!(refused, Unplaceable::NoRoom { ever: Ever::Later, .. }));
}

#[test]
fn full_node_is_described_by_its_best_gpu_and_each_reason_once() {
    let mut rooms: Vec<GpuRoom> = (0..16).map(|index| room(index, 1000)).collect();
    rooms[5] = room(5, 900);
    for index in [1, 2] {
        rooms[index].obstacle = Some("it is in MIG mode".to_string());
    }
    let text = place(&rooms, part(500), &[]).unwrap_err().to_string();
    let expected = "GPU 5 has 3251 MiB of 32510 MiB and 10 % of compute free, the other 13 have no more, \
                    GPUs 1, 2 take no slices (it is in MIG mode); it fits once";
    assert!(text.contains(expected), "{text}");
    let mut kept = rooms.clone();
    kept[7].kept = permille(500);
    let text = place(&kept, whole(2), &[]).unwrap_err().to_string();
    assert!(
        text.contains("0 of 14 GPUs are wholly free (and 1 kept for a job, wholly or in part), GPUs"),
        "{text}"
    );
    let text = place(&rooms, whole(2), &[]).unwrap_err().to_string();
    assert!(
        text.contains("2 whole GPUs: 0 of 14 GPUs are wholly free, GPUs 1, 2 take no slices (it"),
        "{text}"
    );
}

#[test]
fn a_slice_that_can_never_fit_is_told_so() {
    let memory = MemoryDemand::Bytes(Bytes::mib(40000));
    let refused = place(&[room(0, 0)], Demand::Part { memory, compute: ComputeDemand::LikeMemory }, &[]);
    assert!(matches!(refused, Err(Unplaceable::NoRoom { ever: Ever::Never, .. })));
    assert!(matches!(
        place(&[room(0, 1)], whole(2), &[]),
        Err(Unplaceable::NoRoom { ever: Ever::Never, .. })
    ));
}

#[test]
fn a_gpu_that_takes_no_slices_is_refused_with_its_reason_and_otherwise_avoided() {
    let mig = GpuRoom { obstacle: Some("it is in MIG mode".to_string()), ..room(0, 0) };
    let rooms = [mig, room(1, 0)];
    let refused = place(&rooms, part(500), &[GpuSelector::Index(0)]).unwrap_err();
    assert_eq!(refused.to_string(), "GPU 0 takes no slices: it is in MIG mode");
    assert_eq!(chosen(&rooms, part(500)), [1]);
}

#[test]
fn an_unknown_gpu_is_refused_with_those_there_are() {
    let refused = place(&[room(0, 0)], part(500), &[GpuSelector::Index(7)]).unwrap_err().to_string();
    assert!(refused.contains("no GPU 7") && refused.contains("0 (GPU-00000000-"), "{refused}");
    assert_eq!(place(&[], part(1), &[]), Err(Unplaceable::NoGpus));
}

#[test]
fn a_part_on_each_of_several_gpus_fits_on_each_or_not_at_all() {
    let on = |gpus: &[u32]| gpus.iter().copied().map(GpuSelector::Index).collect::<Vec<_>>();
    let rooms = [room(0, 700), room(1, 500), room(2, 0)];
    let places = place(&rooms, part(500), &on(&[2, 1])).unwrap();
    assert_eq!(indices(&rooms, &places), [1, 2], "in the order of the node");
    assert!(places.iter().all(|place| place.memory == Bytes::mib(16255)));
    let refused = place(&rooms, part(500), &on(&[0, 2])).unwrap_err();
    assert!(matches!(refused, Unplaceable::NoRoom { ever: Ever::Later, .. }), "{refused}");
    assert_eq!(place(&rooms, part(1), &on(&[2, 2])), Err(Unplaceable::Twice { index: 2 }));
}

#[test]
fn a_size_on_unlike_gpus_takes_the_same_compute_of_each() {
    let small = GpuRoom { capacity: Bytes::mib(16000), free: Bytes::mib(16000), ..room(1, 0) };
    let demand =
        Demand::Part { memory: MemoryDemand::Bytes(Bytes::mib(8000)), compute: ComputeDemand::LikeMemory };
    let both = [GpuSelector::Index(0), GpuSelector::Index(1)];
    let places = place(&[room(0, 0), small.clone()], demand, &both).unwrap();
    assert_eq!(places.iter().map(|place| place.compute.get()).collect::<Vec<_>>(), [500, 500]);
    assert!(place(&[room(0, 600), small], demand, &both).is_err(), "as much is not free on the first");
}

#[test]
fn parts_that_fit_in_memory_fit_in_compute() {
    let third = MemoryDemand::Bytes(Bytes::mib(32510 / 3));
    let mut room = room(0, 0);
    for _ in 0..3 {
        let demand = Demand::Part { memory: third, compute: ComputeDemand::LikeMemory };
        let placed = place(core::slice::from_ref(&room), demand, &[]).unwrap()[0];
        room.free = room.free.checked_sub(placed.memory).unwrap();
        room.free_compute = room.free_compute.saturating_sub(placed.compute);
    }
}

fn any_rooms() -> impl Strategy<Value = Vec<GpuRoom>> {
    let used = prop_oneof![Just(0u32), 1u32..=1000];
    proptest::collection::vec((used, any::<bool>()), 1..20).prop_map(|gpus| {
        let room = |(index, (used, closed)): (usize, (u32, bool))| GpuRoom {
            obstacle: (closed && used % 3 == 0).then(|| "closed".to_string()),
            ..room(index as u32, used)
        };
        gpus.into_iter().enumerate().map(room).collect()
    })
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let memory = (1u64..40000).prop_map(|mib| Demand::Part {
        memory: MemoryDemand::Bytes(Bytes::mib(mib)),
        compute: ComputeDemand::LikeMemory,
    });
    prop_oneof![(1u32..1000).prop_map(part), (1u32..18).prop_map(whole), memory]
}

proptest! {
    #[test]
    fn a_place_is_open_and_holds_what_it_promises(rooms in any_rooms(), demand in any_demand()) {
        let Ok(places) = place(&rooms, demand, &[]) else { return Ok(()) };
        let expected = match demand { Demand::Part { .. } => 1, Demand::Whole(count) => count.get() as usize };
        prop_assert_eq!(places.len(), expected, "a part never straddles");
        for place in &places {
            let room = rooms.iter().find(|room| room.uuid == place.gpu).unwrap();
            prop_assert!(room.obstacle.is_none());
            prop_assert!(place.memory <= room.free && place.compute <= room.free_compute);
        }
        let mut gpus: Vec<GpuUuid> = places.iter().map(|place| place.gpu).collect();
        gpus.dedup();
        prop_assert_eq!(gpus.len(), places.len(), "each GPU once");
    }

    #[test]
    fn nothing_that_fits_is_refused(rooms in any_rooms(), demand in any_demand()) {
        let fits = |room: &GpuRoom| match demand {
            Demand::Whole(_) => room.obstacle.is_none() && room.is_untouched(),
            Demand::Part { memory, compute } => {
                let memory = memory.on(room.capacity);
                room.obstacle.is_none()
                    && memory <= room.free
                    && compute.on(memory, room.capacity) <= room.free_compute
            }
        };
        let needed = match demand { Demand::Part { .. } => 1, Demand::Whole(count) => count.get() as usize };
        let enough = rooms.iter().filter(|room| fits(room)).count() >= needed;
        prop_assert_eq!(place(&rooms, demand, &[]).is_ok(), enough);
    }

    #[test]
    fn the_order_of_the_gpus_does_not_matter(rooms in any_rooms(), demand in any_demand()) {
        let reversed: Vec<GpuRoom> = rooms.iter().rev().cloned().collect();
        let (one, other) = (place(&rooms, demand, &[]), place(&reversed, demand, &[]));
        if let Demand::Part { .. } = demand {
            prop_assert_eq!(one.ok(), other.ok());
        } else {
            prop_assert_eq!(one.is_ok(), other.is_ok());
        }
    }

    #[test]
    fn a_part_is_put_where_it_wastes_least_among_gpus_in_use(rooms in any_rooms(), share in 1u32..1000) {
        let Ok(places) = place(&rooms, part(share), &[]) else { return Ok(()) };
        let left = |room: &GpuRoom| room.free.saturating_sub(places[0].memory);
        let taken = rooms.iter().find(|room| room.uuid == places[0].gpu).unwrap();
        let others = rooms.iter().filter(|room| {
            room.obstacle.is_none() && room.occupied == taken.occupied
                && room.free >= places[0].memory && room.free_compute >= places[0].compute
        });
        for other in others {
            prop_assert!(left(taken) <= left(other));
        }
    }
}
