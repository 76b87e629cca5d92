//! Memory that several processes hold is charged once, until the last of them drops it.

use super::*;
use tranche_shm::control::DeviceLimits;
use tranche_shm::message::ShareKey;

const KEY: ShareKey = ShareKey(77);
const HERE: u64 = 1 << 40;
const THERE: u64 = 1 << 41;

fn export(slice: &Slice, kind: EntryKind, key: u64) {
    slice.ledger().export(kind, key, KEY, &slice.daemon()).unwrap();
}

fn open(slice: &Slice, by: usize, kind: EntryKind, key: u64, bytes: u64) -> Result<u64, ClaimDenied<i32>> {
    let driver = || Ok((key, Units::within(bytes)));
    slice.ledger_of(by).import(kind, device(), KEY, &slice.daemon_of(by), driver, |_| {})
}

fn close(slice: &Slice, by: usize, key: u64) {
    slice.ledger_of(by).drop_import(key, &slice.daemon_of(by), || Ok::<_, i32>(())).unwrap();
}

fn free_and_tell(slice: &Slice, pointer: u64) {
    free(slice, pointer);
    slice.ledger().flush_shares(&slice.daemon());
}

#[test]
fn exported_memory_is_charged_once_until_last_holder_drops() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, HERE, 40 * MIB).unwrap();
    export(&slice, EntryKind::Memory, HERE);
    assert_eq!((slice.used(), slice.charged()), (0, 40 * MIB));
    open(&slice, 1, EntryKind::Opened, THERE, 40 * MIB).unwrap();
    open(&slice, 1, EntryKind::Opened, THERE, 40 * MIB).unwrap();
    assert_eq!(slice.charged(), 40 * MIB);
    free_and_tell(&slice, HERE);
    close(&slice, 1, THERE);
    assert_eq!(slice.charged(), 40 * MIB, "opened twice, closed once");
    close(&slice, 1, THERE);
    assert_eq!(slice.charged(), 0);
    close(&slice, 1, THERE);
    assert_eq!(slice.charged(), 0, "a close too many gives back nothing");
}

#[test]
fn the_charge_outlives_the_exporter() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, HERE, 40 * MIB).unwrap();
    export(&slice, EntryKind::Memory, HERE);
    open(&slice, 1, EntryKind::Opened, THERE, 40 * MIB).unwrap();
    slice.bury(0);
    assert_eq!(slice.charged(), 40 * MIB);
    slice.bury(1);
    assert_eq!(slice.charged(), 0);
}

#[test]
fn empty_charge_passes_in_slice_over_cap() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, HERE, 40 * MIB).unwrap();
    let limits = DeviceLimits { uuid: [1; 16], cap_bytes: 20 * MIB, context: Units::ZERO };
    slice.writer().set_limits(device(), limits);
    slice.writer().set_over_cap(device(), true);
    export(&slice, EntryKind::Memory, HERE);
    open(&slice, 1, EntryKind::Opened, THERE, 40 * MIB).unwrap();
    assert_eq!((slice.used(), slice.charged()), (0, 40 * MIB));
    assert!(allocate_at(&slice, 2 * THERE, 2 * MIB).is_err());
}

#[test]
fn import_from_outside_is_charged_in_full_or_refused() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    open(&slice, 0, EntryKind::Opened, HERE, 40 * MIB).unwrap();
    open(&slice, 0, EntryKind::Opened, HERE, 40 * MIB).unwrap();
    assert_eq!(slice.used(), 40 * MIB, "the same process pays once");
    let undone = Cell::new(0);
    let driver = || Ok::<_, i32>((THERE, Units::within(40 * MIB)));
    let other = ShareKey(78);
    let refused = slice
        .ledger()
        .import(EntryKind::Opened, device(), other, &slice.daemon(), driver, |key| undone.set(key));
    assert_eq!((refused, undone.get()), (Err(ClaimDenied::OutOfMemory), THERE));
    close(&slice, 0, HERE);
    close(&slice, 0, HERE);
    assert_eq!(slice.charged(), 0);
}

#[test]
fn failed_open_leaves_no_holder() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, HERE, 2 * MIB).unwrap();
    export(&slice, EntryKind::Memory, HERE);
    let driver = || Err::<(u64, Units), _>(201);
    let failed =
        slice.ledger_of(1).import(EntryKind::Opened, device(), KEY, &slice.daemon_of(1), driver, |_| {});
    assert_eq!(failed, Err(ClaimDenied::Driver(201)));
    free_and_tell(&slice, HERE);
    assert_eq!(slice.charged(), 0);
}

#[test]
fn small_allocation_is_exported_with_its_block() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, HERE, 4096).unwrap();
    allocate_at(&slice, HERE + 4096, 4096).unwrap();
    export(&slice, EntryKind::Memory, HERE);
    assert_eq!(slice.charged(), 2 * BLOCK_BYTES, "its neighbour still pays for the block");
    free_and_tell(&slice, HERE);
    assert_eq!(slice.charged(), BLOCK_BYTES);
    free(&slice, HERE + 4096);
    assert_eq!(slice.charged(), 0);
}

#[test]
fn shared_physical_memory_is_held_while_referenced_or_mapped() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let ledger = slice.ledger();
    let claim = Claim { extent: Extent::blocks(4 * MIB).unwrap(), ..claim(0) };
    ledger.create(claim, &slice.daemon(), || Ok::<_, i32>(5), |_| {}).unwrap();
    export(&slice, EntryKind::Physical, 5);
    open(&slice, 0, EntryKind::Physical, 6, 4 * MIB).unwrap();
    open(&slice, 1, EntryKind::Physical, 5, 4 * MIB).unwrap();
    let theirs = slice.ledger_of(1);
    theirs.map(5, 4 * MIB, &slice.daemon_of(1), || Ok::<_, i32>(THERE)).unwrap();
    theirs.release(5, || Ok::<_, i32>(())).unwrap();
    for handle in [5, 6] {
        ledger.release(handle, || Ok::<_, i32>(())).unwrap();
        ledger.flush_shares(&slice.daemon());
    }
    assert_eq!(slice.charged(), 4 * MIB, "still mapped by the other");
    theirs.unmap(THERE, 4 * MIB, || Ok::<_, i32>(())).unwrap();
    theirs.flush_shares(&slice.daemon_of(1));
    assert_eq!(slice.charged(), 0);
}

#[test]
fn exporter_stays_charged_without_account_of_daemon() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    allocate_at(&slice, HERE, 4 * MIB).unwrap();
    slice.ledger().export(EntryKind::Memory, HERE, KEY, &Silent::default()).unwrap();
    assert_eq!(slice.used(), 4 * MIB);
    free_and_tell(&slice, HERE);
    assert_eq!(slice.charged(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Export,
    Open(usize),
    Close(usize),
    Free,
    Die(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Export),
        (0usize..2).prop_map(Step::Open),
        (0usize..2).prop_map(Step::Close),
        Just(Step::Free),
        (0usize..2).prop_map(Step::Die),
    ]
}

proptest! {
    #[test]
    fn slice_is_charged_exactly_while_a_holder_exists(
        steps in vec(any_step(), 0..24)
    ) {
        let mut slice = Slice::of(256 * MIB, Units::ZERO);
        allocate_at(&slice, HERE, 4 * MIB).unwrap();
        // The memory's existence, and the number of times each process has it open.
        let (mut owned, mut opened) = (true, [0u32; 2]);
        for step in steps {
            match step {
                Step::Export if owned => export(&slice, EntryKind::Memory, HERE),
                Step::Open(by) if owned => {
                    open(&slice, by, EntryKind::Opened, THERE, 4 * MIB).unwrap();
                    opened[by] += 1;
                }
                Step::Close(by) if opened[by] > 0 => {
                    close(&slice, by, THERE);
                    opened[by] -= 1;
                }
                Step::Free if owned => {
                    free_and_tell(&slice, HERE);
                    owned = false;
                }
                Step::Die(by) => {
                    slice.bury(by);
                    slice.forget_ledger(by);
                    opened[by] = 0;
                    owned &= by != 0;
                }
                _ => {}
            }
            let held = owned || opened.iter().any(|times| *times > 0);
            let most = 4 * MIB * (u64::from(owned) + opened.iter().filter(|times| **times > 0).count() as u64);
            let least = if held { 4 * MIB } else { 0 };
            prop_assert!(slice.charged() >= least);
            prop_assert!(slice.charged() <= most);
        }
    }
}
