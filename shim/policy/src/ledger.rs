//! The ledger of one process: who holds what, so that each charge finds its release.

use core::sync::atomic::AtomicU64;

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::calls::{self, Barrier, Order};
use crate::charge::{Refused, Tenant};
use crate::extent::Extent;
use crate::library::List;
use crate::lock::{Lock, Pause};
use crate::module::is_allowed;
use crate::share::SHARED;
use crate::table::{Entry, Full, Kind, Open, Table};

/// Words in front of the table: one lock and one charge for contexts per device, then the lock about shares and
/// the number of shares to tell the daemon of, then the lock about marks, how many there are, and how many contexts
/// are about to end; then how many places the lists of libraries and contexts have, the lock about code that is loaded
/// lazily, and the order of calls and ends.
const HEAD: usize = (ORDER + calls::WORDS).next_multiple_of(8);
const SHARING: usize = 2 * tranche_shm::MAX_DEVICES;
const MARKING: usize = SHARING + 2;
const LISTS: usize = MARKING + 3;
const LOADING: usize = LISTS + 2;
/// At the beginning of a line of the processor's, for the lines in it.
const ORDER: usize = (LOADING + 1).next_multiple_of(8);
/// Words for contexts and pools, at least; and where there are many words.
const FEW: usize = 4 * Table::LEAST_WORDS;
const FEW_OF_MANY: usize = 4 << 20;
const MANY: usize = 16 << 20;

/// The context that an allocation goes with: it ends when the context does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner(pub(crate) u64);

impl Owner {
    /// Memory that outlives contexts.
    pub const NOBODY: Self = Self(0);
}

/// A request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Where.
    pub device: DeviceSlot,
    /// How much, as far as it is known before the driver is called.
    pub extent: Extent,
    /// In which context.
    pub owner: Owner,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied<E> {
    /// The slice cannot have it.
    OutOfMemory,
    /// The driver said no, and this is what it said.
    Driver(E),
}

impl<E> From<Refused> for Denied<E> {
    fn from(_: Refused) -> Self {
        Self::OutOfMemory
    }
}

impl<E> From<Full> for Denied<E> {
    fn from(_: Full) -> Self {
        Self::OutOfMemory
    }
}

/// A process's ledger over its charges.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a> {
    pub(crate) tenant: Tenant<'a>,
    /// What there are many of.
    pub(crate) table: Table<'a>,
    /// Contexts and pools: few, and walked through often.
    pub(crate) few: Table<'a>,
    head: &'a [AtomicU64; HEAD],
    pause: Pause,
    barrier: Option<Barrier>,
}

impl<'a> Ledger<'a> {
    /// The fewest words a ledger can live in.
    pub const LEAST_WORDS: usize = HEAD + FEW + Table::LEAST_WORDS;

    /// The ledger in `words`, which were zero before their first use; `None` if they are too few.
    #[inline(always)]
    pub fn over(tenant: Tenant<'a>, words: &'a [AtomicU64], pause: Pause) -> Option<Self> {
        let (head, rest) = words.split_first_chunk()?;
        let (few, many) = rest.split_at_checked(if rest.len() < MANY { FEW } else { FEW_OF_MANY })?;
        let (few, table) = (Table::over(few, pause)?, Table::over(many, pause)?);
        Some(Self { tenant, table, few, head, pause, barrier: None })
    }

    /// The same over words of which the later ones are opened when a table grows into them.
    pub const fn with_growth(self, open: Open) -> Self {
        Self { table: self.table.with_growth(open), ..self }
    }

    /// The same in a process whose threads can be made to pass a barrier, so that calls need none of their own.
    /// All ledgers over the same words are to agree on that.
    pub const fn with_barrier(self, barrier: Option<Barrier>) -> Self {
        Self { barrier, ..self }
    }

    /// Whose ledger it is.
    #[inline(always)]
    pub const fn tenant(&self) -> Tenant<'a> {
        self.tenant
    }

    /// One thread at a time decides about what a device's contexts and pools are charged.
    #[inline(always)]
    pub(crate) fn device_lock(&self, device: DeviceSlot) -> Lock<'a> {
        Lock::at(&self.head[device.index() * 2], self.pause)
    }

    /// What is charged for contexts on a device, plus one; 0 while nothing was decided.
    #[inline(always)]
    pub(crate) fn context_charge(&self, device: DeviceSlot) -> &'a AtomicU64 {
        &self.head[device.index() * 2 + 1]
    }

    /// One thread at a time talks to the daemon about what is shared.
    pub(crate) fn sharing(&self) -> Lock<'a> {
        Lock::at(&self.head[SHARING], self.pause)
    }

    /// How many shares the daemon is to be told of.
    pub(crate) fn shares_due(&self) -> &'a AtomicU64 {
        &self.head[SHARING + 1]
    }

    /// One thread at a time asks for marks.
    pub(crate) fn marking(&self) -> Lock<'a> {
        Lock::at(&self.head[MARKING], self.pause)
    }

    /// How many marks there are.
    pub(crate) fn marks(&self) -> &'a AtomicU64 {
        &self.head[MARKING + 1]
    }

    /// How many contexts are about to end.
    pub(crate) fn hushes(&self) -> &'a AtomicU64 {
        &self.head[MARKING + 2]
    }

    /// How many places the list of contexts and that of libraries have.
    pub(crate) fn places(&self, list: List) -> &'a AtomicU64 {
        &self.head[LISTS + list as usize]
    }

    /// One thread at a time charges code that was deferred.
    pub(crate) fn loading(&self) -> Lock<'a> {
        Lock::at(&self.head[LOADING], self.pause)
    }

    /// Who of calls and ends of contexts goes first.
    #[inline(always)]
    pub(crate) fn order(&self) -> Order<'a> {
        match self.head[ORDER..].first_chunk() {
            Some(words) => Order::over(words, self.barrier),
            None => unreachable!("the head was laid out for it"),
        }
    }

    /// Lets other threads run, so many times after the first: see [`Pause`].
    pub(crate) fn pause(&self, before: u32) {
        (self.pause)(before);
    }

    pub(crate) fn entry(&self, device: DeviceSlot, units: Units) -> Entry {
        Entry { device, serial: self.table.next_serial(), units, detail: 0, link: 0 }
    }

    /// Gives back what an entry that left the table was charged.
    #[inline(always)]
    pub(crate) fn forget(&self, kind: Kind, key: u64, entry: Entry) {
        if entry.units > Units::ZERO {
            self.tenant.release(entry.device, entry.units);
        }
        match kind {
            Kind::Memory | Kind::Leaving if entry.detail > 0 => {
                self.leave_blocks(entry.device, key, entry.detail);
            }
            Kind::Mapping => self.drop_mapping(entry),
            // It has no memory of its own, but may have others'.
            Kind::Array if entry.units == Units::ZERO => self.unbind_all(key),
            Kind::Module if is_allowed(&entry) => self.return_allowance(entry.device),
            Kind::Copy => self.copy_gone(entry),
            _ => {}
        }
        match kind {
            Kind::Memory | Kind::Leaving if entry.link & SHARED != 0 => self.forget_shared(Kind::Memory, key),
            Kind::Physical if entry.link & SHARED != 0 => self.forget_shared(kind, key),
            _ => {}
        }
    }
}
