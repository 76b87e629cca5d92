//! A slice without a daemon process: two regions in memory and somebody who grants up to the cap.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use tranche_policy::{Answer, Daemon, Ledger, Tenant};
use tranche_shm::control::{self, Control, ControlWriter, DeviceLimits, Identity};
use tranche_shm::credit::Units;
use tranche_shm::usage::{self, Usage};
use tranche_shm::{DeviceSlot, Slot};

/// The one device.
pub(crate) fn device() -> DeviceSlot {
    DeviceSlot::new(0).unwrap()
}

pub(crate) fn slot(index: usize) -> Slot {
    Slot::new(index).unwrap()
}

/// What an owner of regions keeps.
pub(crate) struct Slice {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
    ledger: Vec<AtomicU64>,
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

impl Slice {
    /// Two processes, of which ours is in slot 0.
    pub(crate) fn of(cap_bytes: u64, context: Units) -> Self {
        let slice = Self {
            control: zeroed(control::WORDS),
            usage: zeroed(usage::WORDS),
            ledger: zeroed(Ledger::LEAST_WORDS + (1 << 20)),
        };
        let writer = ControlWriter::init(&slice.control, 1, 1).unwrap();
        writer.set_limits(device(), DeviceLimits { uuid: [1; 16], cap_bytes, context });
        for index in 0..2 {
            writer.occupy(slot(index), Identity { pid: index as u32 + 1, ..Identity::default() });
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
        Ledger::over(self.tenant(0), &self.ledger, std::thread::yield_now).unwrap()
    }

    /// What our process is charged.
    pub(crate) fn used(&self) -> u64 {
        self.tenant(0).used_by(slot(0), device())
    }

    /// A daemon that grants what the cap leaves.
    pub(crate) fn daemon(&self) -> Granting<'_> {
        Granting { slice: self, asked: Cell::new(0) }
    }
}

/// Grants up to the cap, recalling from the sibling first.
pub(crate) struct Granting<'a> {
    slice: &'a Slice,
    pub(crate) asked: Cell<u32>,
}

impl Daemon for Granting<'_> {
    fn ask(&self, device: DeviceSlot, want: Units, _: u64) -> Answer {
        self.asked.set(self.asked.get() + 1);
        let tenant = self.slice.tenant(0);
        let (ours, sibling) = (tenant.usage.credit(slot(0), device), tenant.usage.credit(slot(1), device));
        sibling.recall(Units::MAX);
        let cap = Units::within(tenant.control.cap_bytes(device));
        let free = cap.saturating_sub(ours.load().granted).saturating_sub(sibling.load().granted);
        let missing = want.saturating_sub(ours.load().unused());
        if missing > free {
            return Answer::Exhausted;
        }
        ours.grant(missing);
        Answer::Granted
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn pause(&self) {}
}

/// Never answers; each pause takes a tenth of a second of its clock.
#[derive(Default)]
pub(crate) struct Silent {
    pub(crate) clock_ns: Cell<u64>,
}

impl Daemon for Silent {
    fn ask(&self, _: DeviceSlot, _: Units, _: u64) -> Answer {
        Answer::Away
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.get()
    }

    fn pause(&self) {
        self.clock_ns.set(self.clock_ns.get() + 100_000_000);
    }
}
