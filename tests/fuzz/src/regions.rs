//! Shared regions full of hostile words, on the tenant's side and on the daemon's.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_domain::ledger::GrantLedger;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_policy::{CreditResult, DaemonLink, Tenant};
use tranche_shm::compute::{self, CompletionMark, ComputeRecords, MarkRing, Tally};
use tranche_shm::control::{self, Control, ControlWriter, DeviceLimits, ProcessIdentity};
use tranche_shm::credit::{Credit, Units};
use tranche_shm::lease::Lease;
use tranche_shm::usage::{Counter, Usage};
use tranche_shm::{DeviceSlot, MAX_DEVICES, MAX_SLOTS, Slot};

use crate::account::LedgerAccount;
use crate::input::Input;

struct Words {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
}

thread_local! {
    /// Allocated once, as they are long. Each run clears the words that it wrote.
    static WORDS: RefCell<Words> = RefCell::new(Words { control: zeroed(control::WORDS), usage: zeroed(compute::REGION_WORDS) });
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Regions of any content: no reader panics or reads beyond them.
///
/// A daemon whose words are forged grants no more than the cap.
pub fn regions(data: &[u8]) {
    WORDS.with_borrow(|words| {
        let mut touched = Vec::new();
        let _ = spoil(words, &mut Input(data), &mut touched);
        as_tenant(words);
        as_daemon(words, &mut Input(data));
        as_judge(words);
        words.control.iter().take(16 + 16 * 16 + 64).for_each(|word| word.store(0, Relaxed));
        words.usage.iter().take(16 + 48 * 8).for_each(|word| word.store(0, Relaxed));
        records(words).clear(slot(0));
        touched.into_iter().for_each(|word: &AtomicU64| word.store(0, Relaxed));
    });
}

/// Initialises the regions, then writes any words anywhere in them.
fn spoil<'a>(words: &'a Words, input: &mut Input<'_>, touched: &mut Vec<&'a AtomicU64>) -> Option<()> {
    let writer = ControlWriter::init(&words.control, 1, 1).expect("long enough");
    writer.set_limits(device(), DeviceLimits { cap_bytes: 64 << 20, ..DeviceLimits::default() });
    writer.occupy(slot(0), ProcessIdentity { pid: 1, ..ProcessIdentity::default() });
    Usage::init(&words.usage, 1).expect("long enough");
    for _ in 0..64 {
        let region = if input.below(2)? == 0 { &words.control } else { &words.usage };
        let at = usize::try_from(input.number()?).ok()? % region.len();
        // Mostly where words are in use.
        let first_record = region.len().saturating_sub(MAX_SLOTS * compute::RECORD_WORDS);
        let word = &region[match input.below(4)? {
            0 => at,
            1 => first_record + at % compute::RECORD_WORDS,
            _ => at % 128,
        }];
        word.store(input.number()?, Relaxed);
        touched.push(word);
    }
    Some(())
}

/// Reads all that a tenant reads, up to the slots' high-water mark as far as it is valid.
fn as_tenant(words: &Words) {
    let _ = Control::attach(&words.control[..7]).expect_err("too short");
    let (Ok(control), Ok(usage)) = (Control::attach(&words.control), Usage::attach(&words.usage)) else {
        return;
    };
    let _ = (control.generation(), control.heartbeat_ns(), control.epoch(), control.daemon());
    let lease = control.lease();
    assert!(lease.depth_us <= Lease::MOST_DEPTH_US && lease.least <= Lease::MOST_LEAST);
    for device in (0..control.device_count()).map(|at| DeviceSlot::new(at).expect("no more than can be")) {
        let _ = (control.limits(device), control.utilization(device));
        let tenant = Tenant { control, usage, slot: slot(0) };
        let before = usage.credit(tenant.slot, device).load();
        match tenant.charge(device, Units::new(512), &Deaf) {
            Ok(charged) => {
                assert!(before.granted >= before.used, "charged beyond the grant");
                drop(charged);
            }
            Err(_) => assert_eq!(usage.credit(tenant.slot, device).load(), before),
        }
        let view = tenant.view(device);
        assert!(view.free <= view.total);
    }
    for slot in (0..control.slots_high()).map(|at| Slot::new(at).expect("no more than can be")) {
        let _ = (control.identity(slot), usage.counter(slot, Counter::Asked).load(Relaxed));
    }
}

/// Runs a daemon's accounting over words of any content, which change between its reads.
fn as_daemon(words: &Words, input: &mut Input<'_>) {
    let Ok(usage) = Usage::attach(&words.usage).or_else(|_| Usage::init(&words.usage, 1)) else { return };
    let cap = Bytes::mib(64);
    let mut ledger = GrantLedger::new(cap);
    let seats = || (0..4u16).map(Seat);
    let word = |seat: Seat| usage.credit(slot(seat.0.into()), device());
    loop {
        let mut account = LedgerAccount { ledger: &mut ledger, words: word };
        let Some(step) = input.below(5) else { break };
        let Some(seat) = input.below(4).map(|seat| Seat(seat.into())) else { break };
        match step {
            0 | 1 => {
                let Some(want) = input.number() else { break };
                let before = account.ledger.total();
                seats().for_each(|seat| _ = account.observe(seat));
                account.credit(seat, Bytes::new(want));
                let after = account.ledger.total();
                assert!(after <= before.max(cap), "granted {after} of {cap}");
            }
            2 => {
                let (Some(granted), Some(used)) = (input.number(), input.number()) else { break };
                let (granted, used) = (Units::new(granted as u32), Units::new(used as u32));
                word(seat).reset(Credit { granted, used, turn: granted > used });
            }
            3 => {
                account.trim();
            }
            _ => {
                seats().for_each(|seat| _ = account.observe(seat));
                seats().for_each(|seat| {
                    let in_word = word(seat).load();
                    assert!(
                        in_word.granted.bytes() <= account.ledger.granted(seat).get()
                            || in_word.unused() == Units::ZERO,
                        "{in_word:?}: credit that was not granted, and not recalled"
                    );
                });
            }
        }
    }
    let mut successor = GrantLedger::new(cap);
    for seat in seats() {
        let mut account = LedgerAccount { ledger: &mut successor, words: word };
        if seat.0 % 2 == 1 {
            account.take_over_ended(seat, Some(cap));
            let granted = word(seat).load().granted.bytes();
            assert!(granted <= successor.granted(seat).get(), "an ended process has more than the ledger");
            continue;
        }
        account.take_over(seat, None);
        let used = word(seat).load();
        assert!(
            successor.granted(seat).get() >= used.used.min(used.granted).bytes(),
            "in use, and not granted"
        );
    }
}

/// Reads the outstanding work of a process, from a record of any content.
fn as_judge(words: &Words) {
    let record = records(words).record(slot(0));
    for device in (0..MAX_DEVICES).filter_map(DeviceSlot::new) {
        let outstanding = record.marks().outstanding(device);
        assert!(outstanding.marks as usize <= compute::MARKS);
        assert!(outstanding.estimate_us <= u64::from(outstanding.marks) * u64::from(CompletionMark::MOST_US));
    }
    let next = record.tally(Tally::Sequence).load(Relaxed).wrapping_add(1) as u32;
    record.marks().submit(CompletionMark { sequence: next, device: device(), estimate_us: 1 });
    assert!(record.marks().pending().any(|mark| mark.sequence == next), "submitted, and not pending");
    record.marks().finish(next);
    assert!(record.marks().has_room(next), "done, and in the way: {}", MarkRing::done_offset(next));
}

fn records(words: &Words) -> ComputeRecords<'_> {
    ComputeRecords::known(&words.usage).expect("long enough")
}

/// A daemon that refuses each request.
struct Deaf;

impl DaemonLink for Deaf {
    fn ask(&self, _: DeviceSlot, _: Units, _: u64) -> CreditResult {
        CreditResult::Refused
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn pause(&self) {}
}

fn device() -> DeviceSlot {
    DeviceSlot::new(0).expect("there is one")
}

fn slot(index: usize) -> Slot {
    Slot::new(index).expect("there are more")
}
