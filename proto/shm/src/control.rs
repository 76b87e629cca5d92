//! The control region: limits and identities of one slice, written by the daemon, read by its tenants.
//!
//! Layout in 64-bit words: a header of 16, then 16 device records of 16, then 4096 process records of 4.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::credit::Units;
use crate::lease::Lease;
use crate::word::AtomicU64;
use crate::{
    ABI, BadRegion, CountedTransfers, DeviceSlot, MAX_DEVICES, MAX_SLOTS, Slot, check_header, header,
};

/// First word of a control region ("TRCHCTRL").
pub const MAGIC: u64 = u64::from_be_bytes(*b"TRCHCTRL");
/// Longest wait of a charge for memory of processes that have ended, in nanoseconds.
///
/// It covers the time in which the daemon finds that the driver has freed that memory. A driver that has not freed it by
/// then would refuse a program without a slice, too.
pub const DEPARTURE_PATIENCE_NS: u64 = 50_000_000;
/// Length of a control region in words.
pub const WORDS: usize = FIRST_SLOT + MAX_SLOTS * SLOT_WORDS;
/// Length of a control region in bytes.
pub const BYTES: usize = WORDS * 8;

const HEARTBEAT_NS: usize = 4;
const DEVICE_COUNT: usize = 5;
const SLOTS_HIGH: usize = 6;
const EPOCH: usize = 7;
const LEASE: usize = 8;
const DAEMON: usize = 9;
const DEPARTING_UNTIL_NS: usize = 10;
const TRANSFERS: usize = 11;
const NEXT_LEASE: usize = 12;
const NEXT_AT_NS: usize = 13;
const AWAY: usize = 14;

const FIRST_DEVICE: usize = 16;
const DEVICE_WORDS: usize = 16;
mod device {
    pub(super) const UUID_HIGH: usize = 0;
    pub(super) const UUID_LOW: usize = 1;
    pub(super) const CAP: usize = 2;
    pub(super) const CONTEXT: usize = 3;
    pub(super) const OVER_CAP: usize = 4;
    pub(super) const UTILIZATION: usize = 5;
    pub(super) const MEMORY_UTILIZATION: usize = 6;
    pub(super) const COMMON: usize = 7;
}

pub(crate) const FIRST_SLOT: usize = FIRST_DEVICE + MAX_DEVICES * DEVICE_WORDS;
pub(crate) const SLOT_WORDS: usize = 4;
pub(crate) mod slot {
    pub(crate) const PID: usize = 0;
    pub(crate) const START_TIME: usize = 1;
    pub(crate) const INNER_PID: usize = 2;
}

/// The process in a slot. A pid alone can be reused; a pid with its start time names one process until reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Pid on the host; 0 marks a free slot.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since boot.
    pub start_time: u64,
    /// Pid in the process's own PID namespace.
    pub inner_pid: u32,
}

/// Limits of a slice on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The GPU's UUID, as `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// Memory cap in bytes, as the operator set it.
    pub cap_bytes: u64,
    /// Reserve that a process is charged for a context on this device, before the driver makes it.
    pub context: Units,
}

/// The control region as a tenant sees it: read-only.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    words: &'a [AtomicU64; WORDS],
}

impl<'a> Control<'a> {
    /// Checks header and device count of a region that was just mapped.
    pub fn attach(words: &'a [AtomicU64]) -> Result<Self, BadRegion> {
        check_header(words, MAGIC, WORDS)?;
        let control = Self::known(words).ok_or(BadRegion::TooShort(words.len()))?;
        match words[DEVICE_COUNT].load(Acquire) {
            count if count > MAX_DEVICES as u64 => Err(BadRegion::Devices(count)),
            _ => Ok(control),
        }
    }

    /// A region that [`Control::attach`] accepted before. Only its length is checked, as its header never changes.
    #[inline]
    pub fn known(words: &'a [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(|words| Self { words })
    }

    /// Generation of the slice; its usage region must carry the same number.
    pub fn generation(self) -> u64 {
        self.words[header::GENERATION].load(Acquire)
    }

    /// Time at which the daemon last served this slice, by its CLOCK_MONOTONIC in nanoseconds.
    ///
    /// The clock of a process in another time namespace has another offset.
    pub fn heartbeat_ns(self) -> u64 {
        self.words[HEARTBEAT_NS].load(Acquire)
    }

    /// Number of changes of limits so far.
    pub fn epoch(self) -> u64 {
        self.words[EPOCH].load(Acquire)
    }

    /// The lease as a word, for [`Lease::decode`] and [`Lease::turn`]. Each launch loads it once.
    #[inline]
    pub fn lease_word(self) -> &'a AtomicU64 {
        &self.words[LEASE]
    }

    /// The lease in force now.
    pub fn lease(self) -> Lease {
        Lease::decode(self.lease_word().load(Acquire))
    }

    /// Announced successor of the present lease, and its time in nanoseconds.
    ///
    /// The time is of the clock of [`Control::heartbeat_ns`].
    /// An open lease holds from that time on. A closed one stays, but may be opened about then. `word` is the present
    /// [`Control::lease_word`]: what was announced under an earlier one is void.
    pub fn next_lease(self, word: u64) -> Option<(Lease, u64)> {
        let next = self.words[NEXT_LEASE].load(Acquire);
        let is_void = next == 0 || Lease::turn(next) != Lease::turn(word);
        (!is_void).then(|| (Lease::decode(next), self.words[NEXT_AT_NS].load(Acquire)))
    }

    /// Number of daemons that have taken the slice over since it was created.
    ///
    /// Each daemon has a wakeup eventfd of its own: a process that reads a new number attaches again to receive it.
    pub fn daemon(self) -> u64 {
        self.words[DAEMON].load(Acquire)
    }

    /// Time until which memory of an ended process may become free, in nanoseconds.
    ///
    /// By the clock of [`Control::heartbeat_ns`]. Until then, a request for credit that does not fit is worth repeating. 0 where no process has just ended.
    #[inline]
    pub fn departing_until_ns(self) -> u64 {
        self.words[DEPARTING_UNTIL_NS].load(Acquire)
    }

    /// The word that [`CountedTransfers::of_word`] decodes. Each copy and fill loads it once.
    #[inline]
    pub fn transfers_word(self) -> &'a AtomicU64 {
        &self.words[TRANSFERS]
    }

    /// True while the slice is parked, or on its way. The driver may block each call then.
    ///
    /// A thread that waits for the end of it before a call is counted in [`Tally::Waiting`](crate::compute::Tally::Waiting).
    #[inline]
    pub fn is_away(self) -> bool {
        self.words[AWAY].load(Acquire) != 0
    }

    /// Number of devices of the slice, at most [`MAX_DEVICES`].
    pub fn device_count(self) -> usize {
        (self.words[DEVICE_COUNT].load(Acquire) as usize).min(MAX_DEVICES)
    }

    /// Devices of the slice, in its order.
    pub fn devices(self) -> impl Iterator<Item = DeviceSlot> + use<> {
        (0..self.device_count()).filter_map(DeviceSlot::new)
    }

    /// One past the highest slot in use, at most [`MAX_SLOTS`]: the end of every loop over slots.
    pub fn slots_high(self) -> usize {
        (self.words[SLOTS_HIGH].load(Acquire) as usize).min(MAX_SLOTS)
    }

    /// Limits of the slice on a device, its words loaded one by one.
    pub fn limits(self, device: DeviceSlot) -> DeviceLimits {
        let field = |at| self.device(device, at).load(Acquire);
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&field(device::UUID_HIGH).to_be_bytes());
        uuid[8..].copy_from_slice(&field(device::UUID_LOW).to_be_bytes());
        DeviceLimits {
            uuid,
            cap_bytes: field(device::CAP),
            context: Units::new(u32::try_from(field(device::CONTEXT)).unwrap_or(u32::MAX)),
        }
    }

    /// Memory cap on a device, in bytes.
    pub fn cap_bytes(self, device: DeviceSlot) -> u64 {
        self.device(device, device::CAP).load(Acquire)
    }

    /// True while the slice holds more than its cap, after a shrink.
    ///
    /// Meanwhile each free returns its credit, and each charge requests credit from the daemon.
    pub fn over_cap(self, device: DeviceSlot) -> bool {
        self.device(device, device::OVER_CAP).load(Acquire) != 0
    }

    /// Charge of the slice on a device beside its processes' credit words.
    ///
    /// It holds memory that several processes share, and driver overhead beyond the reserve for a context.
    pub fn common(self, device: DeviceSlot) -> Units {
        Units::within(self.device(device, device::COMMON).load(Acquire))
    }

    /// GPU and memory-interface utilisation by this slice in percent of the whole GPU, from NVML.
    pub fn utilization(self, device: DeviceSlot) -> (u32, u32) {
        let percent = |at| self.device(device, at).load(Relaxed).min(100) as u32;
        (percent(device::UTILIZATION), percent(device::MEMORY_UTILIZATION))
    }

    /// The process in a slot; `None` if the slot is free.
    pub fn identity(self, slot: Slot) -> Option<ProcessIdentity> {
        let field = |at| self.slot(slot, at).load(Acquire);
        let narrow = |word: u64| u32::try_from(word).unwrap_or(0);
        let identity = ProcessIdentity {
            pid: narrow(field(slot::PID)),
            start_time: field(slot::START_TIME),
            inner_pid: narrow(field(slot::INNER_PID)),
        };
        (identity.pid != 0).then_some(identity)
    }

    fn device(self, device: DeviceSlot, field: usize) -> &'a AtomicU64 {
        &self.words[FIRST_DEVICE + device.index() * DEVICE_WORDS + field]
    }

    fn slot(self, slot: Slot, field: usize) -> &'a AtomicU64 {
        &self.words[FIRST_SLOT + slot.index() * SLOT_WORDS + field]
    }
}

/// The control region as the daemon sees it: writable.
#[derive(Clone, Copy, Debug)]
pub struct ControlWriter<'a>(Control<'a>);

impl<'a> ControlWriter<'a> {
    /// Writes the header of an empty, ungoverned control region into zeroed words.
    pub fn init(words: &'a [AtomicU64], generation: u64, device_count: usize) -> Result<Self, BadRegion> {
        let control = Control::known(words).ok_or(BadRegion::TooShort(words.len()))?;
        if device_count > MAX_DEVICES {
            return Err(BadRegion::Devices(device_count as u64));
        }
        words[header::ABI].store(ABI, Relaxed);
        words[header::WORDS].store(WORDS as u64, Relaxed);
        words[header::GENERATION].store(generation, Relaxed);
        words[DEVICE_COUNT].store(device_count as u64, Relaxed);
        words[LEASE].store(Lease::UNGOVERNED.encode(0), Relaxed);
        words[header::MAGIC].store(MAGIC, Release);
        Ok(Self(control))
    }

    /// Takes over a region that an earlier daemon left.
    pub fn attach(words: &'a [AtomicU64]) -> Result<Self, BadRegion> {
        Control::attach(words).map(Self)
    }

    /// The same region as a tenant sees it.
    pub const fn reader(self) -> Control<'a> {
        self.0
    }

    /// Sets [`Control::heartbeat_ns`] to the daemon's CLOCK_MONOTONIC, in nanoseconds.
    pub fn beat(self, now_ns: u64) {
        self.0.words[HEARTBEAT_NS].store(now_ns, Release);
    }

    /// Replaces the lease and advances its turn.
    ///
    /// The caller wakes waiters afterwards: their futex is the lower half of [`Control::lease_word`]. Load and store are
    /// two steps, so only one thread of the daemon may call this at a time.
    pub fn set_lease(self, lease: Lease) {
        let word = self.0.lease_word();
        let turn = Lease::turn(word.load(Relaxed)).wrapping_add(1);
        word.store(lease.encode(turn), Release);
    }

    /// Announces the successor of the present lease, for a time of [`ControlWriter::beat`]'s clock.
    ///
    /// [`Control::next_lease`] reads it.
    ///
    /// [`ControlWriter::set_lease`] voids it. The caller wakes waiters that do not know of that time yet. It is for the same
    /// thread as that method.
    pub fn announce(self, next: Lease, at_ns: u64) {
        self.withdraw();
        self.0.words[NEXT_AT_NS].store(at_ns, Release);
        let turn = Lease::turn(self.0.lease_word().load(Relaxed));
        self.0.words[NEXT_LEASE].store(next.encode(turn), Release);
    }

    /// Sets [`Control::is_away`]. The caller changes the lease afterwards, which wakes waiters.
    pub fn set_away(self, away: bool) {
        self.0.words[AWAY].store(u64::from(away), Release);
    }

    /// Takes back what was announced.
    pub fn withdraw(self) {
        self.0.words[NEXT_LEASE].store(0, Release);
    }

    /// Sets which copies and fills pass the launch gate as kernel launches do.
    pub fn set_transfers(self, counted: CountedTransfers) {
        self.0.transfers_word().store(counted as u64, Release);
    }

    /// Counts a further daemon that has taken the slice over, with a wakeup eventfd of its own.
    pub fn take_over(self) {
        self.0.words[DAEMON].fetch_add(1, Release);
    }

    /// Sets [`Control::departing_until_ns`], in nanoseconds.
    pub fn set_departing_until(self, ns: u64) {
        self.0.words[DEPARTING_UNTIL_NS].store(ns, Release);
    }

    /// Writes the limits on a device, then advances [`Control::epoch`].
    pub fn set_limits(self, device: DeviceSlot, limits: DeviceLimits) {
        let (high, low) = limits.uuid.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        self.set(device, device::UUID_HIGH, word(high));
        self.set(device, device::UUID_LOW, word(low));
        self.set(device, device::CONTEXT, u64::from(limits.context.get()));
        self.set(device, device::CAP, limits.cap_bytes);
        self.0.words[EPOCH].fetch_add(1, Release);
    }

    /// Sets [`Control::over_cap`] on a device.
    pub fn set_over_cap(self, device: DeviceSlot, over: bool) {
        self.set(device, device::OVER_CAP, u64::from(over));
    }

    /// Sets [`Control::common`] on a device.
    pub fn set_common(self, device: DeviceSlot, units: Units) {
        self.set(device, device::COMMON, units.bytes());
    }

    /// Publishes utilisation in percent of the whole GPU.
    pub fn set_utilization(self, device: DeviceSlot, gpu: u32, memory: u32) {
        self.set(device, device::UTILIZATION, u64::from(gpu));
        self.set(device, device::MEMORY_UTILIZATION, u64::from(memory));
    }

    /// Assigns a free slot to a process. The pid, which marks the slot as taken, is written last.
    pub fn occupy(self, slot: Slot, identity: ProcessIdentity) {
        self.0.slot(slot, slot::START_TIME).store(identity.start_time, Relaxed);
        self.0.slot(slot, slot::INNER_PID).store(u64::from(identity.inner_pid), Relaxed);
        self.0.slot(slot, slot::PID).store(u64::from(identity.pid), Release);
        self.0.words[SLOTS_HIGH].fetch_max(slot.index() as u64 + 1, Release);
    }

    /// Frees a slot, and lowers [`Control::slots_high`] to the highest slot still in use.
    pub fn vacate(self, slot: Slot) {
        self.0.slot(slot, slot::PID).store(0, Release);
        // Keeps loops over all slots short after hundreds of processes have ended.
        let used = |index: &usize| Slot::new(*index).is_some_and(|slot| self.0.identity(slot).is_some());
        let high = (0..self.0.slots_high()).rev().find(used).map_or(0, |index| index as u64 + 1);
        self.0.words[SLOTS_HIGH].store(high, Release);
    }

    fn set(self, device: DeviceSlot, field: usize, value: u64) {
        self.0.device(device, field).store(value, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn zeroed(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn tenant_reads_limits_and_identities_of_the_daemon() {
        let words = zeroed(WORDS);
        let writer = ControlWriter::init(&words, 7, 2).unwrap();
        let device = DeviceSlot::new(1).unwrap();
        let limits = DeviceLimits { uuid: [0xab; 16], cap_bytes: 5 << 30, context: Units::new(77) };
        writer.set_limits(device, limits);
        let slot = Slot::new(9).unwrap();
        let identity = ProcessIdentity { pid: 123, start_time: 456, inner_pid: 1 };
        writer.occupy(slot, identity);

        let control = Control::attach(&words).unwrap();
        assert_eq!((control.generation(), control.device_count(), control.slots_high()), (7, 2, 10));
        assert_eq!(control.limits(device), limits);
        assert_eq!(control.identity(slot), Some(identity));
        writer.occupy(Slot::new(3).unwrap(), identity);
        writer.vacate(slot);
        assert_eq!((control.identity(slot), control.slots_high()), (None, 4));
    }

    #[test]
    fn a_short_or_foreign_region_is_refused() {
        assert_eq!(Control::attach(&zeroed(3)).unwrap_err(), BadRegion::TooShort(3));
        assert_eq!(Control::attach(&zeroed(WORDS)).unwrap_err(), BadRegion::Magic(0));
    }

    #[test]
    fn new_lease_is_ungoverned_and_each_change_numbered() {
        let words = zeroed(WORDS);
        let writer = ControlWriter::init(&words, 7, 1).unwrap();
        assert_eq!(writer.reader().lease(), Lease::UNGOVERNED);
        let closed = Lease { open: false, governed: true, depth_us: 4000, least: 2, ..Lease::UNGOVERNED };
        let before = writer.reader().lease_word().load(Relaxed);
        writer.set_lease(closed);
        assert_eq!(writer.reader().lease(), closed);
        assert_ne!(Lease::turn(writer.reader().lease_word().load(Relaxed)), Lease::turn(before));
        writer.take_over();
        assert_eq!(writer.reader().daemon(), 1);
    }

    #[test]
    fn announced_lease_holds_until_the_lease_changes_or_it_is_withdrawn() {
        let words = zeroed(WORDS);
        let writer = ControlWriter::init(&words, 7, 1).unwrap();
        let closed = Lease { open: false, governed: true, ..Lease::UNGOVERNED };
        let next = Lease { open: true, depth_us: 4000, ..closed };
        let announced = || writer.reader().next_lease(writer.reader().lease_word().load(Relaxed));
        writer.set_lease(closed);
        assert_eq!(announced(), None);
        writer.announce(next, 123);
        assert_eq!(announced(), Some((next, 123)));
        writer.set_lease(closed);
        assert_eq!(announced(), None);
        writer.announce(next, 456);
        writer.withdraw();
        assert_eq!(announced(), None);
    }

    #[test]
    fn transfers_are_counted_only_when_set() {
        let words = zeroed(WORDS);
        let writer = ControlWriter::init(&words, 7, 1).unwrap();
        let counted = || CountedTransfers::of_word(writer.reader().transfers_word().load(Relaxed));
        assert_eq!(counted(), CountedTransfers::None);
        for value in
            [CountedTransfers::Inside, CountedTransfers::All, CountedTransfers::Held, CountedTransfers::None]
        {
            writer.set_transfers(value);
            assert_eq!(counted(), value);
        }
        assert_eq!(CountedTransfers::of_word(4), CountedTransfers::All, "unknown: the most");
    }

    proptest! {
        #[test]
        fn hostile_words_never_panic_a_reader(seed: Vec<u64>) {
            let words = zeroed(WORDS);
            ControlWriter::init(&words, 1, 1).unwrap();
            for (at, word) in seed.iter().enumerate() {
                words[4 + at * 37 % (WORDS - 4)].store(*word, Relaxed);
            }
            if let Ok(control) = Control::attach(&words) {
                for device in 0..control.device_count() {
                    let device = DeviceSlot::new(device).unwrap();
                    let _ = (control.limits(device), control.utilization(device), control.over_cap(device));
                }
                for slot in 0..control.slots_high() {
                    let _ = control.identity(Slot::new(slot).unwrap());
                }
            }
        }
    }
}
