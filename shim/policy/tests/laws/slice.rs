//! A slice without a daemon process: two regions in memory, and a fake daemon that grants to the cap.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use tranche_policy::{CreditResult, DaemonLink, Ledger, ShareReply, ShareReport, Tenant};
use tranche_shm::control::{self, Control, ControlWriter, DeviceLimits, ProcessIdentity};
use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;
use tranche_shm::usage::{self, Usage};
use tranche_shm::{DeviceSlot, Slot};

/// The device of a slice that has one.
pub(crate) fn device() -> DeviceSlot {
    DeviceSlot::new(0).unwrap()
}

pub(crate) fn slot(index: usize) -> Slot {
    Slot::new(index).unwrap()
}

/// Regions of a slice and the words of its processes' ledgers.
pub(crate) struct Slice {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
    ledgers: [Vec<AtomicU64>; 2],
    shares: Mutex<BTreeMap<ShareKey, (Units, BTreeSet<usize>)>>,
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

impl Slice {
    /// Two processes, of which ours is in slot 0.
    pub(crate) fn of(cap_bytes: u64, context: Units) -> Self {
        Self::on(1, cap_bytes, context)
    }

    /// A slice with several devices that are alike.
    pub(crate) fn on(devices: usize, cap_bytes: u64, context: Units) -> Self {
        let slice = Self {
            control: zeroed(control::WORDS),
            usage: zeroed(usage::WORDS),
            ledgers: [0, 1].map(|_| zeroed(Ledger::LEAST_WORDS + (1 << 20))),
            shares: Mutex::default(),
        };
        let writer = ControlWriter::init(&slice.control, 1, devices).unwrap();
        for (index, uuid) in (0..devices).zip(1..) {
            let limits = DeviceLimits { uuid: [uuid; 16], cap_bytes, context };
            writer.set_limits(DeviceSlot::new(index).unwrap(), limits);
        }
        for index in 0..2 {
            writer
                .occupy(slot(index), ProcessIdentity { pid: index as u32 + 1, ..ProcessIdentity::default() });
        }
        Usage::init(&slice.usage, 1).unwrap();
        slice
    }

    pub(crate) fn writer(&self) -> ControlWriter<'_> {
        ControlWriter::attach(&self.control).unwrap()
    }

    pub(crate) fn tenant(&self, index: usize) -> Tenant<'_> {
        let control = Control::attach(&self.control).unwrap();
        Tenant { control, usage: Usage::attach(&self.usage).unwrap(), slot: slot(index) }
    }

    pub(crate) fn ledger(&self) -> Ledger<'_> {
        self.ledger_of(0)
    }

    pub(crate) fn ledger_of(&self, index: usize) -> Ledger<'_> {
        Ledger::over(self.tenant(index), &self.ledgers[index], |_| std::thread::yield_now()).unwrap()
    }

    /// Charge of the whole slice in bytes.
    pub(crate) fn charged(&self) -> u64 {
        self.tenant(0).view(device()).used
    }

    /// Ends a process: its word is empty, and it holds no share.
    pub(crate) fn bury(&self, index: usize) {
        self.tenant(index).usage.clear(slot(index));
        for (_, holders) in self.shares.lock().unwrap().values_mut() {
            holders.remove(&index);
        }
        self.publish();
    }

    /// Empties the ledger of a process that takes the slot of an ended one.
    pub(crate) fn forget_ledger(&mut self, index: usize) {
        self.ledgers[index] = zeroed(Ledger::LEAST_WORDS + (1 << 20));
    }

    fn publish(&self) {
        let mut shares = self.shares.lock().unwrap();
        shares.retain(|_, (_, holders)| !holders.is_empty());
        let common = shares.values().fold(Units::ZERO, |sum, (units, _)| sum.saturating_add(*units));
        self.writer().set_common(device(), common);
    }

    /// Charge of the process in slot 0, in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.used_on(0)
    }

    /// Charge of that process on a device.
    pub(crate) fn used_on(&self, index: usize) -> u64 {
        self.tenant(0).used_by(slot(0), DeviceSlot::new(index).unwrap())
    }

    /// A fake daemon that grants up to the cap.
    pub(crate) fn daemon(&self) -> Granting<'_> {
        self.daemon_of(0)
    }

    pub(crate) fn daemon_of(&self, index: usize) -> Granting<'_> {
        Granting { slice: self, index, asked: Cell::new(0) }
    }
}

/// Grants up to the cap, recalling from the sibling first.
pub(crate) struct Granting<'a> {
    slice: &'a Slice,
    index: usize,
    pub(crate) asked: Cell<u32>,
}

impl DaemonLink for Granting<'_> {
    fn ask(&self, device: DeviceSlot, want: Units, _: u64) -> CreditResult {
        self.asked.set(self.asked.get() + 1);
        let tenant = self.slice.tenant(0);
        let word = |index| tenant.usage.credit(slot(index), device);
        let (ours, sibling) = (word(self.index), word(1 - self.index));
        sibling.recall(Units::MAX);
        let cap = Units::within(tenant.control.cap_bytes(device));
        let free = cap
            .saturating_sub(ours.load().granted)
            .saturating_sub(sibling.load().granted)
            .saturating_sub(tenant.control.common(device));
        let missing = want.saturating_sub(ours.load().unused());
        if missing > free {
            return CreditResult::Exhausted;
        }
        ours.grant(missing);
        CreditResult::Granted
    }

    fn share(&self, say: ShareReport, _: u64) -> ShareReply {
        let mut shares = self.slice.shares.lock().unwrap();
        let known = match say {
            ShareReport::Export(device, key, units) if !shares.contains_key(&key) => {
                let ours = self.slice.tenant(0).usage.credit(slot(self.index), device);
                ours.hand_over(units) && shares.insert(key, (units, [self.index].into())).is_none()
            }
            ShareReport::Export(_, key, _) => shares[&key].1.contains(&self.index),
            ShareReport::Import(key) => {
                shares.get_mut(&key).map(|share| share.1.insert(self.index)).is_some()
            }
            ShareReport::Drop(key) => shares.get_mut(&key).is_some_and(|share| share.1.remove(&self.index)),
        };
        drop(shares);
        self.slice.publish();
        if known { ShareReply::Noted } else { ShareReply::Unknown }
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn pause(&self) {}
}

/// A fake daemon that replies `Later` to each request, which takes five milliseconds of its clock.
///
/// Another process releases its memory at that instant, if at all.
#[derive(Default)]
pub(crate) struct Mourning<'a> {
    pub(crate) clock_ns: Cell<u64>,
    pub(crate) asked: Cell<u32>,
    pub(crate) frees: Option<(&'a Slice, u64)>,
}

impl DaemonLink for Mourning<'_> {
    fn ask(&self, device: DeviceSlot, want: Units, deadline_ns: u64) -> CreditResult {
        self.asked.set(self.asked.get() + 1);
        self.clock_ns.set(self.clock_ns.get() + 5_000_000);
        match self.frees {
            Some((slice, at_ns)) if at_ns <= self.clock_ns.get() => {
                slice.bury(1);
                slice.daemon().ask(device, want, deadline_ns)
            }
            _ => CreditResult::Later,
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.get()
    }

    fn pause(&self) {}
}

/// A fake daemon that never replies; each pause takes a tenth of a second of its clock.
#[derive(Default)]
pub(crate) struct Silent {
    pub(crate) clock_ns: Cell<u64>,
}

impl DaemonLink for Silent {
    fn ask(&self, _: DeviceSlot, _: Units, _: u64) -> CreditResult {
        CreditResult::Away
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.get()
    }

    fn pause(&self) {
        self.clock_ns.set(self.clock_ns.get() + 100_000_000);
    }
}
