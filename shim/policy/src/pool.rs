//! Stream-ordered memory: a pool is charged what it keeps, not what the program holds of it.
//!
//! The driver says what a pool keeps (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`). Growth is charged as the
//! allocation that caused it returns; what the pool let go is given back when somebody looks: at a
//! synchronisation, at the next allocation, before a refusal. Where the driver cannot say, a pool counts as
//! keeping exactly what the program holds.
//!
//! A pool grows in steps of the driver's choice, and a step may be larger than the request that caused it. So a request
//! is charged up to whole steps before the driver is called, and what the pool did not grow goes back at once.
//!
//! Memory that any device of the slice may come to hold is charged on each of them: such a pool has one entry for each
//! device, under names of their own.

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use crate::charge::{Daemon, Refused, Reservation};
use crate::extent::{BLOCK, Extent};
use crate::ledger::{Claim, Denied, Ledger, Owner};
use crate::table::{Cursor, Entry, Full, Kind};

/// What the driver says of its pools.
pub trait PoolUse {
    /// Bytes that the pool with this handle keeps; nothing when the driver cannot say.
    fn reserved(&self, pool: u64) -> Option<u64>;
    /// The step in which pools of a device grow, at least a block.
    fn step(&self, _device: DeviceSlot) -> Units {
        BLOCK
    }
    /// Makes a pool let go of what it keeps unused.
    fn shrink(&self, _pool: u64) {}
    /// One allocation made a pool of this device grow by so much, which is more than its steps covered.
    fn grew(&self, _device: DeviceSlot, _by: Units) {}
}

/// Where a pool's memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPlace {
    /// In memory of the host, which is not charged.
    Host,
    /// On this device.
    On(DeviceSlot),
    /// On any device of the slice.
    Anywhere,
}

impl<F: Fn(u64) -> Option<u64>> PoolUse for F {
    fn reserved(&self, pool: u64) -> Option<u64> {
        self(pool)
    }
}

/// An entry of [`Kind::Pool`]: charged in units; in its detail live units in the lower half and what is lent to other
/// processes in the upper; calls begun in the upper half of its link, calls under way in the lower.
pub(crate) const BEGUN: u64 = 1 << 32;
const UNDER_WAY: u64 = 1;

/// Live units of a pool.
const fn live(entry: &Entry) -> u32 {
    entry.detail as u32
}

/// What of a pool is charged as shared with other processes.
pub(crate) const fn lent(entry: &Entry) -> Units {
    Units::new((entry.detail >> 32) as u32)
}

/// The same pool with so much lent.
pub(crate) fn with_lent(entry: Entry, lent: Units) -> Entry {
    Entry {
        detail: u64::from(lent.get()) << 32 | u64::from(live(&entry)),
        link: entry.link.wrapping_add(BEGUN),
        ..entry
    }
}

impl<'a> Ledger<'a> {
    /// Charges, lets `driver` allocate from `pool`, and charges what the pool grew beyond that. `undo` frees
    /// the pointer when that does not fit.
    pub fn allocate_from_pool<E>(
        &self,
        pool: u64,
        claim: Claim,
        daemon: &impl Daemon,
        keeps: &impl PoolUse,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl Fn(u64),
    ) -> Result<u64, Denied<E>> {
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
                return Err(Denied::Driver(error));
            }
        };
        point("pool: driver");
        let entry = Entry { link: pool, ..self.streamed(claim.device, units) };
        let put = self.table.put(Kind::Streamed, pointer, entry);
        if let Ok(Some(gone)) = put {
            self.shrink_live(gone.link, gone.detail);
        }
        let paid = self.pay(pool, units, keeps, reserved, daemon);
        point("pool: paid");
        self.end(pool);
        if put.is_err() || paid.is_err() {
            self.table.take(Kind::Streamed, pointer, u64::MAX);
            self.shrink_live(pool, u64::from(units.get()));
            undo(pointer);
            self.settle_pool(pool, keeps);
            return Err(Denied::OutOfMemory);
        }
        Ok(pointer)
    }

    /// The same for a pool whose memory any device of the slice may come to hold: charged on each of them.
    pub fn allocate_from_pool_anywhere<E>(
        &self,
        pool: u64,
        extent: Extent,
        daemon: &impl Daemon,
        keeps: &impl PoolUse,
        mut driver: impl FnMut() -> Result<u64, E>,
        undo: impl Fn(u64),
    ) -> Result<u64, Denied<E>> {
        self.allocate_on_each(0, (pool, extent), daemon, keeps, (&mut driver, &undo))
    }

    /// Charges on the devices from the one with this index on, then lets the driver allocate.
    fn allocate_on_each<E>(
        &self,
        index: usize,
        (pool, extent): (u64, Extent),
        daemon: &impl Daemon,
        keeps: &impl PoolUse,
        (driver, undo): Calls<'_, E>,
    ) -> Result<u64, Denied<E>> {
        let Some(device) = self.device(index) else { return driver().map_err(Denied::Driver) };
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
            Err(Denied::OutOfMemory) => Err(Denied::OutOfMemory),
            Err(Denied::Driver(denied)) => Err(denied),
        }
    }

    /// A pointer is free that was charged on the devices from the one with this index on.
    fn drop_on_each(&self, index: usize, pointer: u64, keeps: &impl PoolUse) {
        for device in (index..).map_while(|index| self.device(index)) {
            self.free_one(on_device(pointer, device), u64::MAX, keeps);
        }
    }

    fn device(&self, index: usize) -> Option<DeviceSlot> {
        DeviceSlot::new(index).filter(|_| index < self.tenant.control.device_count())
    }

    /// Whether the pointer came from a pool.
    pub fn is_streamed(&self, pointer: u64) -> bool {
        self.table.find(Kind::Streamed, pointer).is_some() || self.is_anywhere(pointer)
    }

    /// Whether the pointer came from a pool whose memory any device may hold: it is entered with each, the first too.
    fn is_anywhere(&self, pointer: u64) -> bool {
        self.tenant.control.device_count() > 1
            && self
                .device(0)
                .is_some_and(|first| self.table.find(Kind::Streamed, on_device(pointer, first)).is_some())
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
            for device in (0..).map_while(|index| self.device(index)) {
                self.free_one(on_device(pointer, device), stamp, keeps);
            }
        }
        self.free_one(pointer, stamp, keeps);
        Ok(())
    }

    /// An entry of a pointer that the driver has freed, if it was made by `stamp`.
    fn free_one(&self, pointer: u64, stamp: u64, keeps: &impl PoolUse) {
        if let Some(entry) = self.table.take(Kind::Streamed, pointer, stamp) {
            match self.few.find(Kind::Pool, entry.link).filter(|pool| pool.serial < entry.serial) {
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

    /// Looks at every pool and gives back what they let go; `trim` may first ask a pool to let go.
    pub fn settle_pools(&self, keeps: &impl PoolUse, trim: impl Fn(u64)) {
        let mut cursor = Cursor::default();
        while let Some((_, pool, _)) = self.few.next(&mut cursor, |kind, _| kind == Kind::Pool) {
            trim(of_driver(pool));
            self.settle_pool(pool, keeps);
        }
    }

    /// The program made a pool.
    pub fn pool_made(&self, pool: u64, place: PoolPlace) {
        self.forget_pool(pool, u64::MAX);
        self.enter_pool(pool, place);
    }

    /// A pool that was there already, such as a default pool, lies here. One that is charged as lying elsewhere stays so.
    pub fn pool_seen(&self, pool: u64, place: PoolPlace) {
        if self.pool_place(pool).is_none() {
            self.enter_pool(pool, place);
        }
    }

    fn enter_pool(&self, pool: u64, place: PoolPlace) {
        let (kind, device, detail) = match place {
            PoolPlace::On(device) => (Kind::Pool, Some(device), 0),
            PoolPlace::Host => (Kind::ForeignPool, DeviceSlot::new(0), IN_HOST),
            PoolPlace::Anywhere => (Kind::ForeignPool, DeviceSlot::new(0), ANYWHERE),
        };
        let Some(device) = device else { return };
        let entry = Entry { detail, ..self.entry(device, Units::ZERO) };
        // Another thread may have seen it first, and have charged growth to it by now. A pool that finds no room in the
        // table is looked for at its next use.
        let _ = self.few.change(kind, pool, |known| known.or(Some(entry)));
    }

    /// Where a pool has its memory, if that is known.
    pub fn pool_place(&self, pool: u64) -> Option<PoolPlace> {
        match self.few.find(Kind::ForeignPool, pool) {
            Some(entry) if entry.detail == IN_HOST => Some(PoolPlace::Host),
            Some(_) => Some(PoolPlace::Anywhere),
            None => self.few.find(Kind::Pool, pool).map(|entry| PoolPlace::On(entry.device)),
        }
    }

    /// Lets `driver` destroy a pool. While something of it is in use the driver keeps what it has, and it stays
    /// charged; nobody can be asked any more how much that is.
    pub fn destroy_pool<E>(&self, pool: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        if self.pool_gone(Kind::ForeignPool, pool, stamp).is_some_and(|gone| gone.detail == ANYWHERE) {
            for device in (0..).map_while(|index| self.device(index)) {
                self.end_pool(on_device(pool, device), stamp);
            }
        }
        self.end_pool(pool, stamp);
        Ok(())
    }

    fn end_pool(&self, pool: u64, stamp: u64) {
        match self.few.take(Kind::Pool, pool, stamp) {
            Some(entry) if live(&entry) > 0 => self.keep_gone(pool, entry),
            Some(entry) => {
                self.forget(Kind::Pool, pool, entry);
                self.drop_lent(pool, entry.serial);
            }
            None => {}
        }
    }

    /// Another pool had this name, and is no more.
    fn forget_pool(&self, pool: u64, stamp: u64) {
        self.pool_gone(Kind::ForeignPool, pool, stamp);
        self.pool_gone(Kind::Pool, pool, stamp);
        if self.tenant.control.device_count() > 1 {
            for device in (0..).map_while(|index| self.device(index)) {
                self.pool_gone(Kind::Pool, on_device(pool, device), stamp);
            }
        }
    }

    /// Another pool may have had this name before and be in use still: then both end when neither is.
    fn keep_gone(&self, pool: u64, gone: Entry) {
        // What finds no room in the table stays charged: too much, never too little.
        let _ = self.few.change(Kind::GonePool, pool, |before| {
            let (units, other) = before.map_or((Units::ZERO, 0), |before| (before.units, before.detail));
            let units = gone.units.saturating_add(units);
            Some(Entry { units, detail: other.saturating_add(live(&gone).into()), ..gone })
        });
    }

    fn shrink_gone(&self, pool: u64, live: u64) {
        let mut last = None;
        let _ = self.few.change(Kind::GonePool, pool, |entry| {
            let left = entry.map(|entry| Entry { detail: entry.detail.saturating_sub(live), ..entry });
            last = left.filter(|entry| entry.detail == 0);
            left.filter(|entry| entry.detail > 0)
        });
        if let Some(gone) = last {
            self.forget(Kind::GonePool, pool, gone);
            self.drop_lent(pool, 0);
        }
    }

    fn pool_gone(&self, kind: Kind, pool: u64, stamp: u64) -> Option<Entry> {
        let gone = self.few.take(kind, pool, stamp)?;
        self.forget(kind, pool, gone);
        Some(gone)
    }

    fn streamed(&self, device: DeviceSlot, units: Units) -> Entry {
        Entry { detail: u64::from(units.get()), ..self.entry(device, Units::ZERO) }
    }

    fn begin(&self, pool: u64, device: DeviceSlot) -> Result<(), Full> {
        let begun = |entry: Option<Entry>| {
            let entry = entry.unwrap_or_else(|| self.entry(device, Units::ZERO));
            Some(Entry { link: entry.link.wrapping_add(BEGUN + UNDER_WAY), ..entry })
        };
        self.few.change(Kind::Pool, pool, begun).map(drop)
    }

    fn end(&self, pool: u64) {
        let over = |entry: Entry| Entry { link: entry.link.wrapping_sub(UNDER_WAY), ..entry };
        let _ = self.few.change(Kind::Pool, pool, |entry| entry.map(over));
    }

    /// Raises the pool's charge to what it keeps now, out of what the call has reserved, and gives back the rest of that.
    /// Of several calls under way each pays what it has reserved at most: together they have reserved all that they can
    /// make the pool grow by. The last one answers for what is missing all the same, which is refused if there is no room.
    ///
    /// What is paid for growth that is to be undone goes back when the driver says that it has it back.
    fn pay(
        &self,
        pool: u64,
        live: Units,
        keeps: &impl PoolUse,
        mut reserved: Reservation<'a>,
        daemon: &impl Daemon,
    ) -> Result<(), Refused> {
        let _turn = self.device_lock(reserved.device()).acquire();
        let grown = |entry: Entry| entry.detail.saturating_add(u64::from(live.get()));
        let entry = self.few.find(Kind::Pool, pool).ok_or(Refused)?;
        let grown_entry = Entry { detail: grown(entry), ..entry };
        let owed = target(&grown_entry, keeps.reserved(of_driver(pool))).saturating_sub(entry.units);
        let mut paid = Ok(());
        if owed > reserved.units() && entry.link as u32 == UNDER_WAY as u32 {
            keeps.grew(reserved.device(), owed);
            paid = reserved.grow(owed, daemon);
        }
        // Between looking and writing only `settle_pool` might lower the charge, and it leaves pools alone
        // whose calls are under way, as ours is.
        let owed = owed.min(reserved.units());
        let _ = self.few.change(Kind::Pool, pool, |entry| {
            entry.map(|entry| Entry {
                units: entry.units.saturating_add(owed),
                detail: grown(entry),
                ..entry
            })
        });
        reserved.keep(owed);
        paid
    }

    fn shrink_live(&self, pool: u64, live: u64) {
        let _ = self.few.change(Kind::Pool, pool, |entry| {
            entry.map(|entry| Entry {
                detail: entry.detail - live.min(self::live(&entry).into()),
                link: entry.link.wrapping_add(BEGUN),
                ..entry
            })
        });
    }

    /// Lowers a pool's charge to what it keeps, unless a call came in between: then a later look does it.
    fn settle_pool(&self, pool: u64, keeps: &impl PoolUse) {
        let Some(seen) = self.few.find(Kind::Pool, pool) else { return };
        let kept = keeps.reserved(of_driver(pool));
        let mut back = Units::ZERO;
        let _ = self.few.change(Kind::Pool, pool, |entry| {
            let entry = entry?;
            if entry.link != seen.link || entry.link as u32 > 0 || entry.serial != seen.serial {
                return Some(entry);
            }
            let units = entry.units.min(target(&entry, kept));
            back = entry.units.saturating_sub(units);
            Some(Entry { units, ..entry })
        });
        if back > Units::ZERO {
            point("pool: settled");
            self.tenant.release(seen.device, back);
        }
    }
}

/// The driver's allocation, and what frees it again.
type Calls<'a, E> = (&'a mut dyn FnMut() -> Result<u64, E>, &'a dyn Fn(u64));

/// Details of entries of [`Kind::ForeignPool`].
const IN_HOST: u64 = 0;
const ANYWHERE: u64 = 1;

/// The lowest bit of a device in the name of a pointer or pool that is charged on each: no address or handle has it.
const DEVICE_BIT: u32 = 57;

/// The name of the part that one device is charged for, and not the driver's own.
const fn on_device(name: u64, device: DeviceSlot) -> u64 {
    name | (device.index() as u64 + 1) << DEVICE_BIT
}

/// The driver's name behind that of a part.
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

/// What a pool is to be charged: what it keeps, but for what is charged as shared.
pub(crate) fn target(entry: &Entry, kept: Option<u64>) -> Units {
    let all = kept.map_or(Units::new(live(entry)), |bytes| Units::covering(bytes).unwrap_or(Units::MAX));
    all.saturating_sub(lent(entry))
}
