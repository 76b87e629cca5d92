//! Shared regions full of hostile words, on the tenant's side and on the daemon's.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tranche_domain::ledger::Ledger;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_policy::{Answer, Daemon, Tenant};
use tranche_shm::control::{self, Control, ControlWriter, DeviceLimits, Identity};
use tranche_shm::credit::{Credit, Units};
use tranche_shm::usage::{self, Counter, Usage};
use tranche_shm::{DeviceSlot, Slot};

use crate::account::Account;
use crate::input::Input;

struct Words {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
}

thread_local! {
    /// Made once: they are long. Whatever a run wrote, the next undoes.
    static WORDS: RefCell<Words> = RefCell::new(Words { control: zeroed(control::WORDS), usage: zeroed(usage::WORDS) });
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Regions of any content: no reader panics, none reads beyond, and a daemon that is lied to grants no more than
/// the cap.
pub fn regions(data: &[u8]) {
    WORDS.with_borrow(|words| {
        let mut touched = Vec::new();
        let _ = spoil(words, &mut Input(data), &mut touched);
        as_tenant(words);
        as_daemon(words, &mut Input(data));
        words.control.iter().take(16 + 16 * 16 + 64).for_each(|word| word.store(0, Relaxed));
        words.usage.iter().take(16 + 48 * 8).for_each(|word| word.store(0, Relaxed));
        touched.into_iter().for_each(|word: &AtomicU64| word.store(0, Relaxed));
    });
}

/// Whole regions, then words of anybody's choice in them.
fn spoil<'a>(words: &'a Words, input: &mut Input<'_>, touched: &mut Vec<&'a AtomicU64>) -> Option<()> {
    let writer = ControlWriter::init(&words.control, 1, 1).expect("long enough");
    writer.set_limits(device(), DeviceLimits { cap_bytes: 64 << 20, ..DeviceLimits::default() });
    writer.occupy(slot(0), Identity { pid: 1, ..Identity::default() });
    Usage::init(&words.usage, 1).expect("long enough");
    for _ in 0..64 {
        let region = if input.below(2)? == 0 { &words.control } else { &words.usage };
        let at = usize::try_from(input.number()?).ok()? % region.len();
        // Mostly where something is.
        let word = &region[if input.below(4)? == 0 { at } else { at % 128 }];
        word.store(input.number()?, Relaxed);
        touched.push(word);
    }
    Some(())
}

/// Everything that a tenant reads, with the slots' high-water mark believed as far as it can be.
fn as_tenant(words: &Words) {
    let _ = Control::attach(&words.control[..7]).expect_err("too short");
    let (Ok(control), Ok(usage)) = (Control::attach(&words.control), Usage::attach(&words.usage)) else {
        return;
    };
    let _ = (control.generation(), control.heartbeat_ns(), control.epoch());
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

/// A daemon over words that say anything, and change while it looks.
fn as_daemon(words: &Words, input: &mut Input<'_>) {
    let Ok(usage) = Usage::attach(&words.usage).or_else(|_| Usage::init(&words.usage, 1)) else { return };
    let cap = Bytes::mib(64);
    let mut ledger = Ledger::new(cap);
    let seats = || (0..4u16).map(Seat);
    let word = |seat: Seat| usage.credit(slot(seat.0.into()), device());
    loop {
        let mut account = Account { ledger: &mut ledger, words: word };
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
                word(seat)
                    .reset(Credit { granted: Units::new(granted as u32), used: Units::new(used as u32) });
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
                        "{in_word:?}: credit that nobody granted, and not taken back"
                    );
                });
            }
        }
    }
    let mut successor = Ledger::new(cap);
    for seat in seats() {
        Account { ledger: &mut successor, words: word }.take_over(seat);
        let used = word(seat).load();
        assert!(successor.granted(seat).get() >= used.used.min(used.granted).bytes(), "in use, and nobody's");
    }
}

/// A daemon that wants nobody.
struct Deaf;

impl Daemon for Deaf {
    fn ask(&self, _: DeviceSlot, _: Units, _: u64) -> Answer {
        Answer::Refused
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
