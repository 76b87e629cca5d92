//! The shim's charges, against a driver that records what it gave: never less, never beyond the cap.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_policy::{
    BLOCK_BYTES, Claim, CreditResult, DaemonLink, EntryKind, Extent, Ledger, Owner, Tenant,
};
use tranche_shm::control::{self, Control, ControlWriter, DeviceLimits, ProcessIdentity};
use tranche_shm::credit::Units;
use tranche_shm::usage::{self, Usage};
use tranche_shm::{DeviceSlot, Slot};

use crate::input::Input;

const CAP: u64 = 64 << 20;
const CONTEXT: u64 = 6 << 20;

/// Allocates, frees, maps, trims and closes in any order, with a driver that fails at times.
///
/// Allocations are of every kind, and what is freed may not exist.
pub fn policy(data: &[u8]) {
    WORDS.with_borrow(|words| {
        let slice = Slice::new(words);
        let (mut input, mut driver) = (Input(data), Driver::default());
        let _ = drive(&slice, &mut driver, &mut input);
        finish(&slice, &mut driver);
        words.ledger.iter().filter(|word| word.load(Relaxed) != 0).for_each(|word| word.store(0, Relaxed));
    });
}

struct Words {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
    ledger: Vec<AtomicU64>,
}

thread_local! {
    /// Allocated once, as they are long. A run clears the ledger; the next one initialises the regions.
    static WORDS: RefCell<Words> = RefCell::new(Words {
        control: zeroed(control::WORDS),
        usage: zeroed(usage::WORDS),
        ledger: zeroed(Ledger::LEAST_WORDS + (1 << 16)),
    });
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// The only process of a slice, and a daemon that grants it credit up to the cap.
struct Slice<'a>(&'a Words);

impl<'a> Slice<'a> {
    fn new(words: &'a Words) -> Self {
        let writer = ControlWriter::init(&words.control, 1, 1).expect("long enough");
        let context = Units::within(CONTEXT);
        writer.set_limits(device(), DeviceLimits { uuid: [1; 16], cap_bytes: CAP, context });
        writer.occupy(slot(), ProcessIdentity { pid: 1, ..ProcessIdentity::default() });
        let usage = Usage::init(&words.usage, 1).expect("long enough");
        usage.clear(slot());
        Self(words)
    }

    fn tenant(&self) -> Tenant<'a> {
        Tenant {
            control: Control::attach(&self.0.control).expect("made whole"),
            usage: Usage::attach(&self.0.usage).expect("made whole"),
            slot: slot(),
        }
    }

    fn ledger(&self) -> Ledger<'a> {
        Ledger::over(self.tenant(), &self.0.ledger, |_| std::thread::yield_now()).expect("enough words")
    }

    fn used(&self) -> u64 {
        self.tenant().used_by(slot(), device())
    }
}

impl DaemonLink for Slice<'_> {
    fn ask(&self, device: DeviceSlot, want: Units, _: u64) -> CreditResult {
        let word = self.tenant().usage.credit(slot(), device);
        let (free, missing) = (Units::within(CAP).saturating_sub(word.load().granted), want);
        let missing = missing.saturating_sub(word.load().unused());
        if missing > free {
            return CreditResult::Exhausted;
        }
        word.grant(missing);
        CreditResult::Granted
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn pause(&self) {}
}

/// Memory that the driver has given and not taken back.
///
/// Packed allocations by address, whole ones, physical memory with its references and mappings, and the content of its
/// pool.
#[derive(Default)]
struct Driver {
    next: Cell<u64>,
    plain: RefCell<BTreeMap<u64, u64>>,
    physical: RefCell<BTreeMap<u64, Physical>>,
    mapped: BTreeMap<u64, (u64, u64)>,
    pooled: RefCell<BTreeMap<u64, u64>>,
    kept: Cell<u64>,
    contexts: BTreeSet<u64>,
}

#[derive(Clone, Copy)]
struct Physical {
    bytes: u64,
    references: u32,
    mappings: u32,
}

impl Driver {
    fn place(&self, bytes: u64, gap: u64) -> u64 {
        let align = if bytes < BLOCK_BYTES { 512 } else { BLOCK_BYTES };
        let pointer = (self.next.get().max(1 << 40) + gap).next_multiple_of(align);
        let end = pointer + bytes.max(1);
        self.next.set(if bytes < BLOCK_BYTES { end } else { end.next_multiple_of(BLOCK_BYTES) });
        pointer
    }

    /// Bytes in use on the GPU, without contexts.
    fn cost(&self) -> u64 {
        let plain = self.plain.borrow();
        let small: BTreeSet<u64> = plain
            .iter()
            .filter(|(_, bytes)| **bytes < BLOCK_BYTES)
            .flat_map(|(pointer, bytes)| pointer / BLOCK_BYTES..=(pointer + bytes - 1) / BLOCK_BYTES)
            .collect();
        let whole = |bytes: u64| bytes.next_multiple_of(BLOCK_BYTES);
        let large: u64 =
            plain.values().filter(|bytes| **bytes >= BLOCK_BYTES).map(|bytes| whole(*bytes)).sum();
        let physical: u64 = self.physical.borrow().values().map(|physical| whole(physical.bytes)).sum();
        small.len() as u64 * BLOCK_BYTES + large + physical + self.kept.get()
    }

    fn context_cost(&self) -> u64 {
        self.contexts.len() as u64 * CONTEXT
    }

    fn drop_physical(&self) {
        self.physical.borrow_mut().retain(|_, physical| physical.references > 0 || physical.mappings > 0);
    }
}

fn drive(slice: &Slice<'_>, driver: &mut Driver, input: &mut Input<'_>) -> Option<()> {
    loop {
        let step = input.below(10)?;
        let fails = input.below(16)? == 0;
        let result = if fails { Err(()) } else { Ok(()) };
        let ledger = slice.ledger();
        match step {
            0 | 1 => allocate(slice, driver, size(input)?, input.byte()?, fails),
            2 | 3 => {
                let pointer = pick(&driver.plain.borrow(), input.byte()?);
                let freed = ledger.free(EntryKind::Memory, pointer, || result);
                if freed.is_ok() {
                    driver.plain.borrow_mut().remove(&pointer);
                }
            }
            4 => {
                let bytes = size(input)?.max(BLOCK_BYTES);
                let Some(extent) = Extent::blocks(bytes) else { continue };
                let handle = driver.place(bytes, 0);
                let create = || {
                    let physical = Physical { bytes, references: 1, mappings: 0 };
                    driver.physical.borrow_mut().insert(handle, physical);
                    Ok(handle)
                };
                let create = || if fails { Err(()) } else { create() };
                let undo = |handle| _ = driver.physical.borrow_mut().remove(&handle);
                let _ = ledger.create(claim(extent), slice, create, undo);
            }
            5 => {
                let handle = pick(&driver.physical.borrow(), input.byte()?);
                let held =
                    driver.physical.borrow().get(&handle).is_some_and(|physical| physical.references > 0);
                if held && input.byte()? % 4 == 0 {
                    ledger.retained(handle, 0);
                    change(driver, handle, |physical| physical.references += 1);
                } else if ledger.release(handle, || if held { result } else { Err(()) }).is_ok() {
                    change(driver, handle, |physical| physical.references -= 1);
                }
            }
            6 => {
                let handle = pick(&driver.physical.borrow(), input.byte()?);
                let found = driver.physical.borrow().get(&handle).copied();
                let Some(physical) = found.filter(|physical| physical.references > 0) else { continue };
                let bytes = physical.bytes.next_multiple_of(BLOCK_BYTES);
                let address = (1 << 50) + driver.place(bytes, 0);
                if ledger.map(handle, bytes, slice, || result.map(|()| address)).is_ok() {
                    driver.mapped.insert(address, (bytes, handle));
                    change(driver, handle, |physical| physical.mappings += 1);
                }
            }
            7 => {
                let address = pick(&driver.mapped, input.byte()?);
                let Some((bytes, handle)) = driver.mapped.get(&address).copied() else { continue };
                if ledger.unmap(address, bytes, || result).is_ok() {
                    driver.mapped.remove(&address);
                    change(driver, handle, |physical| physical.mappings -= 1);
                }
            }
            8 => pool(slice, driver, input, fails)?,
            _ => context(slice, driver, input.below(3)?.into(), fails),
        }
        check(slice, driver);
    }
}

fn allocate(slice: &Slice<'_>, driver: &Driver, bytes: u64, gap: u8, fails: bool) {
    let Some(extent) = Extent::plain(bytes).filter(|_| bytes > 0) else { return };
    let give = || {
        if fails {
            return Err(());
        }
        let pointer = driver.place(bytes, u64::from(gap) * 4096);
        driver.plain.borrow_mut().insert(pointer, bytes);
        Ok((pointer, extent))
    };
    let undo = |pointer| _ = driver.plain.borrow_mut().remove(&pointer);
    let _ = slice.ledger().allocate(EntryKind::Memory, claim(extent), slice, give, undo);
}

/// A pool that grows by 8 MiB at a time, and keeps its memory until it is trimmed.
fn pool(slice: &Slice<'_>, driver: &Driver, input: &mut Input<'_>, fails: bool) -> Option<()> {
    const POOL: u64 = 5;
    const STEP: u64 = 8 << 20;
    let ledger = slice.ledger();
    let keeps = |_: u64| Some(driver.kept.get());
    let live = || driver.pooled.borrow().values().sum::<u64>();
    let trim = || driver.kept.set(live().next_multiple_of(STEP));
    match input.below(3)? {
        0 => {
            let bytes = size(input)?.clamp(1, 2 * CAP);
            let extent = Extent::plain(bytes)?;
            let pointer = (1 << 51) + driver.place(bytes, 0);
            let give = || {
                if fails {
                    return Err(());
                }
                driver.pooled.borrow_mut().insert(pointer, bytes.next_multiple_of(BLOCK_BYTES));
                driver.kept.set(driver.kept.get().max(live().next_multiple_of(STEP)));
                Ok(pointer)
            };
            let undo = |pointer| {
                driver.pooled.borrow_mut().remove(&pointer);
                trim();
            };
            let _ = ledger.allocate_from_pool(POOL, claim(extent), slice, &keeps, give, undo);
        }
        1 => {
            let pointer = pick(&driver.pooled.borrow(), input.byte()?);
            let freed = ledger.free_to_pool(pointer, &keeps, || {
                driver.pooled.borrow_mut().remove(&pointer).map(drop).ok_or(())
            });
            assert!(freed.is_ok() || pointer == 0);
        }
        _ => {
            ledger.settle_pools(&keeps, |_| trim());
        }
    }
    Some(())
}

fn context(slice: &Slice<'_>, driver: &mut Driver, which: u64, fails: bool) {
    let (ledger, context) = (slice.ledger(), which + 1);
    if driver.contexts.contains(&context) {
        let closed = ledger.close(1, context, slice, || if fails { Err(()) } else { Ok(()) });
        if closed.is_ok() {
            driver.contexts.remove(&context);
        }
    } else {
        let give = || if fails { Err(()) } else { Ok(context) };
        if ledger.create_context(device(), slice, give, |_| {}).is_ok() {
            driver.contexts.insert(context);
        }
    }
}

fn check(slice: &Slice<'_>, driver: &Driver) {
    let (used, cost) = (slice.used(), driver.cost() + driver.context_cost());
    assert!(used >= cost, "charged {used}, and the driver has given {cost}");
    assert!(used <= CAP, "charged {used} of {CAP}");
}

/// Law: when everything is freed, nothing is charged.
fn finish(slice: &Slice<'_>, driver: &mut Driver) {
    let ledger = slice.ledger();
    let ok = || Ok::<_, ()>(());
    for pointer in std::mem::take(&mut *driver.plain.borrow_mut()).into_keys() {
        let _ = ledger.free(EntryKind::Memory, pointer, ok);
    }
    for (address, (bytes, handle)) in std::mem::take(&mut driver.mapped) {
        let _ = ledger.unmap(address, bytes, ok);
        change(driver, handle, |physical| physical.mappings -= 1);
    }
    for (handle, physical) in std::mem::take(&mut *driver.physical.borrow_mut()) {
        (0..physical.references).for_each(|_| _ = ledger.release(handle, ok));
    }
    for context in std::mem::take(&mut driver.contexts) {
        let _ = ledger.close(1, context, slice, ok);
    }
    driver.kept.set(0);
    for pointer in std::mem::take(&mut *driver.pooled.borrow_mut()).into_keys() {
        let _ = ledger.free_to_pool(pointer, &|_| Some(0), ok);
    }
    ledger.settle_pools(&|_| Some(0), |_| {});
    assert_eq!(slice.used(), 0, "everything is given back, and something is charged");
}

fn change(driver: &Driver, handle: u64, how: impl FnOnce(&mut Physical)) {
    if let Some(physical) = driver.physical.borrow_mut().get_mut(&handle) {
        how(physical);
    }
    driver.drop_physical();
}

/// Key of one of the things; 0 if there are none.
fn pick<T>(things: &BTreeMap<u64, T>, which: u8) -> u64 {
    things.keys().nth(usize::from(which) % things.len().max(1)).copied().unwrap_or(0)
}

/// A size in bytes near those at which the rounding changes, or any other.
fn size(input: &mut Input<'_>) -> Option<u64> {
    match input.below(4)? {
        0 => Some(u64::from(input.byte()?) * 97),
        1 => Some(u64::from(input.byte()?) << 13),
        2 => Some((u64::from(input.byte()?) << 20) / 4 + 1),
        _ => input.number(),
    }
}

fn claim(extent: Extent) -> Claim {
    Claim { device: device(), extent, owner: Owner::NOBODY }
}

fn device() -> DeviceSlot {
    DeviceSlot::new(0).expect("there is one")
}

fn slot() -> Slot {
    Slot::new(0).expect("there is one")
}
