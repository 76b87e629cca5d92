//! Laws of charging, against a fake driver and a fake daemon.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod ends;
mod growth;
mod lending;
mod routes;
mod sharing;
mod slice;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use proptest::collection::vec;
use proptest::prelude::*;
use slice::{Mourning, Silent, Slice, device, slot};
use tranche_policy::{
    BLOCK, BLOCK_BYTES, ChargeRefused, Claim, ClaimDenied, DaemonLink, EntryKind, Extent, Owner, PATIENCE_NS,
    PoolPlace,
};
use tranche_shm::control::DEPARTURE_PATIENCE_NS;
use tranche_shm::credit::Units;

const MIB: u64 = 1 << 20;

fn claim(bytes: u64) -> Claim {
    Claim { device: device(), extent: Extent::plain(bytes).unwrap(), owner: Owner::NOBODY }
}

fn allocate_at(slice: &Slice, pointer: u64, bytes: u64) -> Result<u64, ClaimDenied<i32>> {
    let claim = claim(bytes);
    let driver = || Ok((pointer, claim.extent));
    slice.ledger().allocate(EntryKind::Memory, claim, &slice.daemon(), driver, |_| {})
}

fn free(slice: &Slice, pointer: u64) {
    slice.ledger().free(EntryKind::Memory, pointer, || Ok::<_, i32>(())).unwrap();
}

#[test]
fn a_refused_charge_never_reaches_the_driver() {
    let slice = Slice::of(4 * MIB, Units::ZERO);
    let denied = slice.ledger().allocate::<i32>(
        EntryKind::Memory,
        claim(5 * MIB),
        &slice.daemon(),
        || panic!("the driver was called"),
        |_| {},
    );
    assert_eq!(denied, Err(ClaimDenied::OutOfMemory));
    assert_eq!(slice.used(), 0);
}

#[test]
fn a_driver_that_refuses_leaves_nothing_charged() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let driver = || Err(7);
    let denied = slice.ledger().allocate(EntryKind::Memory, claim(5 * MIB), &slice.daemon(), driver, |_| {});
    assert_eq!(denied, Err(ClaimDenied::Driver(7)));
    assert_eq!(slice.used(), 0);
}

#[test]
fn charge_beyond_sibling_use_is_refused_without_request() {
    let slice = Slice::of(8 * MIB, Units::ZERO);
    let sibling = slice.tenant(1).usage.credit(slot(1), device());
    sibling.grant(Units::within(6 * MIB));
    sibling.charge(Units::within(6 * MIB)).unwrap();
    let daemon = slice.daemon();
    assert!(slice.tenant(0).charge(device(), Units::within(4 * MIB), &daemon).is_err());
    assert_eq!(daemon.asked.get(), 0);
}

#[test]
fn unused_sibling_credit_is_recalled() {
    let slice = Slice::of(8 * MIB, Units::ZERO);
    slice.tenant(1).usage.credit(slot(1), device()).grant(Units::within(8 * MIB));
    allocate_at(&slice, 1 << 40, 8 * MIB).unwrap();
    assert_eq!(slice.used(), 8 * MIB);
}

#[test]
fn slice_over_cap_requests_each_time_and_keeps_none() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, 1 << 40, 32 * MIB).unwrap();
    slice.tenant(0).usage.credit(slot(0), device()).grant(Units::within(8 * MIB));
    slice.writer().set_over_cap(device(), true);
    let daemon = slice.daemon();
    drop(slice.tenant(0).charge(device(), BLOCK, &daemon).unwrap());
    assert_eq!(daemon.asked.get(), 1);
    let before = slice.tenant(0).usage.credit(slot(0), device()).load().granted;
    free(&slice, 1 << 40);
    let after = slice.tenant(0).usage.credit(slot(0), device()).load();
    assert_eq!((after.used, after.granted), (Units::ZERO, before.saturating_sub(Units::within(32 * MIB))));
}

#[test]
fn silent_daemon_means_refusal_after_patience() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let daemon = Silent::default();
    assert_eq!(slice.tenant(0).charge(device(), BLOCK, &daemon).map(drop), Err(ChargeRefused));
    assert!((PATIENCE_NS..PATIENCE_NS + 1_000_000_000).contains(&daemon.now_ns()));
    slice.tenant(0).usage.credit(slot(0), device()).grant(BLOCK);
    assert!(slice.tenant(0).charge(device(), BLOCK, &daemon).is_ok(), "credit in hand needs no daemon");
}

#[test]
fn oversized_memory_stays_charged_until_freed() {
    let slice = Slice::of(BLOCK_BYTES, Units::ZERO);
    let at_least_a_block = |_| assert_eq!(slice.used(), BLOCK_BYTES, "the driver holds it still");
    let claim = claim(512);
    // Across the edge of a block: it needs two.
    let driver = || Ok::<_, i32>((2 * BLOCK_BYTES - 256, claim.extent));
    let packed = slice.ledger().allocate(EntryKind::Memory, claim, &slice.daemon(), driver, at_least_a_block);
    assert_eq!((packed, slice.used()), (Err(ClaimDenied::OutOfMemory), 0));
    let kept = Cell::new(32 * MIB);
    let keeps = |_: u64| Some(kept.get());
    let driver = || Ok::<_, i32>(1 << 40);
    let undo = |pointer| {
        at_least_a_block(pointer);
        kept.set(0);
    };
    let pooled = slice.ledger().allocate_from_pool(5, claim, &slice.daemon(), &keeps, driver, undo);
    assert_eq!((pooled, slice.used()), (Err(ClaimDenied::OutOfMemory), 0));
}

/// A slice whose other process holds all of it.
fn full() -> Slice {
    let slice = Slice::of(4 * BLOCK_BYTES, Units::ZERO);
    let all = Units::within(4 * BLOCK_BYTES);
    slice.tenant(1).charge(device(), all, &slice.daemon_of(1)).expect("it is empty").keep(all);
    slice
}

#[test]
fn charge_beyond_cap_requests_only_after_a_recent_end() {
    let slice = full();
    let daemon = Mourning::default();
    let charge = || slice.tenant(0).charge(device(), BLOCK, &daemon).map(drop);
    assert_eq!((charge(), daemon.asked.get()), (Err(ChargeRefused), 0));
    // By the daemon's clock: this process's may be a day ahead or behind.
    for (beat, ahead) in [(5_000, 86_400_000_000_000), (86_400_000_000_000, 0)] {
        let daemon = Mourning::default();
        let asked = || (slice.tenant(0).charge(device(), BLOCK, &daemon).map(drop), daemon.asked.get());
        daemon.clock_ns.set(ahead);
        slice.writer().set_departing_until(beat + 1);
        slice.writer().beat(beat);
        assert!(matches!(asked(), (Err(ChargeRefused), 1..)), "the daemon may know better");
        slice.writer().beat(beat + 1);
        let before = daemon.asked.get();
        assert_eq!(asked(), (Err(ChargeRefused), before), "that was long ago");
    }
}

#[test]
fn charge_waits_for_ended_processes_within_patience() {
    let slice = full();
    let daemon = Mourning::default();
    slice.writer().set_departing_until(u64::MAX);
    assert_eq!(slice.tenant(0).charge(device(), BLOCK, &daemon).map(drop), Err(ChargeRefused));
    assert!((DEPARTURE_PATIENCE_NS..DEPARTURE_PATIENCE_NS * 5 / 4).contains(&daemon.now_ns()));
    let daemon = Mourning { frees: Some((&slice, DEPARTURE_PATIENCE_NS / 2)), ..Mourning::default() };
    assert!(slice.tenant(0).charge(device(), BLOCK, &daemon).is_ok(), "it was free in time");
}

#[test]
fn small_allocations_share_the_block_they_lie_in() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let base = 1 << 40;
    allocate_at(&slice, base, 512).unwrap();
    allocate_at(&slice, base + 512, MIB).unwrap();
    assert_eq!(slice.used(), BLOCK_BYTES);
    allocate_at(&slice, base + 2 * BLOCK_BYTES - 256, 512).unwrap();
    assert_eq!(slice.used(), 3 * BLOCK_BYTES, "an allocation over an edge touches two blocks");
    free(&slice, base);
    assert_eq!(slice.used(), 3 * BLOCK_BYTES);
    free(&slice, base + 512);
    free(&slice, base + 2 * BLOCK_BYTES - 256);
    assert_eq!(slice.used(), 0);
}

#[test]
fn oversized_allocation_is_freed_again() {
    let slice = Slice::of(2 * MIB, Units::ZERO);
    let undone = Cell::new(0);
    let edge = (1 << 40) + BLOCK_BYTES - 1;
    let driver = || Ok::<_, i32>((edge, claim(2).extent));
    let denied = slice
        .ledger()
        .allocate(EntryKind::Memory, claim(2), &slice.daemon(), driver, |pointer| undone.set(pointer));
    assert_eq!((denied, undone.get(), slice.used()), (Err(ClaimDenied::OutOfMemory), edge, 0));
}

#[test]
fn freeing_twice_passes_through_and_gives_nothing_back() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, 1 << 40, 4 * MIB).unwrap();
    allocate_at(&slice, 2 << 40, 4 * MIB).unwrap();
    free(&slice, 1 << 40);
    let calls = Cell::new(0);
    let second = slice.ledger().free(EntryKind::Memory, 1 << 40, || {
        calls.set(calls.get() + 1);
        Err(1)
    });
    free(&slice, 1 << 40);
    assert_eq!((second, calls.get(), slice.used()), (Err(1), 1, 4 * MIB));
}

#[test]
fn physical_memory_stays_charged_while_held_or_mapped() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let ok: fn() -> Result<(), i32> = || Ok(());
    ledger.create(claim(4 * MIB), &slice.daemon(), || Ok::<_, i32>(9), |_| {}).unwrap();
    let map = |result: Result<u64, i32>| ledger.map(9, 2 * MIB, &slice.daemon(), || result);
    map(Ok(100 * MIB)).unwrap();
    map(Ok(102 * MIB)).unwrap();
    assert_eq!(map(Err(3)), Err(ClaimDenied::Driver(3)));
    ledger.release(9, ok).unwrap();
    assert_eq!(slice.used(), 4 * MIB);
    ledger.retained(9, 100 * MIB);
    ledger.unmap(100 * MIB, 4 * MIB, ok).unwrap();
    assert_eq!(slice.used(), 4 * MIB);
    ledger.release(9, ok).unwrap();
    assert_eq!(slice.used(), 0);
    ledger.release(9, ok).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn a_pool_is_charged_what_it_keeps() {
    let slice = Slice::of(128 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let kept = Cell::new(0);
    let keeps = |_: u64| Some(kept.get());
    let grow = |pointer, to| {
        let driver = || {
            kept.set(to);
            Ok::<_, i32>(pointer)
        };
        ledger.allocate_from_pool(5, claim(MIB), &slice.daemon(), &keeps, driver, |_| {
            kept.set(kept.get() - 32 * MIB);
        })
    };
    grow(1 << 40, 32 * MIB).unwrap();
    grow(2 << 40, 32 * MIB).unwrap();
    assert_eq!(slice.used(), 32 * MIB);
    ledger.free_to_pool(1 << 40, &keeps, || Ok::<_, i32>(())).unwrap();
    ledger.free_to_pool(2 << 40, &keeps, || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), 32 * MIB, "freed to the pool is not freed");
    kept.set(0);
    ledger.settle_pools(&keeps, |_| {});
    assert_eq!(slice.used(), 0);
    grow(1 << 40, 128 * MIB).unwrap();
    assert_eq!(grow(2 << 40, 160 * MIB), Err(ClaimDenied::OutOfMemory));
    assert_eq!((slice.used(), kept.get()), (128 * MIB, 128 * MIB));
    ledger.free_to_pool(1 << 40, &keeps, || Ok::<_, i32>(())).unwrap();
    ledger.destroy_pool(5, || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn pool_destroyed_in_use_stays_charged_meanwhile() {
    let slice = Slice::of(128 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let keeps = |_: u64| Some(64 * MIB);
    let take = |pointer| {
        let driver = || Ok::<_, i32>(pointer);
        ledger.allocate_from_pool(5, claim(MIB), &slice.daemon(), &keeps, driver, |_| {}).unwrap();
    };
    let free = |pointer| ledger.free_to_pool(pointer, &keeps, || Ok::<_, i32>(())).unwrap();
    take(1 << 40);
    take(2 << 40);
    ledger.destroy_pool(5, || Ok::<_, i32>(())).unwrap();
    free(1 << 40);
    assert_eq!(slice.used(), 64 * MIB, "nobody knows how much of it the driver has let go");
    ledger.pool_made(5, PoolPlace::On(device()));
    take(3 << 40);
    assert_eq!(slice.used(), 128 * MIB, "another pool has its name");
    free(2 << 40);
    assert_eq!(slice.used(), 64 * MIB);
    ledger.destroy_pool(5, || Ok::<_, i32>(())).unwrap();
    free(3 << 40);
    assert_eq!(slice.used(), 0);
}

#[test]
fn end_of_context_releases_allocations_and_reserve() {
    let slice = Slice::of(64 * MIB, Units::within(8 * MIB));
    let ledger = slice.ledger();
    let create =
        |context| ledger.create_context(device(), &slice.daemon(), || Ok::<_, i32>(context), |_| {}).unwrap();
    create(77);
    create(78);
    assert_eq!(slice.used(), 16 * MIB, "each context has a reserve of its own");
    let owner = ledger.owner(77, device(), &slice.daemon()).unwrap();
    let owned = Claim { owner, ..claim(4 * MIB) };
    let driver = || Ok::<_, i32>((1 << 40, owned.extent));
    ledger.allocate(EntryKind::Memory, owned, &slice.daemon(), driver, |_| {}).unwrap();
    assert_eq!(slice.used(), 20 * MIB);
    ledger.close(1, 77, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), 8 * MIB);
    ledger.close(1, 78, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn ten_thousand_live_allocations_are_all_found_again() {
    let slice = Slice::of(1 << 40, Units::ZERO);
    let pointers: Vec<u64> = (1..=10_000).map(|index| (1 << 44) + index * BLOCK_BYTES).collect();
    for pointer in &pointers {
        allocate_at(&slice, *pointer, BLOCK_BYTES).unwrap();
    }
    assert_eq!(slice.used(), 10_000 * BLOCK_BYTES);
    pointers.iter().for_each(|pointer| free(&slice, *pointer));
    assert_eq!(slice.used(), 0);
}

/// A fake driver that packs as the ledger assumes: small allocations packed, large ones in own blocks.
#[derive(Default)]
struct Driver {
    live: RefCell<BTreeMap<u64, u64>>,
    next: Cell<u64>,
}

impl Driver {
    fn place(&self, bytes: u64, gap: u64) -> u64 {
        let align = if bytes < BLOCK_BYTES { 512 } else { BLOCK_BYTES };
        let pointer = (self.next.get() + gap).next_multiple_of(align);
        let end = pointer + bytes.max(1);
        self.next.set(if bytes < BLOCK_BYTES { end } else { end.next_multiple_of(BLOCK_BYTES) });
        self.live.borrow_mut().insert(pointer, bytes);
        pointer
    }

    /// Cost of the live allocations in units.
    fn cost(&self) -> u64 {
        let live = self.live.borrow();
        let small: BTreeSet<u64> = live
            .iter()
            .filter(|(_, bytes)| **bytes < BLOCK_BYTES)
            .flat_map(|(pointer, bytes)| pointer / BLOCK_BYTES..=(pointer + bytes - 1) / BLOCK_BYTES)
            .collect();
        let large = live.values().filter(|bytes| **bytes >= BLOCK_BYTES);
        (small.len() as u64 + large.map(|bytes| bytes.div_ceil(BLOCK_BYTES)).sum::<u64>()) * BLOCK_BYTES
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn charge_equals_cost_of_live_allocations(
        steps in vec((1u64..6 * MIB, 0u64..3000, any::<prop::sample::Index>(), 0u8..4), 1..200)
    ) {
        let cap = 48 * MIB;
        let slice = Slice::of(cap, Units::ZERO);
        let driver = Driver { next: Cell::new(1 << 40), ..Driver::default() };
        for (bytes, gap, which, step) in steps {
            let live: Vec<u64> = driver.live.borrow().keys().copied().collect();
            if step == 0 && !live.is_empty() {
                let pointer = live[which.index(live.len())];
                driver.live.borrow_mut().remove(&pointer);
                free(&slice, pointer);
            } else {
                let bytes = if step == 1 { bytes } else { bytes % 60_000 + 1 };
                let _ = slice.ledger().allocate(
                    EntryKind::Memory,
                    claim(bytes),
                    &slice.daemon(),
                    || Ok::<_, i32>((driver.place(bytes, gap), claim(bytes).extent)),
                    |pointer| _ = driver.live.borrow_mut().remove(&pointer),
                );
            }
            prop_assert_eq!(slice.used(), driver.cost());
            prop_assert!(slice.used() <= cap);
        }
        let live: Vec<u64> = driver.live.borrow().keys().copied().collect();
        live.into_iter().for_each(|pointer| free(&slice, pointer));
        prop_assert_eq!(slice.used(), 0);
    }

    #[test]
    fn no_size_is_charged_less_than_it_takes(bytes: u64) {
        match Extent::plain(bytes) {
            Some(extent) => prop_assert!(extent.worst().bytes() >= bytes),
            None => prop_assert!(bytes > Units::MAX.bytes() - BLOCK_BYTES),
        }
    }
}

#[test]
fn threads_never_exceed_cap_and_leave_no_charge() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let slice = &slice;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for round in 0..2000u64 {
                    let pointer = (1 << 40) + (thread * 8 + round % 8) * 700;
                    let bytes = if round % 5 == 0 { 3 * MIB } else { 600 };
                    let pointer = if round % 5 == 0 { (thread + 2) << 41 } else { pointer };
                    if allocate_at(slice, pointer, bytes).is_ok() {
                        assert!(slice.used() <= 64 * MIB);
                        free(slice, pointer);
                    }
                }
            });
        }
    });
    assert_eq!(slice.used(), 0);
}

#[test]
fn table_opens_the_words_that_it_grows_into() {
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    fn open(words: &[AtomicU64]) -> bool {
        OPENED.fetch_add(words.len(), SeqCst) < 200_000
    }
    let slice = Slice::of(1 << 40, Units::ZERO);
    let ledger = slice.ledger().with_growth(open);
    let allocate = |index: u64| {
        let claim = claim(BLOCK_BYTES);
        let driver = || Ok::<_, i32>(((1 << 44) + index * BLOCK_BYTES, claim.extent));
        ledger.allocate(EntryKind::Memory, claim, &slice.daemon(), driver, |_| {})
    };
    let made = (0..).take_while(|index| allocate(*index).is_ok()).count() as u64;
    assert!(made > 4000, "{made}");
    assert!((200_000..400_000).contains(&OPENED.load(SeqCst)));
    assert_eq!(slice.used(), made * BLOCK_BYTES, "what found no room is not charged");
}
