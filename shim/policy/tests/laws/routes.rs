//! Laws of memory that the driver takes by itself: graphs, modules, limits, contexts, ordered frees.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tranche_policy::{
    BLOCK, BLOCK_BYTES, Bound, Claim, ClaimDenied, EntryKind, Extent, GraphUse, ImageSize, Ledger, Mark,
    Marks, Owner, Tile, limit_cost,
};
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::slice::{Slice, device};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 700;

fn ok() -> Result<(), i32> {
    Ok(())
}

/// A driver's pool behind graphs, and its streams: all marks created by `passed` are passed.
#[derive(Default)]
struct Behind {
    used: Cell<u64>,
    reserved: Cell<u64>,
    marks: RefCell<BTreeMap<u64, bool>>,
    next: Cell<u64>,
}

impl Marks for Behind {
    fn passed(&self, event: u64) -> bool {
        *self.marks.borrow().get(&event).expect("the event is there")
    }

    fn end(&self, event: u64) {
        assert!(self.marks.borrow_mut().remove(&event).is_some(), "the event is there");
    }
}

impl Behind {
    fn take(&self, bytes: u64) {
        self.used.set(self.used.get() + bytes);
        self.reserved.set(self.reserved.get().max(self.used.get()));
    }

    fn give(&self, bytes: u64) {
        self.used.set(self.used.get() - bytes);
    }

    fn trim(&self) {
        self.reserved.set(self.used.get());
    }

    fn mark(&self) -> Mark {
        self.next.set(self.next.get() + 1);
        self.marks.borrow_mut().insert(self.next.get(), false);
        Mark { event: self.next.get(), context: CONTEXT }
    }

    /// Ends all work that is under way.
    fn finish(&self) {
        self.marks.borrow_mut().values_mut().for_each(|passed| *passed = true);
    }
}

impl GraphUse for Behind {
    fn reserved(&self, _: DeviceSlot) -> Option<u64> {
        Some(self.reserved.get())
    }

    fn used(&self, _: DeviceSlot) -> Option<u64> {
        Some(self.used.get())
    }
}

fn launch(slice: &Slice, graph: u64, behind: &Behind) -> Result<(), ClaimDenied<i32>> {
    slice.ledger().launch_graph(graph, CONTEXT, &slice.daemon(), behind, ok, || behind.mark())
}

#[test]
fn graph_is_charged_once_before_its_first_launch() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    ledger.graph_ready(5, device(), Units::within(40 * MIB)).unwrap();
    assert_eq!(slice.used(), 0);
    for _ in 0..3 {
        launch(&slice, 5, &behind).unwrap();
        assert_eq!(slice.used(), 40 * MIB);
        behind.take(40 * MIB);
        behind.give(40 * MIB);
        behind.finish();
        ledger.settle_graphs(&slice.daemon(), &behind);
        assert_eq!(slice.used(), 40 * MIB, "what the driver keeps stays charged");
    }
    behind.trim();
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!(slice.used(), 0);
}

#[test]
fn trim_releases_nothing_while_a_graph_runs() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    ledger.graph_ready(5, device(), Units::within(40 * MIB)).unwrap();
    launch(&slice, 5, &behind).unwrap();
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!(slice.used(), 40 * MIB, "it is launched and has allocated nothing yet");
    ledger.graph_destroyed(5);
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!(slice.used(), 40 * MIB, "it is destroyed and may still run");
    behind.finish();
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!(slice.used(), 0);
}

#[test]
fn graph_beyond_cap_is_not_launched() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    ledger.graph_ready(5, device(), Units::within(40 * MIB)).unwrap();
    ledger.graph_ready(6, device(), Units::within(40 * MIB)).unwrap();
    launch(&slice, 5, &behind).unwrap();
    let driver = || panic!("the driver was called");
    let refused = ledger.launch_graph::<i32>(6, CONTEXT, &slice.daemon(), &behind, driver, || behind.mark());
    assert_eq!(refused, Err(ClaimDenied::OutOfMemory));
    behind.finish();
    launch(&slice, 6, &behind).unwrap();
    assert_eq!(slice.used(), 40 * MIB, "what the first has left unused is the second's");
}

#[test]
fn graph_ends_with_its_latest_mark() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    ledger.graph_ready(5, device(), Units::within(40 * MIB)).unwrap();
    launch(&slice, 5, &behind).unwrap();
    behind.finish();
    launch(&slice, 5, &behind).unwrap();
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!((slice.used(), behind.marks.borrow().len()), (40 * MIB, 1), "the second launch is under way");
    behind.finish();
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!((slice.used(), behind.marks.borrow().len()), (0, 0), "the event is gone with the graph's end");
}

#[test]
fn graph_without_mark_runs_until_its_context_ends() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    ledger.owner(CONTEXT, device(), &slice.daemon()).unwrap();
    ledger.graph_ready(5, device(), Units::within(40 * MIB)).unwrap();
    for mark in [Mark { event: 0, context: CONTEXT }, behind.mark()] {
        ledger.launch_graph(5, CONTEXT, &slice.daemon(), &behind, ok, || mark).unwrap();
        ledger.settle_graphs(&slice.daemon(), &behind);
        assert_eq!(slice.used(), 40 * MIB);
    }
    ledger
        .close(1, CONTEXT, &slice.daemon(), || {
            behind.marks.borrow_mut().clear(); // a query for it would now be an error
            ok()
        })
        .unwrap();
    ledger.settle_graphs(&slice.daemon(), &behind);
    assert_eq!(slice.used(), 0);
}

fn plain(slice: &Slice, pointer: u64, bytes: u64) -> Result<u64, ClaimDenied<i32>> {
    let owner = slice.ledger().owner(CONTEXT, device(), &slice.daemon()).unwrap();
    let claim = Claim { device: device(), extent: Extent::plain(bytes).unwrap(), owner };
    let driver = || Ok((pointer, claim.extent));
    slice.ledger().allocate(EntryKind::Memory, claim, &slice.daemon(), driver, |_| {})
}

#[test]
fn ordered_free_stays_charged_until_the_stream_reaches_it() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    let at = 1 << 40;
    for bytes in [40 * MIB, 4096] {
        plain(&slice, at, bytes).unwrap();
        let held = slice.used();
        ledger.free_in_order(at, &behind, || behind.mark(), ok).unwrap();
        ledger.free_in_order(at, &behind, || behind.mark(), ok).unwrap();
        ledger.settle_marks(&behind);
        assert_eq!(slice.used(), held, "it may not have gone yet");
        behind.finish();
        ledger.settle_marks(&behind);
        assert_eq!((slice.used(), behind.marks.borrow().len()), (0, 0));
    }
    plain(&slice, at, 40 * MIB).unwrap();
    assert_eq!(ledger.free_in_order(at, &behind, || panic!("nothing to mark"), || Err(1)), Err(1));
    assert_eq!(slice.used(), 40 * MIB, "the driver refused");
}

#[test]
fn reused_address_ends_its_ordered_free() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    for _ in 0..3 {
        plain(&slice, 1 << 40, 20 * MIB).unwrap();
        ledger.free_in_order(1 << 40, &behind, || behind.mark(), ok).unwrap();
    }
    assert_eq!((slice.used(), behind.marks.borrow().len()), (20 * MIB, 1));
}

#[test]
fn ordered_frees_end_with_their_context() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    plain(&slice, 1 << 40, 20 * MIB).unwrap();
    ledger.free_in_order(1 << 40, &behind, || behind.mark(), ok).unwrap();
    ledger
        .close(1, CONTEXT, &slice.daemon(), || {
            behind.marks.borrow_mut().clear(); // a query for it would now be an error
            ledger.settle_marks(&behind);
            ok()
        })
        .unwrap();
    ledger.settle_marks(&behind);
    assert_eq!(slice.used(), 0);
}

fn load(ledger: &Ledger<'_>, slice: &Slice, module: u64, size: ImageSize) -> Result<u64, ClaimDenied<i32>> {
    ledger.load_module(size, (device(), Owner::NOBODY), &slice.daemon(), || Ok(module), |_| {})
}

#[test]
fn reserve_covers_one_small_module() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let size = ImageSize { code: 100, large: 4 * MIB, ..ImageSize::default() };
    for (module, used) in [(1, 4 * MIB), (2, 10 * MIB), (3, 16 * MIB), (4, 22 * MIB)] {
        load(&ledger, &slice, module, size).unwrap();
        assert_eq!(slice.used(), used);
    }
    ledger.free(EntryKind::Module, 1, ok).unwrap();
    load(&ledger, &slice, 5, size).unwrap();
    assert_eq!(slice.used(), 22 * MIB, "the reserve serves the next one");
    (2..6).for_each(|module| ledger.free(EntryKind::Module, module, ok).unwrap());
    assert_eq!(slice.used(), 0);
    let huge = ImageSize { code: 1, large: 100 * MIB, ..ImageSize::default() };
    assert_eq!(load(&ledger, &slice, 6, huge), Err(ClaimDenied::OutOfMemory));
    load(&ledger, &slice, 7, ImageSize::default()).unwrap();
    assert_eq!(slice.used(), 0, "a refusal does not use up the reserve");
}

#[test]
fn raised_limit_is_charged_until_context_ends() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let owner = ledger.owner(CONTEXT, device(), &slice.daemon()).unwrap();
    let set = |value: u64, driver: fn() -> Result<(), i32>| {
        let default = ledger.limit_default(CONTEXT, 2, (device(), owner), 8 * MIB)?;
        let claim = Claim { device: device(), extent: limit_cost(value, default, 1).unwrap(), owner };
        ledger.set_limit(CONTEXT, (2, default), claim, &slice.daemon(), driver)
    };
    for (value, used) in [(8 * MIB, 0), (20 * MIB, 12 * MIB), (10 * MIB, 12 * MIB), (40 * MIB, 32 * MIB)] {
        set(value, ok).unwrap();
        assert_eq!(slice.used(), used);
    }
    assert_eq!(set(80 * MIB, || panic!("the driver was called")), Err(ClaimDenied::OutOfMemory));
    assert_eq!(set(50 * MIB, || Err(7)), Err(ClaimDenied::Driver(7)));
    assert_eq!(slice.used(), 32 * MIB);
    ledger.close(1, CONTEXT, &slice.daemon(), ok).unwrap();
    assert_eq!(slice.used(), 0);
    assert_eq!(limit_cost(u64::MAX, 0, 1 << 20), None);
}

#[test]
fn default_of_limit_is_read_before_its_first_change() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let owner = ledger.owner(CONTEXT, device(), &slice.daemon()).unwrap();
    let default = |now| ledger.limit_default(CONTEXT, 2, (device(), owner), now);
    assert_eq!(default(8 * MIB), Ok(8 * MIB));
    // One thread has let the driver change it and is not done; another one queries the driver.
    assert_eq!(default(40 * MIB), Ok(8 * MIB));
    ledger.close(1, CONTEXT, &slice.daemon(), ok).unwrap();
    let owner = ledger.owner(CONTEXT, device(), &slice.daemon()).unwrap();
    let again = ledger.limit_default(CONTEXT, 2, (device(), owner), 9 * MIB);
    assert_eq!((again, slice.used()), (Ok(9 * MIB), 0), "a context of the same name has its own");
}

#[test]
fn a_green_context_and_its_other_name_end_together() {
    let slice = Slice::of(64 * MIB, Units::within(8 * MIB));
    let ledger = slice.ledger();
    ledger.create_context(device(), &slice.daemon(), || Ok::<_, i32>(80), |_| {}).unwrap();
    ledger.context_alias(80, 81);
    let owner = ledger.owner(81, device(), &slice.daemon()).unwrap();
    let claim = Claim { device: device(), extent: Extent::plain(4 * MIB).unwrap(), owner };
    let driver = || Ok::<_, i32>((1 << 40, claim.extent));
    ledger.allocate(EntryKind::Memory, claim, &slice.daemon(), driver, |_| {}).unwrap();
    assert_eq!(slice.used(), 12 * MIB);
    ledger.close(1, 80, &slice.daemon(), ok).unwrap();
    assert_eq!(slice.used(), 0);
}

fn physical(slice: &Slice, handle: u64) {
    let extent = Extent::plain(4 * MIB).unwrap();
    let claim = Claim { device: device(), extent, owner: Owner::NOBODY };
    slice.ledger().create(claim, &slice.daemon(), || Ok::<_, i32>(handle), |_| {}).unwrap();
}

#[test]
fn retained_handle_keeps_memory_under_any_name() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    physical(&slice, 9);
    let at = 100 * MIB;
    ledger.map(9, 4 * MIB, &slice.daemon(), || Ok::<_, i32>(at)).unwrap();
    ledger.retained(10, at + 3 * MIB);
    ledger.release(9, ok).unwrap();
    ledger.unmap(at, 4 * MIB, ok).unwrap();
    assert_eq!(slice.used(), 4 * MIB);
    ledger.release(10, ok).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn imported_handle_is_charged_when_its_size_shows() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    ledger.imported(9, device()).unwrap();
    let map = |at: u64| ledger.map(9, 8 * MIB, &slice.daemon(), || Ok::<_, i32>(at));
    map(100 * MIB).unwrap();
    map(200 * MIB).unwrap();
    assert_eq!(slice.used(), 8 * MIB);
    ledger.imported(11, device()).unwrap();
    let huge = ledger.map(11, 80 * MIB, &slice.daemon(), || Ok::<_, i32>(300 * MIB));
    assert_eq!(huge, Err(ClaimDenied::OutOfMemory));
    ledger.release(9, ok).unwrap();
    ledger.unmap(100 * MIB, 8 * MIB, ok).unwrap();
    assert_eq!(slice.used(), 8 * MIB);
    ledger.view_gone(200 * MIB, ledger.stamp());
    assert_eq!(slice.used(), 0);
}

#[test]
fn multicast_binding_stays_charged_until_unbound_or_ended() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    ledger.multicast_made(50);
    for handle in [9, 10] {
        physical(&slice, handle);
        ledger.bind((50, handle * 2 * MIB), Bound::Handle(handle), ok).unwrap();
        ledger.release(handle, ok).unwrap();
    }
    assert_eq!(slice.used(), 8 * MIB);
    ledger.unbind((50, 18 * MIB), device(), ok).unwrap();
    assert_eq!(slice.used(), 4 * MIB);
    ledger.release(50, ok).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn destroyed_endpoint_releases_its_bindings() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let endpoint = 7 | 1 << 54;
    for (handle, offset) in [(9, 0), (10, 4096)] {
        physical(&slice, handle);
        ledger.bind((endpoint, offset), Bound::Handle(handle), ok).unwrap();
        ledger.release(handle, ok).unwrap();
    }
    assert_eq!(slice.used(), 8 * MIB, "offsets may be finer than blocks");
    assert_eq!(ledger.unbind((endpoint, 0), device(), || Err(1)), Err(1));
    assert_eq!(slice.used(), 8 * MIB);
    ledger.unbind_all(endpoint);
    assert_eq!(slice.used(), 0);
}

/// A sparse array, which has no memory of its own.
fn sparse(slice: &Slice, array: u64) {
    let owner = slice.ledger().owner(CONTEXT, device(), &slice.daemon()).unwrap();
    let claim = Claim { device: device(), extent: Extent::blocks(0).unwrap(), owner };
    let driver = || Ok::<_, i32>((array, claim.extent));
    slice.ledger().allocate(EntryKind::Array, claim, &slice.daemon(), driver, |_| {}).unwrap();
}

fn tile(array: u64, at: u64, memory: Option<u64>) -> Tile {
    Tile { array, region: [0, at, 0, 0, 0], memory }
}

#[test]
fn memory_stays_while_it_is_in_an_array() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    let map = |tiles: &[Tile]| {
        ledger.map_tiles(tiles.iter().copied(), &behind, || behind.mark(), ok).unwrap();
    };
    sparse(&slice, 70);
    for handle in [9, 10, 11] {
        physical(&slice, handle);
    }
    map(&[tile(70, 0, Some(9)), tile(70, 1, Some(10))]);
    let refused = ledger.map_tiles([tile(70, 2, Some(11))].into_iter(), &behind, || behind.mark(), || Err(1));
    assert_eq!(refused, Err(1));
    for handle in [9, 10, 11] {
        ledger.release(handle, ok).unwrap();
    }
    assert_eq!(slice.used(), 8 * MIB, "what was not mapped is gone");
    map(&[tile(70, 0, None)]);
    ledger.settle_marks(&behind);
    assert_eq!(slice.used(), 8 * MIB, "the stream may not have come to it");
    behind.finish();
    ledger.settle_marks(&behind);
    assert_eq!(slice.used(), 4 * MIB);
    ledger.free(EntryKind::Array, 70, ok).unwrap();
    assert_eq!(slice.used(), 0);
}

#[test]
fn replaced_tile_ends_in_stream_order() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let (ledger, behind) = (slice.ledger(), Behind::default());
    sparse(&slice, 70);
    for handle in 9..13 {
        physical(&slice, handle);
        let tiles = [tile(70, 0, Some(handle))];
        ledger.map_tiles(tiles.into_iter(), &behind, || behind.mark(), ok).unwrap();
        ledger.release(handle, ok).unwrap();
    }
    assert_eq!(slice.used(), 16 * MIB);
    behind.finish();
    ledger.settle_marks(&behind);
    assert_eq!(slice.used(), 4 * MIB);
    ledger
        .close(1, CONTEXT, &slice.daemon(), || {
            behind.marks.borrow_mut().clear();
            ok()
        })
        .unwrap();
    assert_eq!(slice.used(), 0, "arrays end with their context");
}

/// Graphs as the driver runs them: what each holds, and whether that is still to come.
#[derive(Clone, Copy, Default)]
struct Model {
    units: u64,
    queued: bool,
    holds: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn graphs_never_hold_more_than_is_charged(steps in vec((0usize..6, 0u8..7, 1u64..12), 1..120)) {
        let cap = 64 * MIB;
        let slice = Slice::of(cap, Units::ZERO);
        let (ledger, behind) = (slice.ledger(), Behind::default());
        let mut graphs = [Model::default(); 6];
        let run_all = |graphs: &mut [Model]| {
            for graph in graphs.iter_mut().filter(|graph| graph.queued) {
                graph.queued = false;
                if !graph.holds {
                    behind.take(graph.units);
                    graph.holds = true;
                }
            }
        };
        for (which, step, blocks) in steps {
            let handle = which as u64 + 10;
            let graph = graphs[which];
            match step {
                0 if graph.units == 0 => {
                    graphs[which].units = blocks * BLOCK_BYTES;
                    ledger.graph_ready(handle, device(), Units::new(BLOCK.get() * blocks as u32)).unwrap();
                }
                1 | 2 if graph.units > 0 && !graph.queued => {
                    graphs[which].queued = launch(&slice, handle, &behind).is_ok();
                }
                3 => {
                    run_all(&mut graphs);
                    behind.finish();
                }
                4 if graph.holds && !graph.queued => {
                    behind.give(graph.units);
                    graphs[which].holds = false;
                }
                5 => behind.trim(),
                6 if graph.units > 0 && !graph.holds => {
                    // The driver ends it first; what is queued runs and is freed.
                    run_all(&mut graphs);
                    if graphs[which].holds {
                        behind.give(graph.units);
                    }
                    ledger.graph_destroyed(handle);
                    graphs[which] = Model::default();
                }
                _ => run_all(&mut graphs),
            }
            prop_assert!(behind.reserved.get() <= slice.used(), "{} > {}", behind.reserved.get(), slice.used());
            ledger.settle_graphs(&slice.daemon(), &behind);
            prop_assert!(behind.reserved.get() <= slice.used());
            prop_assert!(slice.used() <= cap);
        }
    }
}
