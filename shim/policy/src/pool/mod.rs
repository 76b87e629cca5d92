//! Stream-ordered memory: a pool is charged for what it keeps, not for what the program holds of it.
//!
//! The driver reports what a pool keeps (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`). Growth is charged as the allocation
//! that caused it returns; shrinking is noticed at a synchronisation, at the next allocation, and before a refusal.
//! Where the driver has no such figure, a pool counts as keeping exactly what the program holds.
//!
//! A pool grows in steps of the driver's choice, and a step may be larger than the request that caused it. So a
//! request is charged up to whole steps before the driver is called, and the part by which the pool did not grow is
//! released at once.
//!
//! Memory that any device of the slice may come to hold is charged on each of them: such a pool has one entry for
//! each device, under keys of their own.

mod end;

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use crate::charge::{ChargeRefused, Charged, DaemonLink, Reservation};
use crate::extent::{BLOCK, Extent};
use crate::ledger::{Claim, ClaimDenied, Ledger, Owner};
use crate::table::{EntryKind, Full, TableEntry};

/// The driver's queries about pools.
pub trait PoolUse {
    /// Bytes that the pool with this handle keeps; `None` where the driver has no such figure.
    fn reserved(&self, pool: u64) -> Option<u64>;
    /// The step in which pools of a device grow, at least a block.
    fn step(&self, _device: DeviceSlot) -> Units {
        BLOCK
    }
    /// Makes a pool free the memory that it keeps unused.
    fn shrink(&self, _pool: u64) {}
    /// Records that one allocation made a pool of this device grow by more than its steps covered.
    fn grew(&self, _device: DeviceSlot, _by: Units) {}
}

/// Location of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPlace {
    /// In memory of the host, which is not charged.
    Host,
    /// On this device alone.
    On(DeviceSlot),
    /// On any device of the slice.
    Anywhere,
}

impl<F: Fn(u64) -> Option<u64>> PoolUse for F {
    fn reserved(&self, pool: u64) -> Option<u64> {
        self(pool)
    }
}

/// One begun call in the link of an entry of [`EntryKind::Pool`].
///
/// The lower half counts calls under way. The entry's units are its charge; its detail has live units in the lower half
/// and units lent to other processes in the upper.
pub(crate) const BEGUN: u64 = 1 << 32;
const UNDER_WAY: u64 = 1;

/// Live units of a pool.
const fn live(entry: &TableEntry) -> u32 {
    entry.detail as u32
}

/// Units of a pool that are charged as shared with other processes.
pub(crate) const fn lent(entry: &TableEntry) -> Units {
    Units::new((entry.detail >> 32) as u32)
}

/// The entry of the pool with `lent` units lent.
pub(crate) fn with_lent(entry: TableEntry, lent: Units) -> TableEntry {
    TableEntry {
        detail: u64::from(lent.get()) << 32 | u64::from(live(&entry)),
        link: entry.link.wrapping_add(BEGUN),
        ..entry
    }
}

impl<'a> Ledger<'a> {
    /// Charges, lets `driver` allocate from `pool`, and charges further growth of the pool.
    ///
    /// `undo` frees the pointer when that is refused.
    pub fn allocate_from_pool<E>(
        &self,
        pool: u64,
        claim: Claim,
        daemon: &impl DaemonLink,
        keeps: &impl PoolUse,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl Fn(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let units = claim.extent.worst();
        let worst = whole_steps(units, keeps.step(claim.device));
        let reserved = self.tenant.charge(claim.device, worst, daemon)?;
        self.begin(pool, claim.device)?;
        let pointer = match driver() {
            Ok(pointer) => pointer,
            Err(error) => {
                // A driver that has no room for the request may have made the pool grow all the same.
                let paid = self.pay(pool, Units::ZERO, keeps, reserved, daemon);
                self.end(pool);
                if paid.is_err() {
                    keeps.shrink(of_driver(pool));
                }
                self.settle_pool(pool, keeps);
                return Err(ClaimDenied::Driver(error));
            }
        };
        point("pool: driver");
        let entry = TableEntry { link: pool, ..self.streamed(claim.device, units) };
        let put = self.table.put(EntryKind::Streamed, pointer, entry);
        if let Ok(Some(gone)) = put {
            self.shrink_live(gone.link, gone.detail);
        }
        let paid = self.pay(pool, units, keeps, reserved, daemon);
        point("pool: paid");
        self.end(pool);
        if put.is_err() || paid.is_err() {
            self.table.take(EntryKind::Streamed, pointer, u64::MAX);
            self.shrink_live(pool, u64::from(units.get()));
            undo(pointer);
            self.settle_pool(pool, keeps);
            return Err(ClaimDenied::OutOfMemory);
        }
        Ok(pointer)
    }

    /// As [`Ledger::allocate_from_pool`], for a pool of any device: charged on each device of the slice.
    pub fn allocate_from_pool_anywhere<E>(
        &self,
        pool: u64,
        extent: Extent,
        daemon: &impl DaemonLink,
        keeps: &impl PoolUse,
        mut driver: impl FnMut() -> Result<u64, E>,
        undo: impl Fn(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        self.allocate_on_each(0, (pool, extent), daemon, keeps, (&mut driver, &undo))
    }

    /// Charges on the devices from the one with this index on, then lets the driver allocate.
    fn allocate_on_each<E>(
        &self,
        index: usize,
        (pool, extent): (u64, Extent),
        daemon: &impl DaemonLink,
        keeps: &impl PoolUse,
        (driver, undo): Calls<'_, E>,
    ) -> Result<u64, ClaimDenied<E>> {
        let Some(device) = self.tenant.control.devices().nth(index) else {
            return driver().map_err(ClaimDenied::Driver);
        };
        let claim = Claim { device, extent, owner: Owner::NOBODY };
        let on_others = || {
            let made = self.allocate_on_each(index + 1, (pool, extent), daemon, keeps, (driver, undo));
            made.map(|pointer| on_device(pointer, device))
        };
        let drop_others = |named| {
            let pointer = of_driver(named);
            undo(pointer);
            self.drop_on_each(index + 1, pointer, keeps);
        };
        let name = on_device(pool, device);
        match self.allocate_from_pool(name, claim, daemon, keeps, on_others, drop_others) {
            Ok(named) => Ok(of_driver(named)),
            Err(ClaimDenied::OutOfMemory) => Err(ClaimDenied::OutOfMemory),
            Err(ClaimDenied::Driver(denied)) => Err(denied),
        }
    }

    /// Ends a pointer that was charged on the devices from the one with this index on.
    fn drop_on_each(&self, index: usize, pointer: u64, keeps: &impl PoolUse) {
        for device in self.tenant.control.devices().skip(index) {
            self.free_one(on_device(pointer, device), u64::MAX, keeps);
        }
    }

    /// True if the pointer came from a pool.
    pub fn is_streamed(&self, pointer: u64) -> bool {
        self.table.find(EntryKind::Streamed, pointer).is_some() || self.is_anywhere(pointer)
    }

    /// True if the pointer came from a pool of any device: it is entered with each device, the first too.
    fn is_anywhere(&self, pointer: u64) -> bool {
        let control = self.tenant.control;
        let is_entered = |device| self.table.find(EntryKind::Streamed, on_device(pointer, device)).is_some();
        control.device_count() > 1 && control.devices().next().is_some_and(is_entered)
    }

    /// Lets `driver` free a pointer in stream order.
    pub fn free_to_pool<E>(
        &self,
        pointer: u64,
        keeps: &impl PoolUse,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let anywhere = self.is_anywhere(pointer);
        let stamp = self.table.stamp();
        driver()?;
        if anywhere {
            for device in self.tenant.control.devices() {
                self.free_one(on_device(pointer, device), stamp, keeps);
            }
        }
        self.free_one(pointer, stamp, keeps);
        Ok(())
    }

    /// Ends an entry of a pointer that the driver has freed, if it was made by `stamp`.
    fn free_one(&self, pointer: u64, stamp: u64, keeps: &impl PoolUse) {
        if let Some(entry) = self.table.take(EntryKind::Streamed, pointer, stamp) {
            match self.few.find(EntryKind::Pool, entry.link).filter(|pool| pool.serial < entry.serial) {
                Some(pool) => {
                    self.shrink_live(entry.link, entry.detail);
                    if lent(&pool) > Units::ZERO {
                        self.end_loan(pointer, &entry);
                    }
                    self.settle_pool(entry.link, keeps);
                }
                None => self.shrink_gone(entry.link, entry.detail),
            }
        }
    }

    /// Lowers the charge of every pool to what it keeps; `trim` may make a pool free memory first.
    pub fn settle_pools(&self, keeps: &impl PoolUse, trim: impl Fn(u64)) {
        for (_, pool, _) in self.few.entries(&[EntryKind::Pool], |_| true) {
            trim(of_driver(pool));
            self.settle_pool(pool, keeps);
        }
    }

    /// Enters a pool that the program made.
    pub fn pool_made(&self, pool: u64, place: PoolPlace) {
        self.forget_pool(pool, u64::MAX);
        self.enter_pool(pool, place);
    }

    /// Enters a pool that existed already, such as a default pool. A known one keeps its place.
    pub fn pool_seen(&self, pool: u64, place: PoolPlace) {
        if self.pool_place(pool).is_none() {
            self.enter_pool(pool, place);
        }
    }

    fn enter_pool(&self, pool: u64, place: PoolPlace) {
        let (kind, device, detail) = match place {
            PoolPlace::On(device) => (EntryKind::Pool, Some(device), 0),
            PoolPlace::Host => (EntryKind::ForeignPool, DeviceSlot::new(0), IN_HOST),
            PoolPlace::Anywhere => (EntryKind::ForeignPool, DeviceSlot::new(0), ANYWHERE),
        };
        let Some(device) = device else { return };
        let entry = TableEntry { detail, ..self.entry(device, Units::ZERO) };
        // Another thread may have entered it first, and have charged growth to it by now. A pool that finds no room
        // in the table is entered at its next use.
        let _ = self.few.change(kind, pool, |known| known.or(Some(entry)));
    }

    /// Location of a pool's memory, if the pool has an entry.
    pub fn pool_place(&self, pool: u64) -> Option<PoolPlace> {
        match self.few.find(EntryKind::ForeignPool, pool) {
            Some(entry) if entry.detail == IN_HOST => Some(PoolPlace::Host),
            Some(_) => Some(PoolPlace::Anywhere),
            None => self.few.find(EntryKind::Pool, pool).map(|entry| PoolPlace::On(entry.device)),
        }
    }

    fn streamed(&self, device: DeviceSlot, units: Units) -> TableEntry {
        TableEntry { detail: u64::from(units.get()), ..self.entry(device, Units::ZERO) }
    }

    fn begin(&self, pool: u64, device: DeviceSlot) -> Result<(), Full> {
        let begun = |entry: Option<TableEntry>| {
            let entry = entry.unwrap_or_else(|| self.entry(device, Units::ZERO));
            Some(TableEntry { link: entry.link.wrapping_add(BEGUN + UNDER_WAY), ..entry })
        };
        self.few.change(EntryKind::Pool, pool, begun).map(drop)
    }

    fn end(&self, pool: u64) {
        let over = |entry: TableEntry| TableEntry { link: entry.link.wrapping_sub(UNDER_WAY), ..entry };
        self.few.alter(EntryKind::Pool, pool, over);
    }

    /// Raises the pool's charge to what it keeps now, out of the call's reservation, and releases the rest.
    ///
    /// Of several calls under way each pays at most its reservation: together they have reserved all growth that they
    /// can cause. The last one is charged for the rest all the same, which is refused if there is no room. Payment
    /// for growth that is undone is released when the driver reports the memory as freed.
    fn pay(
        &self,
        pool: u64,
        live: Units,
        keeps: &impl PoolUse,
        mut reserved: Reservation<'a>,
        daemon: &impl DaemonLink,
    ) -> Charged<()> {
        let _turn = self.device_lock(reserved.device()).acquire();
        let grown = |entry: TableEntry| entry.detail.saturating_add(u64::from(live.get()));
        let entry = self.few.find(EntryKind::Pool, pool).ok_or(ChargeRefused)?;
        let grown_entry = TableEntry { detail: grown(entry), ..entry };
        let owed = target(&grown_entry, keeps.reserved(of_driver(pool))).saturating_sub(entry.units);
        let mut paid = Ok(());
        if owed > reserved.units() && entry.link as u32 == UNDER_WAY as u32 {
            keeps.grew(reserved.device(), owed);
            paid = reserved.grow(owed, daemon);
        }
        // Between the query and the change only `settle_pool` might lower the charge, and it skips pools with calls
        // under way, as ours is.
        let owed = owed.min(reserved.units());
        self.few.alter(EntryKind::Pool, pool, |entry| TableEntry {
            units: entry.units.saturating_add(owed),
            detail: grown(entry),
            ..entry
        });
        reserved.keep(owed);
        paid
    }

    fn shrink_live(&self, pool: u64, live: u64) {
        self.few.alter(EntryKind::Pool, pool, |entry| TableEntry {
            detail: entry.detail - live.min(self::live(&entry).into()),
            link: entry.link.wrapping_add(BEGUN),
            ..entry
        });
    }

    /// Lowers a pool's charge to what it keeps, unless a call came in between. Then a later attempt does it.
    fn settle_pool(&self, pool: u64, keeps: &impl PoolUse) {
        let Some(seen) = self.few.find(EntryKind::Pool, pool) else { return };
        let kept = keeps.reserved(of_driver(pool));
        let mut back = Units::ZERO;
        self.few.alter(EntryKind::Pool, pool, |entry| {
            if entry.link != seen.link || entry.link as u32 > 0 || entry.serial != seen.serial {
                return entry;
            }
            let units = entry.units.min(target(&entry, kept));
            back = entry.units.saturating_sub(units);
            TableEntry { units, ..entry }
        });
        if back > Units::ZERO {
            point("pool: settled");
            self.tenant.release(seen.device, back);
        }
    }
}

/// The driver's allocation, and the free that undoes it.
type Calls<'a, E> = (&'a mut dyn FnMut() -> Result<u64, E>, &'a dyn Fn(u64));

/// Details of entries of [`EntryKind::ForeignPool`].
const IN_HOST: u64 = 0;
const ANYWHERE: u64 = 1;

/// Lowest bit of a device in the key of a pointer or pool that is charged on each device.
///
/// No address or handle has it.
const DEVICE_BIT: u32 = 57;

/// The key of one device's part of a pointer or pool.
const fn on_device(name: u64, device: DeviceSlot) -> u64 {
    name | (device.index() as u64 + 1) << DEVICE_BIT
}

/// The driver's handle behind the key of a part.
const fn of_driver(name: u64) -> u64 {
    name & ((1 << DEVICE_BIT) - 1)
}

/// The whole steps that hold `units`.
const fn whole_steps(units: Units, step: Units) -> Units {
    if step.get() <= BLOCK.get() {
        return units;
    }
    match units.get().checked_next_multiple_of(step.get()) {
        Some(whole) => Units::new(whole),
        None => Units::MAX,
    }
}

/// The charge due for a pool: the memory that it keeps, less its loans.
pub(crate) fn target(entry: &TableEntry, kept: Option<u64>) -> Units {
    let all = kept.map_or(Units::new(live(entry)), |bytes| Units::covering(bytes).unwrap_or(Units::MAX));
    all.saturating_sub(lent(entry))
}
