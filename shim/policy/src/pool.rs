//! Stream-ordered memory: a pool is charged what it keeps, not what the program holds of it.
//!
//! The driver says what a pool keeps (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`). Growth is charged as the
//! allocation that caused it returns; what the pool let go is given back when somebody looks: at a
//! synchronisation, at the next allocation, before a refusal. Where the driver cannot say, a pool counts as
//! keeping exactly what the program holds.

use tranche_shm::DeviceSlot;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;

use crate::charge::{Daemon, Refused, Reservation};
use crate::ledger::{Claim, Denied, Ledger};
use crate::table::{Cursor, Entry, Full, Kind};

/// What the driver says a pool keeps, in bytes; nothing when it cannot say.
pub trait PoolUse {
    /// Of the pool with this handle.
    fn reserved(&self, pool: u64) -> Option<u64>;
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
        let mut reserved = self.tenant.charge(claim.device, units, daemon)?;
        self.begin(pool, claim.device)?;
        let pointer = match driver() {
            Ok(pointer) => pointer,
            Err(error) => {
                self.end(pool);
                return Err(Denied::Driver(error));
            }
        };
        point("pool: driver");
        let entry = Entry { link: pool, ..self.streamed(claim.device, units) };
        let put = self.table.put(Kind::Streamed, pointer, entry);
        if let Ok(Some(gone)) = put {
            self.shrink_live(gone.link, gone.detail);
        }
        let paid = self.pay(pool, units, keeps.reserved(pool), &mut reserved, daemon);
        // What was refused goes back when the driver has it back.
        let refused = match paid {
            Ok(owed) => {
                reserved.keep(owed);
                None
            }
            Err(Refused) => Some(reserved),
        };
        point("pool: paid");
        self.end(pool);
        if put.is_err() || refused.is_some() {
            self.table.take(Kind::Streamed, pointer, u64::MAX);
            self.shrink_live(pool, u64::from(units.get()));
            undo(pointer);
            self.settle_pool(pool, keeps);
            return Err(Denied::OutOfMemory);
        }
        Ok(pointer)
    }

    /// Whether the pointer came from a pool.
    pub fn is_streamed(&self, pointer: u64) -> bool {
        self.table.find(Kind::Streamed, pointer).is_some()
    }

    /// Lets `driver` free a pointer in stream order.
    pub fn free_to_pool<E>(
        &self,
        pointer: u64,
        keeps: &impl PoolUse,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
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
        Ok(())
    }

    /// Looks at every pool and gives back what they let go; `trim` may first ask a pool to let go.
    pub fn settle_pools(&self, keeps: &impl PoolUse, trim: impl Fn(u64)) {
        let mut cursor = Cursor::default();
        while let Some((_, pool, _)) = self.few.next(&mut cursor, |kind, _| kind == Kind::Pool) {
            trim(pool);
            self.settle_pool(pool, keeps);
        }
    }

    /// The program made a pool, on a device or, with none, in host memory, which is nobody's cap.
    pub fn pool_made(&self, pool: u64, device: Option<DeviceSlot>) {
        let (kind, other) = match device {
            Some(_) => (Kind::Pool, Kind::HostPool),
            None => (Kind::HostPool, Kind::Pool),
        };
        self.pool_gone(other, pool, u64::MAX);
        let Some(device) = device.or(DeviceSlot::new(0)) else { return };
        if let Ok(Some(gone)) = self.few.put(kind, pool, self.entry(device, Units::ZERO)) {
            self.forget(kind, pool, gone);
        }
    }

    /// Where a pool has its memory: nothing in host memory, where `unseen` finds it if we did not see it made.
    pub fn pool_device<E>(
        &self,
        pool: u64,
        unseen: impl FnOnce() -> Result<DeviceSlot, E>,
    ) -> Result<Option<DeviceSlot>, E> {
        if self.few.find(Kind::HostPool, pool).is_some() {
            return Ok(None);
        }
        self.few.find(Kind::Pool, pool).map_or_else(unseen, |entry| Ok(entry.device)).map(Some)
    }

    /// Lets `driver` destroy a pool. While something of it is in use the driver keeps what it has, and it stays
    /// charged; nobody can be asked any more how much that is.
    pub fn destroy_pool<E>(&self, pool: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        self.pool_gone(Kind::HostPool, pool, stamp);
        match self.few.take(Kind::Pool, pool, stamp) {
            Some(entry) if live(&entry) > 0 => self.keep_gone(pool, entry),
            Some(entry) => {
                self.forget(Kind::Pool, pool, entry);
                self.drop_lent(pool, entry.serial);
            }
            None => {}
        }
        Ok(())
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

    fn pool_gone(&self, kind: Kind, pool: u64, stamp: u64) {
        if let Some(entry) = self.few.take(kind, pool, stamp) {
            self.forget(kind, pool, entry);
        }
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

    /// Raises the pool's charge to what it keeps now and says how much of what is reserved that takes. One at a time: a charge that another
    /// thread relies on must not be taken back because ours was refused.
    fn pay(
        &self,
        pool: u64,
        live: Units,
        kept: Option<u64>,
        reserved: &mut Reservation<'a>,
        daemon: &impl Daemon,
    ) -> Result<Units, Refused> {
        let _turn = self.device_lock(reserved.device()).acquire();
        let grown = |entry: Entry| entry.detail.saturating_add(u64::from(live.get()));
        let entry = self.few.find(Kind::Pool, pool).ok_or(Refused)?;
        let grown_entry = Entry { detail: grown(entry), ..entry };
        let owed = target(&grown_entry, kept).saturating_sub(entry.units);
        // Between looking and writing only `settle_pool` might lower the charge, and it leaves pools alone
        // whose calls are under way, as ours is.
        let paid = reserved.grow(owed, daemon);
        let owed = if paid.is_ok() { owed } else { Units::ZERO };
        let _ = self.few.change(Kind::Pool, pool, |entry| {
            entry.map(|entry| Entry {
                units: entry.units.saturating_add(owed),
                detail: grown(entry),
                ..entry
            })
        });
        paid.map(|()| owed)
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
        let kept = keeps.reserved(pool);
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

/// What a pool is to be charged: what it keeps, but for what is charged as shared.
pub(crate) fn target(entry: &Entry, kept: Option<u64>) -> Units {
    let all = kept.map_or(Units::new(live(entry)), |bytes| Units::covering(bytes).unwrap_or(Units::MAX));
    all.saturating_sub(lent(entry))
}
