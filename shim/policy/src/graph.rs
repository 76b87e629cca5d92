//! Memory nodes of graphs: charged before a graph runs, by the most that all graphs can hold together.
//!
//! A graph that is ready to run has fixed addresses for its memory nodes, so however often it runs it holds at most
//! their sum. The driver backs them from a pool of its own per device and keeps freed memory until
//! `cuDeviceGraphMemTrim`. Running graphs may hold all of theirs; graphs that are known to have ended hold at most
//! what the driver reports as used; and the pool's reserved memory is charged in any case.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::{ChargeRefused, Charged, DaemonLink};
use crate::extent::BLOCK;
use crate::ledger::{ClaimDenied, Ledger};
use crate::mark::{Mark, Marks};
use crate::table::{EntryKind, Full, TableEntry};

/// Detail of an entry of [`EntryKind::Graph`] that never ran.
///
/// One that may be running has its context there, and in its link the event that marks its end.
const NEVER_RAN: u64 = 0;
const ENDED: u64 = 1;
/// Marks the key of a graph that was destroyed while it may have been running; no address has it.
const DESTROYED: u64 = 1 << 63;

/// The driver's figures of the memory behind graphs on a device, in bytes; `None` where it has none.
pub trait GraphUse: Marks {
    /// Bytes that the driver's pool for graphs keeps.
    fn reserved(&self, device: DeviceSlot) -> Option<u64>;
    /// Bytes of it that graphs have allocated.
    fn used(&self, device: DeviceSlot) -> Option<u64>;
    /// The step in which it grows, at least a block.
    fn step(&self, _device: DeviceSlot) -> Units {
        BLOCK
    }
}

impl Ledger<'_> {
    /// Enters a graph that is ready to run, whose memory nodes take `units` on `device`.
    pub fn graph_ready(&self, graph: u64, device: DeviceSlot, units: Units) -> Result<(), Full> {
        self.graph_gone(graph, device);
        let entry = TableEntry { detail: NEVER_RAN, ..self.entry(device, units) };
        self.few.put(EntryKind::Graph, key(graph, device), entry).map(drop)
    }

    /// Charges the memory of `graph` and lets `driver` launch it; `mark` puts a mark behind it.
    pub fn launch_graph<E>(
        &self,
        graph: u64,
        context: u64,
        daemon: &impl DaemonLink,
        keeps: &impl GraphUse,
        driver: impl FnOnce() -> Result<(), E>,
        mark: impl Fn() -> Mark,
    ) -> Result<(), ClaimDenied<E>> {
        for device in self.tenant.control.devices() {
            self.before_launch(key(graph, device), device, context, daemon, keeps)?;
        }
        let launched = driver().map_err(ClaimDenied::Driver);
        for device in self.tenant.control.devices() {
            self.mark_end(key(graph, device), device, keeps, &mark);
        }
        launched
    }

    /// Ends all graphs of a context that has ended, and their marks with it.
    pub(crate) fn graphs_gone(&self, context: u64) {
        for (_, key, seen) in self.few.entries(&[EntryKind::Graph], |entry| entry.detail == context) {
            let _turn = self.device_lock(seen.device).acquire();
            self.graph_ended(key, &seen);
        }
    }

    /// Ends a graph that the program destroyed on all devices. Memory that it allocated without a free stays.
    pub fn graph_destroyed(&self, graph: u64) {
        self.tenant.control.devices().for_each(|device| self.graph_gone(graph, device));
    }

    /// Lowers the charge to what graphs can hold now, or raises it to what the driver keeps.
    pub fn settle_graphs(&self, daemon: &impl DaemonLink, keeps: &impl GraphUse) {
        for device in self.tenant.control.devices() {
            let _turn = self.device_lock(device).acquire();
            let Some(charged) = self.few.find(EntryKind::GraphMemory, name(device)) else { continue };
            self.notice_ended(device, keeps);
            let used = keeps.used(device).map_or(u64::MAX, in_units);
            let bound = self.graph_bound(device, keeps);
            let back = charged.units.saturating_sub(bound);
            let more = bound.saturating_sub(charged.units);
            let paid = more > Units::ZERO && {
                self.tenant.charge(device, more, daemon).map(|reserved| reserved.keep(more)).is_ok()
            };
            let units = if back > Units::ZERO || paid { bound } else { charged.units };
            let settled = |entry: TableEntry| TableEntry { units, detail: entry.detail.min(used), ..entry };
            self.few.alter(EntryKind::GraphMemory, name(device), settled);
            if back > Units::ZERO {
                self.tenant.release(device, back);
            }
        }
    }

    fn before_launch(
        &self,
        key: u64,
        device: DeviceSlot,
        context: u64,
        daemon: &impl DaemonLink,
        keeps: &impl GraphUse,
    ) -> Charged<()> {
        if self.few.find(EntryKind::Graph, key).is_none() {
            return Ok(());
        }
        let _turn = self.device_lock(device).acquire();
        self.notice_ended(device, keeps);
        let serial = self.table.next_serial();
        let launched =
            |entry: TableEntry| TableEntry { serial, detail: context.max(ENDED + 1), link: 0, ..entry };
        let before = self.few.alter(EntryKind::Graph, key, launched);
        self.raise_graphs(device, self.graph_bound(device, keeps), daemon).inspect_err(|_| {
            let _ = self.few.change(EntryKind::Graph, key, |_| before);
        })?;
        // Launches of one graph run one after the other: the mark of this one stands for both.
        before.into_iter().for_each(|before| end(&before, keeps));
        Ok(())
    }

    /// Puts a mark behind a graph that was launched just now.
    fn mark_end(&self, key: u64, device: DeviceSlot, marks: &impl Marks, mark: impl Fn() -> Mark) {
        if self.few.find(EntryKind::Graph, key).is_none() {
            return;
        }
        let Mark { event, context } = mark();
        let _turn = self.device_lock(device).acquire();
        let marked = |entry: TableEntry| TableEntry { detail: context.max(ENDED + 1), link: event, ..entry };
        let before = self.few.alter(EntryKind::Graph, key, marked);
        before.into_iter().for_each(|before| end(&before, marks));
    }

    /// Finds graphs that have ended, by their marks. The caller holds the device's lock.
    fn notice_ended(&self, device: DeviceSlot, marks: &impl Marks) {
        let marked = |entry: &TableEntry| entry.device == device && entry.detail > ENDED && entry.link != 0;
        for (_, key, seen) in self.few.entries(&[EntryKind::Graph], marked) {
            if !self.is_hushed() && marks.passed(seen.link) {
                self.graph_ended(key, &seen);
                marks.end(seen.link);
            }
        }
    }

    /// Marks a graph as ended. The caller holds the device's lock.
    fn graph_ended(&self, key: u64, seen: &TableEntry) {
        if key & DESTROYED != 0 {
            let gone = self.few.take(EntryKind::Graph, key, seen.serial);
            return gone.into_iter().for_each(|gone| self.orphan(gone));
        }
        let same = |entry: &TableEntry| entry.serial == seen.serial;
        self.few.alter(EntryKind::Graph, key, |entry| {
            if same(&entry) { TableEntry { detail: ENDED, link: 0, ..entry } } else { entry }
        });
    }

    fn raise_graphs(&self, device: DeviceSlot, to: Units, daemon: &impl DaemonLink) -> Charged<()> {
        let charged = self.few.find(EntryKind::GraphMemory, name(device));
        let missing = to.saturating_sub(charged.map_or(Units::ZERO, |entry| entry.units));
        if missing == Units::ZERO {
            return Ok(());
        }
        let reserved = self.tenant.charge(device, missing, daemon)?;
        let entry = charged.unwrap_or_else(|| self.entry(device, Units::ZERO));
        let raised = TableEntry { units: to, ..entry };
        self.few.put(EntryKind::GraphMemory, name(device), raised).map_err(|Full| ChargeRefused)?;
        reserved.keep(missing);
        Ok(())
    }

    /// Upper bound of the driver's memory for graphs until the next launch.
    fn graph_bound(&self, device: DeviceSlot, keeps: &impl GraphUse) -> Units {
        let (mut running, mut ended) = (0u64, 0u64);
        let launched = |entry: &TableEntry| entry.device == device && entry.detail != NEVER_RAN;
        for (_, _, entry) in self.few.entries(&[EntryKind::Graph], launched) {
            let sum = if entry.detail == ENDED { &mut ended } else { &mut running };
            *sum = sum.saturating_add(entry.units.get().into());
        }
        let orphans = self.few.find(EntryKind::GraphMemory, name(device)).map_or(0, |entry| entry.detail);
        let used = keeps.used(device).map_or(u64::MAX, in_units);
        let kept = keeps.reserved(device).map_or(0, in_units);
        let live = running.saturating_add(ended.saturating_add(orphans).min(used));
        let step = u64::from(keeps.step(device).max(BLOCK).get());
        let whole = live.checked_next_multiple_of(step).unwrap_or(u64::MAX);
        Units::new(u32::try_from(whole.max(kept)).unwrap_or(u32::MAX))
    }

    fn graph_gone(&self, graph: u64, device: DeviceSlot) {
        let key = key(graph, device);
        if self.few.find(EntryKind::Graph, key).is_none() {
            return;
        }
        let _turn = self.device_lock(device).acquire();
        let Some(gone) = self.few.take(EntryKind::Graph, key, u64::MAX) else { return };
        match gone.detail {
            NEVER_RAN => {}
            ENDED => self.orphan(gone),
            _ => _ = self.few.put(EntryKind::Graph, DESTROYED | gone.serial, gone),
        }
    }

    /// Counts the memory that a destroyed graph may have left allocated, at most its bound.
    ///
    /// The driver does not report it one by one. The caller holds the device's lock.
    fn orphan(&self, gone: TableEntry) {
        self.few.alter(EntryKind::GraphMemory, name(gone.device), |entry| TableEntry {
            detail: entry.detail.saturating_add(gone.units.get().into()),
            ..entry
        });
    }
}

/// Ends the mark of a graph, if it has one.
fn end(entry: &TableEntry, marks: &impl Marks) {
    if entry.detail > ENDED && entry.link != 0 {
        marks.end(entry.link);
    }
}

fn key(graph: u64, device: DeviceSlot) -> u64 {
    graph ^ (device.index() as u64) << 56
}

fn name(device: DeviceSlot) -> u64 {
    device.index() as u64
}

fn in_units(bytes: u64) -> u64 {
    Units::covering(bytes).unwrap_or(Units::MAX).get().into()
}
