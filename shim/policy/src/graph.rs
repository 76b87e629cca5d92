//! Memory nodes of graphs: charged before a graph runs, by the most that all graphs can hold together.
//!
//! A graph that is ready to run has fixed addresses for its memory nodes, so however often it runs it holds at
//! most what they add up to. The driver backs them from a pool of its own per device and keeps what was freed
//! until `cuDeviceGraphMemTrim`. Running graphs may hold all of theirs; graphs that are known to have ended
//! hold no more than the driver says is in use; and what the driver keeps is charged in any case.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::{Daemon, Refused};
use crate::ledger::{Denied, Ledger};
use crate::table::{Cursor, Entry, Full, Kind};

/// An entry of [`Kind::Graph`] has in its detail one of these or, while it may be running, the context.
const NEVER_RAN: u64 = 0;
const ENDED: u64 = 1;
/// Marks the key of a graph that was destroyed while it may have been running; no address has it.
const DESTROYED: u64 = 1 << 63;

/// What the driver says of the memory behind graphs on a device, in bytes; nothing when it cannot say.
pub trait GraphUse {
    /// What it keeps.
    fn reserved(&self, device: DeviceSlot) -> Option<u64>;
    /// What of that graphs have allocated.
    fn used(&self, device: DeviceSlot) -> Option<u64>;
}

/// Where a graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The context.
    pub context: u64,
    /// The stream, or 0 if nothing is known to wait for it alone.
    pub stream: u64,
}

/// What the program has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// All work of a context.
    Context(u64),
    /// All work of a stream.
    Stream(u64),
}

impl Waited {
    fn covers(self, entry: &Entry) -> bool {
        match self {
            Self::Context(context) => context > ENDED && entry.detail == context,
            Self::Stream(stream) => stream != 0 && entry.detail > ENDED && entry.link == stream,
        }
    }
}

impl Ledger<'_> {
    /// A graph is ready to run, and its memory nodes take `units` on `device`.
    pub fn graph_ready(&self, graph: u64, device: DeviceSlot, units: Units) -> Result<(), Full> {
        self.graph_gone(graph, device);
        let entry = Entry { detail: NEVER_RAN, ..self.entry(device, units) };
        self.few.put(Kind::Graph, key(graph, device), entry).map(drop)
    }

    /// Charges what `graph` may come to hold and lets `driver` run it.
    pub fn launch_graph<E>(
        &self,
        graph: u64,
        run: Run,
        daemon: &impl Daemon,
        keeps: &impl GraphUse,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), Denied<E>> {
        for device in self.devices() {
            self.before_launch(key(graph, device), device, run, daemon, keeps)?;
        }
        driver().map_err(Denied::Driver)
    }

    /// What was launched before `stamp` and is covered by the wait has ended.
    pub fn graphs_waited(&self, stamp: u64, waited: Waited) {
        let covered =
            |kind: Kind, entry: &Entry| kind == Kind::Graph && entry.serial <= stamp && waited.covers(entry);
        let mut cursor = Cursor::default();
        while let Some((_, key, seen)) = self.few.next(&mut cursor, covered) {
            let _turn = self.device_lock(seen.device).acquire();
            let same = |entry: &Entry| entry.serial == seen.serial;
            if key & DESTROYED != 0 {
                self.few.take(Kind::Graph, key, seen.serial).into_iter().for_each(|gone| self.orphan(gone));
                continue;
            }
            let _ = self.few.change(Kind::Graph, key, |entry| {
                entry.map(|entry| if same(&entry) { Entry { detail: ENDED, ..entry } } else { entry })
            });
        }
    }

    /// A number for [`Ledger::graphs_waited`]: taken before the wait begins.
    pub fn stamp(&self) -> u64 {
        self.table.stamp()
    }

    /// The program destroyed a graph on all devices. What it allocated and nobody freed is there still.
    pub fn graph_destroyed(&self, graph: u64) {
        self.devices().for_each(|device| self.graph_gone(graph, device));
    }

    /// Lowers the charge to what graphs can hold now, or raises it to what the driver is seen to keep.
    pub fn settle_graphs(&self, daemon: &impl Daemon, keeps: &impl GraphUse) {
        for device in self.devices() {
            let _turn = self.device_lock(device).acquire();
            let Some(charged) = self.few.find(Kind::GraphMemory, name(device)) else { continue };
            let used = keeps.used(device).map_or(u64::MAX, in_units);
            let bound = self.graph_bound(device, keeps);
            let back = charged.units.saturating_sub(bound);
            let more = bound.saturating_sub(charged.units);
            let paid = more > Units::ZERO && {
                self.tenant.charge(device, more, daemon).map(|reserved| reserved.keep(more)).is_ok()
            };
            let units = if back > Units::ZERO || paid { bound } else { charged.units };
            let _ = self.few.change(Kind::GraphMemory, name(device), |entry| {
                entry.map(|entry| Entry { units, detail: entry.detail.min(used), ..entry })
            });
            if back > Units::ZERO {
                self.tenant.release(device, back);
            }
        }
    }

    fn before_launch(
        &self,
        key: u64,
        device: DeviceSlot,
        run: Run,
        daemon: &impl Daemon,
        keeps: &impl GraphUse,
    ) -> Result<(), Refused> {
        if self.few.find(Kind::Graph, key).is_none() {
            return Ok(());
        }
        let _turn = self.device_lock(device).acquire();
        let launched = |entry: Entry| Entry {
            serial: self.table.next_serial(),
            detail: run.context.max(ENDED + 1),
            link: run.stream,
            ..entry
        };
        let before = self.few.change(Kind::Graph, key, |entry| entry.map(launched)).unwrap_or(None);
        self.raise_graphs(device, self.graph_bound(device, keeps), daemon).inspect_err(|_| {
            let _ = self.few.change(Kind::Graph, key, |_| before);
        })
    }

    fn raise_graphs(&self, device: DeviceSlot, to: Units, daemon: &impl Daemon) -> Result<(), Refused> {
        let charged = self.few.find(Kind::GraphMemory, name(device));
        let missing = to.saturating_sub(charged.map_or(Units::ZERO, |entry| entry.units));
        if missing == Units::ZERO {
            return Ok(());
        }
        let reserved = self.tenant.charge(device, missing, daemon)?;
        let entry = charged.unwrap_or_else(|| self.entry(device, Units::ZERO));
        let raised = Entry { units: to, ..entry };
        self.few.put(Kind::GraphMemory, name(device), raised).map_err(|Full| Refused)?;
        reserved.keep(missing);
        Ok(())
    }

    /// The most that the driver can come to keep before the next launch.
    fn graph_bound(&self, device: DeviceSlot, keeps: &impl GraphUse) -> Units {
        let (mut running, mut ended) = (0u64, 0u64);
        let mut cursor = Cursor::default();
        let launched = |kind: Kind, entry: &Entry| {
            kind == Kind::Graph && entry.device == device && entry.detail != NEVER_RAN
        };
        while let Some((_, _, entry)) = self.few.next(&mut cursor, launched) {
            let sum = if entry.detail == ENDED { &mut ended } else { &mut running };
            *sum = sum.saturating_add(entry.units.get().into());
        }
        let orphans = self.few.find(Kind::GraphMemory, name(device)).map_or(0, |entry| entry.detail);
        let used = keeps.used(device).map_or(u64::MAX, in_units);
        let kept = keeps.reserved(device).map_or(0, in_units);
        let live = running.saturating_add(ended.saturating_add(orphans).min(used));
        Units::new(u32::try_from(live.max(kept)).unwrap_or(u32::MAX))
    }

    fn graph_gone(&self, graph: u64, device: DeviceSlot) {
        let key = key(graph, device);
        if self.few.find(Kind::Graph, key).is_none() {
            return;
        }
        let _turn = self.device_lock(device).acquire();
        let Some(gone) = self.few.take(Kind::Graph, key, u64::MAX) else { return };
        match gone.detail {
            NEVER_RAN => {}
            ENDED => self.orphan(gone),
            _ => _ = self.few.put(Kind::Graph, DESTROYED | gone.serial, gone),
        }
    }

    /// What a graph that is no more has left allocated is not known one by one, only that it is no more than
    /// this. The caller holds the device's lock.
    fn orphan(&self, gone: Entry) {
        let _ = self.few.change(Kind::GraphMemory, name(gone.device), |entry| {
            entry.map(|entry| Entry { detail: entry.detail.saturating_add(gone.units.get().into()), ..entry })
        });
    }

    fn devices(&self) -> impl Iterator<Item = DeviceSlot> + use<> {
        (0..self.tenant.control.device_count()).filter_map(DeviceSlot::new)
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
