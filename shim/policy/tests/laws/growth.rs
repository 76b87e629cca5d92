//! Pools that grow in steps, and pools of any device, against a fake driver.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tranche_policy::{BLOCK_BYTES, Claim, ClaimDenied, Extent, Ledger, Owner, PoolPlace, PoolUse};
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::slice::{Slice, device};

const MIB: u64 = 1 << 20;
const POOL: u64 = 5;

/// A pool that grows by the fewest whole steps, and frees whole steps when it is trimmed.
struct Stepping {
    step: u64,
    /// Step that the shim takes for the pool's.
    known: Cell<u64>,
    held: RefCell<BTreeMap<u64, u64>>,
    kept: Cell<u64>,
    /// Most memory that it ever kept.
    most: Cell<u64>,
    /// Makes each allocation fail after the pool has grown for it.
    failing: Cell<bool>,
    calls: Cell<u64>,
}

impl Stepping {
    fn by(step: u64, known: u64) -> Self {
        Self {
            step,
            known: Cell::new(known),
            held: RefCell::default(),
            kept: Cell::new(0),
            most: Cell::new(0),
            failing: Cell::new(false),
            calls: Cell::new(0),
        }
    }

    fn live(&self) -> u64 {
        self.held.borrow().values().sum()
    }

    fn allocate(&self, bytes: u64) -> Result<u64, i32> {
        self.calls.set(self.calls.get() + 1);
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let needed = (self.live() + bytes).next_multiple_of(self.step);
        self.kept.set(self.kept.get().max(needed));
        self.most.set(self.most.get().max(self.kept.get()));
        if self.failing.get() {
            return Err(2);
        }
        let pointer = self.calls.get() << 40;
        self.held.borrow_mut().insert(pointer, bytes);
        Ok(pointer)
    }

    fn free(&self, pointer: u64) {
        self.held.borrow_mut().remove(&pointer);
    }

    fn trim(&self) {
        self.kept.set(self.live().next_multiple_of(self.step));
    }
}

impl PoolUse for Stepping {
    fn reserved(&self, pool: u64) -> Option<u64> {
        assert_eq!(pool, POOL, "the driver is asked by a name that it does not know");
        Some(self.kept.get())
    }

    fn step(&self, _: DeviceSlot) -> Units {
        Units::within(self.known.get())
    }

    fn grew(&self, _: DeviceSlot, by: Units) {
        self.known.set(self.known.get().max(by.bytes()));
    }
}

fn allocate(
    ledger: &Ledger<'_>,
    slice: &Slice,
    driver: &Stepping,
    bytes: u64,
) -> Result<u64, ClaimDenied<i32>> {
    let claim = Claim { device: device(), extent: Extent::blocks(bytes).unwrap(), owner: Owner::NOBODY };
    let undo = |pointer| {
        driver.free(pointer);
        driver.trim();
    };
    ledger.allocate_from_pool(POOL, claim, &slice.daemon(), driver, || driver.allocate(bytes), undo)
}

#[test]
fn growth_that_would_not_fit_never_reaches_the_driver() {
    let slice = Slice::of(40 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(32 * MIB, 32 * MIB));
    allocate(&ledger, &slice, &driver, MIB).unwrap();
    assert_eq!(slice.used(), 32 * MIB, "the whole step is charged");
    assert_eq!(allocate(&ledger, &slice, &driver, MIB), Err(ClaimDenied::OutOfMemory));
    assert_eq!((driver.calls.get(), driver.most.get()), (1, 32 * MIB));
}

#[test]
fn unused_reservation_of_growth_is_released() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(2 * MIB, 32 * MIB));
    allocate(&ledger, &slice, &driver, 2 * MIB).unwrap();
    assert_eq!(slice.used(), 2 * MIB);
}

#[test]
fn growth_of_failed_call_is_charged_until_trim() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(32 * MIB, 32 * MIB));
    driver.failing.set(true);
    assert_eq!(allocate(&ledger, &slice, &driver, MIB), Err(ClaimDenied::Driver(2)));
    assert_eq!((slice.used(), driver.kept.get()), (32 * MIB, 32 * MIB));
    ledger.settle_pools(&driver, |_| driver.trim());
    assert_eq!(slice.used(), 0);
}

#[test]
fn step_larger_than_known_is_learned_and_undone() {
    let slice = Slice::of(100 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(64 * MIB, 2 * MIB));
    allocate(&ledger, &slice, &driver, MIB).unwrap();
    assert_eq!((slice.used(), driver.known.get()), (64 * MIB, 64 * MIB));
    assert_eq!(allocate(&ledger, &slice, &driver, 65 * MIB), Err(ClaimDenied::OutOfMemory));
    assert_eq!(driver.calls.get(), 1, "the next growth is reserved before the driver is called");
}

#[test]
fn concurrent_calls_pay_for_their_own_growth() {
    let slice = Slice::of(8 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(2 * MIB, 2 * MIB));
    let claim = Claim { device: device(), extent: Extent::blocks(4 * MIB).unwrap(), owner: Owner::NOBODY };
    let other = Cell::new(None);
    // The pool has grown for the first call when the second begins, and all of the slice is reserved by the two.
    let first = || {
        let first = driver.allocate(4 * MIB);
        other.set(Some(allocate(&slice.ledger(), &slice, &driver, 4 * MIB)));
        first
    };
    ledger.allocate_from_pool(POOL, claim, &slice.daemon(), &driver, first, |_| {}).unwrap();
    other.take().unwrap().unwrap();
    assert_eq!((slice.used(), driver.kept.get(), driver.known.get()), (8 * MIB, 8 * MIB, 2 * MIB));
}

#[test]
fn growth_that_cannot_be_undone_stays_charged() {
    let slice = Slice::of(40 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(64 * MIB, 32 * MIB));
    let claim = Claim { device: device(), extent: Extent::blocks(MIB).unwrap(), owner: Owner::NOBODY };
    let made = || driver.allocate(MIB);
    let refused = ledger.allocate_from_pool(POOL, claim, &slice.daemon(), &driver, made, |_| {});
    assert_eq!(
        (refused, slice.used()),
        (Err(ClaimDenied::OutOfMemory), 32 * MIB),
        "all that there was room for"
    );
    driver.free(1 << 40);
    ledger.settle_pools(&driver, |_| driver.trim());
    assert_eq!(slice.used(), 0);
}

/// Charges of the two devices on which a pool's memory may lie.
fn both(slice: &Slice) -> [u64; 2] {
    [0, 1].map(|index| slice.used_on(index))
}

#[test]
fn memory_of_any_device_is_charged_on_each() {
    let slice = Slice::on(2, 64 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(2 * MIB, 2 * MIB));
    ledger.pool_made(POOL, PoolPlace::Anywhere);
    let take = |bytes| {
        let (extent, undo) = (Extent::blocks(bytes).unwrap(), |pointer| driver.free(pointer));
        let made = || driver.allocate(bytes);
        ledger.allocate_from_pool_anywhere(POOL, extent, &slice.daemon(), &driver, made, undo)
    };
    let free = |pointer| {
        let freed = || {
            driver.free(pointer);
            Ok::<_, i32>(())
        };
        ledger.free_to_pool(pointer, &driver, freed).unwrap();
    };
    let first = take(40 * MIB).unwrap();
    assert_eq!((first >> 57, both(&slice)), (0, [40 * MIB; 2]));
    assert!(ledger.is_streamed(first));
    assert_eq!(take(30 * MIB), Err(ClaimDenied::OutOfMemory));
    assert_eq!(both(&slice), [40 * MIB; 2], "what was charged for the refused one is back");
    free(first);
    free(first);
    ledger.settle_pools(&driver, |_| driver.trim());
    assert_eq!(both(&slice), [0; 2]);
    let second = take(20 * MIB).unwrap();
    ledger.destroy_pool(POOL, || Ok::<_, i32>(())).unwrap();
    assert_eq!(both(&slice), [20 * MIB; 2], "a pool that was destroyed in use keeps what it has");
    free(second);
    assert_eq!(both(&slice), [0; 2]);
}

#[test]
fn full_device_refuses_what_may_lie_anywhere() {
    let slice = Slice::on(2, 64 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(2 * MIB, 2 * MIB));
    let full = slice.tenant(0).charge(DeviceSlot::new(1).unwrap(), Units::within(60 * MIB), &slice.daemon());
    full.unwrap().keep(Units::within(60 * MIB));
    let (extent, made) = (Extent::blocks(8 * MIB).unwrap(), || driver.allocate(8 * MIB));
    let refused = ledger.allocate_from_pool_anywhere(POOL, extent, &slice.daemon(), &driver, made, |_| {});
    assert_eq!((refused, driver.calls.get()), (Err(ClaimDenied::OutOfMemory), 0));
    assert_eq!(both(&slice), [0, 60 * MIB]);
}

#[test]
fn pool_seen_again_keeps_its_place_and_charge() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, driver) = (slice.ledger(), Stepping::by(2 * MIB, 2 * MIB));
    allocate(&ledger, &slice, &driver, MIB).unwrap();
    ledger.pool_seen(POOL, PoolPlace::Host);
    assert_eq!(ledger.pool_place(POOL), Some(PoolPlace::On(device())));
    assert_eq!(slice.used(), 2 * MIB);
    ledger.pool_made(POOL, PoolPlace::Host);
    assert_eq!((ledger.pool_place(POOL), slice.used()), (Some(PoolPlace::Host), 0));
}

proptest! {
    /// Once a step is known, the driver never keeps more than the charge, nor more than the cap.
    #[test]
    fn known_steps_keep_every_pool_within_its_charge(
        step in 1u64..24,
        steps in vec((0u8..4, 1u64..40, 0usize..8), 1..80),
    ) {
        let step = step * BLOCK_BYTES;
        let slice = Slice::of(200 * MIB, Units::ZERO);
        let (ledger, driver) = (slice.ledger(), Stepping::by(step, step));
        let mut held = Vec::new();
        for (what, mib, which) in steps {
            match what {
                0 | 1 => held.extend(allocate(&ledger, &slice, &driver, mib * MIB)),
                2 if !held.is_empty() => {
                    let pointer: u64 = held.swap_remove(which % held.len());
                    let freed = || { driver.free(pointer); Ok::<_, i32>(()) };
                    ledger.free_to_pool(pointer, &driver, freed).unwrap();
                }
                _ => ledger.settle_pools(&driver, |_| driver.trim()),
            }
            prop_assert!(driver.kept.get() <= slice.used(), "{} of {}", driver.kept.get(), slice.used());
            prop_assert!(driver.most.get() <= 200 * MIB);
        }
    }
}
