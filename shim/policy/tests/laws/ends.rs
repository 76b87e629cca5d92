//! Laws of contexts that end while other threads allocate, and of charges in each context.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use proptest::prelude::*;
use tranche_policy::{
    BLOCK_BYTES, Claim, ClaimDenied, DaemonLink, EntryKind, Extent, ImageSize, Ledger, Owner, PoolUse,
};
use tranche_shm::credit::Units;

use crate::slice::{Slice, device};

const MIB: u64 = 1 << 20;
const CONTEXT_BYTES: u64 = 8 * MIB;
const CAP: u64 = 64 * MIB;

/// A device with a primary context that any thread makes, ends and allocates in.
struct Driver {
    state: Mutex<State>,
    /// True if a primary context that is made again has its earlier handle.
    same_name: bool,
    slice: Slice,
}

#[derive(Default)]
struct State {
    primary: Option<u64>,
    retained: u64,
    made: u64,
    next: u64,
    allocations: BTreeMap<u64, u64>,
    /// A pool, which outlives contexts, with its allocations and the memory that it keeps.
    streamed: BTreeMap<u64, u64>,
    kept: u64,
}

/// Errors of this fake driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Invalid;

impl State {
    fn held(&self) -> u64 {
        self.allocations.values().sum::<u64>() + self.primary.map_or(0, |_| CONTEXT_BYTES) + self.kept
    }

    fn end(&mut self) {
        self.retained = 0;
        if self.primary.take().is_some() {
            self.allocations.clear();
            self.next = 0;
        }
    }
}

impl Driver {
    fn new(same_name: bool) -> Self {
        let slice = Slice::of(CAP, Units::within(CONTEXT_BYTES));
        Self { state: Mutex::default(), same_name, slice }
    }

    fn check(&self, state: &State) {
        let (held, used) = (state.held(), self.slice.used());
        assert!(held <= used, "the device holds {held} and {used} are charged");
        assert!(used <= CAP, "{used} of {CAP} are charged");
    }

    fn ledger(&self) -> Ledger<'_> {
        self.slice.ledger()
    }

    fn retain(&self, thread: u64) -> Option<u64> {
        let (ledger, daemon) = (self.ledger(), self.slice.daemon());
        let call = ledger.begin_device_call(thread, device(), &daemon).unwrap();
        ledger.reserve_context(device(), &daemon).ok()?;
        let mut state = self.state.lock().unwrap();
        if state.primary.is_none() {
            state.made += 1;
            state.primary = Some(700 + if self.same_name { 0 } else { state.made });
        }
        state.retained += 1;
        let context = state.primary.unwrap();
        self.check(&state);
        drop(state);
        ledger.primary_opened(context, device());
        drop(call);
        Some(context)
    }

    fn close(&self, thread: u64, driver: impl FnOnce(&mut State) -> Result<(), Invalid>) {
        let is_gone = || self.state.lock().unwrap().primary.is_none();
        let driver = || driver(&mut self.state.lock().unwrap());
        let _ = self.ledger().close_primary(thread, device(), &self.slice.daemon(), driver, is_gone);
    }

    fn release(&self, thread: u64) {
        self.close(thread, |state| {
            state.retained = state.retained.checked_sub(1).ok_or(Invalid)?;
            if state.retained == 0 {
                state.end();
            }
            Ok(())
        });
    }

    fn reset(&self, thread: u64) {
        self.close(thread, |state| {
            state.end();
            Ok(())
        });
    }

    /// Allocates. Freed addresses are reused, lowest first, so that a freed one soon belongs to another allocation.
    fn allocate(&self, thread: u64, context: u64, bytes: u64) -> Option<u64> {
        let (ledger, daemon) = (self.ledger(), self.slice.daemon());
        let call = ledger.begin_call(thread, context, &daemon).unwrap();
        let owner = ledger.known_owner(context)?;
        let claim = Claim { device: device(), extent: Extent::plain(bytes).unwrap(), owner };
        let driver = || {
            let mut state = self.state.lock().unwrap();
            if state.primary != Some(context) {
                return Err(Invalid);
            }
            let pointer = (1 << 40) + state.next * CAP;
            state.next += 1;
            state.allocations.insert(pointer, bytes);
            self.check(&state);
            drop(state);
            std::thread::yield_now();
            Ok((pointer, claim.extent))
        };
        let made = ledger.allocate(EntryKind::Memory, claim, &daemon, driver, |_| {}).ok();
        drop(call);
        made
    }

    /// Allocates from the pool by work of a context: a refusal can be undone only while that exists.
    fn stream(&self, thread: u64, context: u64, bytes: u64) -> Option<u64> {
        let (ledger, daemon) = (self.ledger(), self.slice.daemon());
        let call = ledger.begin_call(thread, context, &daemon).unwrap();
        ledger.known_owner(context)?;
        let claim = Claim { device: device(), extent: Extent::blocks(bytes).unwrap(), owner: Owner::NOBODY };
        let driver = || {
            let mut state = self.state.lock().unwrap();
            if state.primary != Some(context) {
                return Err(Invalid);
            }
            let pointer =
                (1 << 50) + (0..).find(|at| !state.streamed.contains_key(&((1 << 50) + at))).unwrap();
            state.streamed.insert(pointer, bytes);
            state.kept = state.kept.max(state.streamed.values().sum());
            self.check(&state);
            drop(state);
            std::thread::yield_now();
            Ok(pointer)
        };
        let undo = |pointer| {
            let mut state = self.state.lock().unwrap();
            assert_eq!(state.primary, Some(context), "the context ended under a call in it");
            state.streamed.remove(&pointer);
            state.kept = state.streamed.values().sum();
        };
        let made = ledger.allocate_from_pool(POOL, claim, &daemon, self, driver, undo).ok();
        drop(call);
        made
    }

    fn free_streamed(&self, pointer: u64) {
        let driver = || self.state.lock().unwrap().streamed.remove(&pointer).map(drop).ok_or(Invalid);
        self.ledger().free_to_pool(pointer, self, driver).unwrap();
    }

    fn trim(&self) {
        self.ledger().settle_pools(self, |_| {
            let mut state = self.state.lock().unwrap();
            state.kept = state.streamed.values().sum();
        });
    }

    fn free(&self, pointer: u64) {
        let driver = || self.state.lock().unwrap().allocations.remove(&pointer).map(drop).ok_or(Invalid);
        let _ = self.ledger().free(EntryKind::Memory, pointer, driver);
    }
}

const POOL: u64 = 5;

impl PoolUse for Driver {
    fn reserved(&self, _: u64) -> Option<u64> {
        Some(self.state.lock().unwrap().kept)
    }
}

#[test]
fn reset_beside_streams_keeps_pool_memory_charged() {
    let driver = &Driver::new(true);
    let (taken, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    beside_resets(driver, 1.5, |thread, round, context| {
        let wanted = 4 + round % 3;
        let made: Vec<u64> = (0..wanted).filter_map(|_| driver.stream(thread, context, 4 * MIB)).collect();
        taken.fetch_add(made.len() as u64, SeqCst);
        refused.fetch_add((wanted - made.len()) as u64, SeqCst);
        made.into_iter().for_each(|pointer| driver.free_streamed(pointer));
        if round % 4 == 0 {
            driver.trim();
        }
    });
    assert!(
        taken.load(SeqCst) > 100 && refused.load(SeqCst) > 0,
        "the slice was not full, or never had room"
    );
    driver.reset(9);
    let kept = driver.state.lock().unwrap().kept;
    driver.ledger().settle_pools(driver, |_| {});
    assert_eq!(driver.slice.used(), kept);
    driver.trim();
    assert_eq!(driver.slice.used(), 0, "nothing is on the device");
}

/// Runs four threads that retain the context and then work, beside one that resets it.
///
/// Their work receives the thread's number and the round.
fn beside_resets(driver: &Driver, seconds: f64, work: impl Fn(u64, usize, u64) + Sync) {
    let (over, work) = (&AtomicBool::new(false), &work);
    std::thread::scope(|scope| {
        for thread in 1..5 {
            scope.spawn(move || {
                for round in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    let Some(context) = driver.retain(thread) else { continue };
                    work(thread, round, context);
                }
            });
        }
        scope.spawn(move || {
            while !over.load(SeqCst) {
                driver.reset(9);
                std::thread::yield_now();
            }
        });
        std::thread::sleep(Duration::from_secs_f64(seconds));
        over.store(true, SeqCst);
    });
}

/// Threads that retain, allocate, free and release, beside one that resets.
fn contend(same_name: bool, seconds: f64) {
    let driver = &Driver::new(same_name);
    let allocated = AtomicU64::new(0);
    beside_resets(driver, seconds, |thread, round, context| {
        let bytes = [2 * MIB, 6 * MIB, 10 * MIB][round % 3];
        let made: Vec<u64> = (0..3).filter_map(|_| driver.allocate(thread, context, bytes)).collect();
        allocated.fetch_add(made.len() as u64, SeqCst);
        made.iter().skip(round % 2).for_each(|pointer| driver.free(*pointer));
        if round % 4 > 0 {
            driver.release(thread);
        }
    });
    assert!(allocated.load(SeqCst) > 100, "the threads hardly allocated");
    driver.reset(9);
    assert_eq!(driver.slice.used(), 0, "nothing is on the device");
}

#[test]
fn reset_while_threads_allocate_leaves_nothing_charged() {
    contend(false, 1.5);
}

#[test]
fn reset_with_same_handle_leaves_no_charge() {
    contend(true, 1.5);
}

#[test]
fn end_of_context_waits_for_its_calls_only() {
    let slice = Slice::of(CAP, Units::within(CONTEXT_BYTES));
    let ledger = slice.ledger();
    for context in [77, 78] {
        ledger.create_context(device(), &slice.daemon(), || Ok::<_, i32>(context), |_| {}).unwrap();
    }
    let call = ledger.begin_call(1, 78, &slice.daemon()).unwrap();
    ledger.close(2, 77, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            slice.ledger().close(2, 78, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
            ended.store(true, SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ended.load(SeqCst), "a call is under way in it");
        drop(call);
    });
    assert_eq!(slice.used(), 0);
}

#[test]
fn end_by_the_thread_that_calls_does_not_wait() {
    let slice = Slice::of(CAP, Units::within(CONTEXT_BYTES));
    let ledger = slice.ledger();
    ledger.create_context(device(), &slice.daemon(), || Ok::<_, i32>(77), |_| {}).unwrap();
    let _call = ledger.begin_call(1, 77, &slice.daemon()).unwrap();
    ledger.close(1, 77, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), 0);
}

/// A clock that advances by itself, so that patience ends at once.
struct Hasty<'a>(&'a Slice, AtomicU64);

impl DaemonLink for Hasty<'_> {
    fn ask(
        &self,
        device: tranche_shm::DeviceSlot,
        want: Units,
        deadline_ns: u64,
    ) -> tranche_policy::CreditResult {
        self.0.daemon().ask(device, want, deadline_ns)
    }

    fn now_ns(&self) -> u64 {
        self.1.fetch_add(1_000_000_000, SeqCst)
    }

    fn pause(&self) {}
}

#[test]
fn stuck_call_delays_end_and_keeps_reserve() {
    let slice = Slice::of(CAP, Units::within(CONTEXT_BYTES));
    let (ledger, hasty) = (slice.ledger(), Hasty(&slice, AtomicU64::new(0)));
    ledger.reserve_context(device(), &hasty).unwrap();
    ledger.primary_opened(700, device());
    let stuck = ledger.begin_call(1, 700, &hasty).unwrap();
    ledger.close_primary(2, device(), &hasty, || Ok::<_, i32>(()), || true).unwrap();
    assert_eq!(slice.used(), CONTEXT_BYTES, "the call may be making a context anew");
    drop(stuck);
    ledger.close_primary(2, device(), &hasty, || Ok::<_, i32>(()), || true).unwrap();
    assert_eq!(slice.used(), 0);
}

const LIBRARY: ImageSize = ImageSize { code: 100, small: 0, large: 4 * MIB, deferred: 0, is_managed: false };
/// Cost in a context in bytes, and in the first of a device, whose reserve covers small code.
const COPY: u64 = 4 * MIB + BLOCK_BYTES;
const FIRST_COPY: u64 = 4 * MIB;

fn load(slice: &Slice, library: u64) -> Result<u64, ClaimDenied<i32>> {
    slice.ledger().load_library(LIBRARY, &slice.daemon(), || Ok(library), |_| {})
}

fn create(slice: &Slice, context: u64) -> Result<u64, ClaimDenied<i32>> {
    slice.ledger().create_context(device(), &slice.daemon(), || Ok(context), |_| {})
}

#[test]
fn library_is_charged_in_each_context_present_and_future() {
    let slice = Slice::of(CAP, Units::within(CONTEXT_BYTES));
    let ledger = slice.ledger();
    load(&slice, 5).unwrap();
    assert_eq!(slice.used(), 0, "there is no context");
    ledger.reserve_context(device(), &slice.daemon()).unwrap();
    assert_eq!(slice.used(), CONTEXT_BYTES + FIRST_COPY);
    create(&slice, 77).unwrap();
    assert_eq!(slice.used(), 2 * CONTEXT_BYTES + FIRST_COPY + COPY);
    load(&slice, 6).unwrap();
    assert_eq!(slice.used(), 2 * CONTEXT_BYTES + FIRST_COPY + 3 * COPY);
    ledger.unload_library(5, || Err(1)).unwrap_err();
    ledger.close(1, 77, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), CONTEXT_BYTES + FIRST_COPY + COPY);
    for library in [5, 6] {
        ledger.unload_library(library, || Ok::<_, i32>(())).unwrap();
    }
    assert_eq!(slice.used(), CONTEXT_BYTES);
    ledger.close_primary(1, device(), &slice.daemon(), || Ok::<_, i32>(()), || true).unwrap();
    assert_eq!(slice.used(), 0);
}

/// The image with code beyond a block, which the driver loads when a function of it is needed.
const LAZY: ImageSize = ImageSize { code: 0, deferred: 6 * MIB, ..LIBRARY };
const REST: u64 = 4 * MIB;

#[test]
fn needed_lazy_library_code_is_charged_per_context() {
    let slice = Slice::of(CAP, Units::within(CONTEXT_BYTES));
    let (ledger, daemon) = (slice.ledger(), slice.daemon());
    create(&slice, 77).unwrap();
    ledger.load_library(LAZY, &daemon, || Ok::<_, i32>(5), |_| {}).unwrap();
    assert_eq!(slice.used(), CONTEXT_BYTES + FIRST_COPY);
    for _ in 0..2 {
        ledger.need_library(5, &daemon).unwrap();
        assert_eq!(slice.used(), CONTEXT_BYTES + FIRST_COPY + REST, "once, however often it is needed");
    }
    create(&slice, 78).unwrap();
    assert_eq!(slice.used(), 2 * (CONTEXT_BYTES + REST) + FIRST_COPY + COPY);
    ledger.close(1, 77, &daemon, || Ok::<_, i32>(())).unwrap();
    ledger.need_library(6, &daemon).unwrap();
    ledger.unload_library(5, || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), CONTEXT_BYTES);
}

#[test]
fn needed_code_beyond_cap_is_refused_until_room() {
    let slice = Slice::of(30 * MIB, Units::within(CONTEXT_BYTES));
    let (ledger, daemon) = (slice.ledger(), slice.daemon());
    create(&slice, 77).unwrap();
    let owner = ledger.known_owner(77).unwrap();
    let load = |module| ledger.load_module(LAZY, (device(), owner), &daemon, || Ok::<_, i32>(module), |_| {});
    load(5).unwrap();
    ledger.load_library(LAZY, &daemon, || Ok::<_, i32>(6), |_| {}).unwrap();
    let full = CONTEXT_BYTES + FIRST_COPY + COPY;
    let other = slice.tenant(0).charge(device(), Units::within(30 * MIB - full), &daemon).unwrap();
    assert!(ledger.need_module(5, &daemon).is_err() && ledger.need_library(6, &daemon).is_err());
    assert_eq!(slice.used(), 30 * MIB, "nothing of the refused stays");
    drop(other);
    ledger.need_module(5, &daemon).unwrap();
    ledger.need_module(5, &daemon).unwrap();
    ledger.need_library(6, &daemon).unwrap();
    assert_eq!(slice.used(), full + 2 * REST);
    ledger.free(EntryKind::Module, 5, || Ok::<_, i32>(())).unwrap();
    ledger.unload_library(6, || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), CONTEXT_BYTES);
    load(7).unwrap();
    ledger.need_module(7, &daemon).unwrap();
    ledger.close(1, 77, &daemon, || Ok::<_, i32>(())).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn needed_code_is_charged_exactly_under_concurrency() {
    for _ in 0..200 {
        let slice = &Slice::of(1 << 36, Units::within(CONTEXT_BYTES));
        let ok = || Ok::<_, i32>(());
        for library in 0..3 {
            slice.ledger().load_library(LAZY, &slice.daemon(), || Ok::<_, i32>(5 + library), |_| {}).unwrap();
        }
        std::thread::scope(|scope| {
            for library in 0..3 {
                scope.spawn(move || slice.ledger().need_library(5 + library, &slice.daemon()).unwrap());
                scope.spawn(move || slice.ledger().need_library(5 + library, &slice.daemon()).unwrap());
                scope.spawn(move || create(slice, 77 + library).unwrap());
            }
        });
        assert_eq!(slice.used(), 3 * CONTEXT_BYTES + 9 * (COPY + REST) - BLOCK_BYTES);
        std::thread::scope(|scope| {
            for library in 0..3 {
                scope.spawn(move || slice.ledger().unload_library(5 + library, ok).unwrap());
                scope.spawn(move || slice.ledger().need_library(5 + library, &slice.daemon()).unwrap());
                scope.spawn(move || {
                    slice.ledger().close(9 + library, 77 + library, &slice.daemon(), ok).unwrap();
                });
            }
        });
        assert_eq!(slice.used(), 0);
    }
}

#[test]
fn library_without_room_in_every_context_is_refused() {
    let slice = Slice::of(38 * MIB, Units::within(CONTEXT_BYTES));
    for context in [77, 78] {
        create(&slice, context).unwrap();
    }
    let large = ImageSize { large: 16 * MIB, ..LIBRARY };
    let never = || -> Result<u64, i32> { panic!("the driver was called") };
    let denied = slice.ledger().load_library(large, &slice.daemon(), never, |_| {});
    assert_eq!((denied, slice.used()), (Err(ClaimDenied::OutOfMemory), 2 * CONTEXT_BYTES));
    load(&slice, 5).unwrap();
    let denied = create(&slice, 79);
    assert_eq!(denied, Err(ClaimDenied::OutOfMemory));
    assert_eq!(slice.used(), 2 * CONTEXT_BYTES + FIRST_COPY + COPY, "nothing of the refused one stays");
    let failed = slice.ledger().load_library(LIBRARY, &slice.daemon(), || Err(7), |_| {});
    assert_eq!(failed, Err(ClaimDenied::Driver(7)));
    assert_eq!(slice.used(), 2 * CONTEXT_BYTES + FIRST_COPY + COPY, "nothing of the failed one stays");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn libraries_and_contexts_are_charged_in_any_order(
        steps in proptest::collection::vec((0u8..5, 0u64..4), 1..60)
    ) {
        let slice = Slice::of(1 << 36, Units::within(CONTEXT_BYTES));
        let ledger = slice.ledger();
        let (mut libraries, mut contexts) = (BTreeMap::new(), BTreeMap::new());
        for (step, which) in steps {
            match step {
                0 | 1 if !libraries.contains_key(&which) => {
                    load(&slice, 5 + which).unwrap();
                    libraries.insert(which, ());
                }
                0 | 1 => {
                    ledger.unload_library(5 + which, || Ok::<_, i32>(())).unwrap();
                    libraries.remove(&which);
                }
                2 | 3 if !contexts.contains_key(&which) => {
                    create(&slice, 77 + which).unwrap();
                    contexts.insert(which, ());
                }
                2 | 3 => {
                    ledger.close(1, 77 + which, &slice.daemon(), || Ok::<_, i32>(())).unwrap();
                    contexts.remove(&which);
                }
                _ => {
                    let failed = ledger.load_library(LIBRARY, &slice.daemon(), || Err(7), |_| {});
                    prop_assert_eq!(failed, Err(ClaimDenied::Driver(7)));
                }
            }
            let (code, count) = (libraries.len() as u64, contexts.len() as u64);
            let allowed = if code * count > 0 { BLOCK_BYTES } else { 0 };
            let expected = count * CONTEXT_BYTES + code * count * COPY;
            // The allowance belongs to the copy that took it, and is free while none has it.
            prop_assert!([expected, expected - allowed].contains(&slice.used()));
        }
    }
}

#[test]
fn libraries_loaded_beside_new_contexts_are_charged_everywhere() {
    for _ in 0..300 {
        let slice = Slice::of(1 << 36, Units::within(CONTEXT_BYTES));
        std::thread::scope(|scope| {
            for library in 0..3 {
                let slice = &slice;
                scope.spawn(move || load(slice, 5 + library).unwrap());
                scope.spawn(move || create(slice, 77 + library).unwrap());
            }
        });
        assert_eq!(slice.used(), 3 * CONTEXT_BYTES + 9 * COPY - BLOCK_BYTES);
        std::thread::scope(|scope| {
            for library in 0..3 {
                let slice = &slice;
                scope.spawn(move || slice.ledger().unload_library(5 + library, || Ok::<_, i32>(())).unwrap());
                scope.spawn(move || {
                    let ok = || Ok::<_, i32>(());
                    slice.ledger().close(9 + library, 77 + library, &slice.daemon(), ok).unwrap();
                });
            }
        });
        assert_eq!(slice.used(), 0);
    }
}
