//! The allocation ledger of one process: charged objects, so that each charge finds its release.

use core::sync::atomic::AtomicU64;

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::{ChargeRefused, Tenant};
use crate::extent::Extent;
use crate::list::List;
use crate::lock::{Lock, Pause};
use crate::order::{self, Barrier, Order};
use crate::table::{EntryTable, Full, Open, TableEntry};

/// Words in front of the table, in this order.
///
/// Per device one lock and one charge for contexts; the lock of shares and the number of shares to report to the
/// daemon; the lock of marks, their number, and the number of contexts about to end; the lengths of the lists of
/// libraries and contexts; the lock of deferred code; the order of calls and ends.
const HEAD: usize = (ORDER + order::WORDS).next_multiple_of(8);
const SHARING: usize = 2 * tranche_shm::MAX_DEVICES;
const MARKING: usize = SHARING + 2;
const LISTS: usize = MARKING + 3;
const LOADING: usize = LISTS + 2;
/// First word of the order of calls, aligned to a cache line.
const ORDER: usize = (LOADING + 1).next_multiple_of(8);
/// Words for contexts and pools; a ledger of `MANY` words or more has `FEW_OF_MANY` for them.
const FEW: usize = 4 * EntryTable::LEAST_WORDS;
const FEW_OF_MANY: usize = 4 << 20;
const MANY: usize = 16 << 20;

/// The context of an allocation; the allocation ends with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner(pub(crate) u64);

impl Owner {
    /// Owner of memory that outlives contexts.
    pub const NOBODY: Self = Self(0);
}

/// A request for device memory, before the driver is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Device that will hold the memory.
    pub device: DeviceSlot,
    /// Size, as far as it is known before the driver is called.
    pub extent: Extent,
    /// Context with which the memory ends.
    pub owner: Owner,
}

/// Error of a request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimDenied<E> {
    /// The cap of the slice refuses the charge.
    OutOfMemory,
    /// The driver refused, with this error.
    Driver(E),
}

impl<E> From<ChargeRefused> for ClaimDenied<E> {
    fn from(_: ChargeRefused) -> Self {
        Self::OutOfMemory
    }
}

impl<E> From<Full> for ClaimDenied<E> {
    fn from(_: Full) -> Self {
        Self::OutOfMemory
    }
}

/// Allocation ledger of a process, over words of the caller.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a> {
    pub(crate) tenant: Tenant<'a>,
    /// Objects of which a process has many.
    pub(crate) table: EntryTable<'a>,
    /// Contexts and pools: few, and often iterated.
    pub(crate) few: EntryTable<'a>,
    head: &'a [AtomicU64; HEAD],
    pause: Pause,
    barrier: Option<Barrier>,
}

/// The words in front of the tables, and those of the tables: of few entries and of many.
type Parts<'a> = (&'a [AtomicU64; HEAD], &'a [AtomicU64], &'a [AtomicU64]);

#[inline(always)]
fn parts(words: &[AtomicU64]) -> Option<Parts<'_>> {
    let (head, rest) = words.split_first_chunk()?;
    let (few, many) = rest.split_at_checked(if rest.len() < MANY { FEW } else { FEW_OF_MANY })?;
    (many.len() >= EntryTable::LEAST_WORDS).then_some((head, few, many))
}

impl<'a> Ledger<'a> {
    /// Fewest words that a ledger needs.
    pub const LEAST_WORDS: usize = HEAD + FEW + EntryTable::LEAST_WORDS;

    /// The ledger in `words`, which were zero before their first use; `None` if they are too few.
    #[inline(always)]
    pub fn over(tenant: Tenant<'a>, words: &'a [AtomicU64], pause: Pause) -> Option<Self> {
        let (head, few, many) = parts(words)?;
        let (few, table) = (EntryTable::over(few, pause)?, EntryTable::over(many, pause)?);
        Some(Self { tenant, table, few, head, pause, barrier: None })
    }

    /// The words that each process with a context writes, in pages of their own.
    pub fn first_words(words: &'a [AtomicU64]) -> Option<[&'a [AtomicU64]; 3]> {
        let (head, few, many) = parts(words)?;
        Some([&head[..ORDER], &few[..EntryTable::FIRST_WORDS], &many[..EntryTable::FIRST_WORDS]])
    }

    /// The ledger with words of which the later ones are opened when a table grows into them.
    pub const fn with_growth(self, open: Open) -> Self {
        Self { table: self.table.with_growth(open), ..self }
    }

    /// The ledger in a process whose threads can be made to pass a barrier, which spares calls their own.
    ///
    /// All ledgers over the same words must have the same barrier.
    pub const fn with_barrier(self, barrier: Option<Barrier>) -> Self {
        Self { barrier, ..self }
    }

    /// The process whose ledger it is.
    #[inline(always)]
    pub const fn tenant(&self) -> Tenant<'a> {
        self.tenant
    }

    /// Serialises decisions about the charge for a device's contexts and pools.
    #[inline(always)]
    pub(crate) fn device_lock(&self, device: DeviceSlot) -> Lock<'a> {
        Lock::at(&self.head[device.index() * 2], self.pause)
    }

    /// Charge for contexts on a device in units, plus one; 0 before the first decision.
    #[inline(always)]
    pub(crate) fn context_charge(&self, device: DeviceSlot) -> &'a AtomicU64 {
        &self.head[device.index() * 2 + 1]
    }

    /// Serialises reports about shares to the daemon.
    pub(crate) fn sharing(&self) -> Lock<'a> {
        Lock::at(&self.head[SHARING], self.pause)
    }

    /// Number of dropped shares not yet reported to the daemon.
    pub(crate) fn shares_due(&self) -> &'a AtomicU64 {
        &self.head[SHARING + 1]
    }

    /// Serialises queries of marks to the driver.
    pub(crate) fn marking(&self) -> Lock<'a> {
        Lock::at(&self.head[MARKING], self.pause)
    }

    /// Number of marks in the table.
    pub(crate) fn marks(&self) -> &'a AtomicU64 {
        &self.head[MARKING + 1]
    }

    /// Number of contexts that are about to end.
    pub(crate) fn hushes(&self) -> &'a AtomicU64 {
        &self.head[MARKING + 2]
    }

    /// Length of the list of contexts or of libraries.
    pub(crate) fn places(&self, list: List) -> &'a AtomicU64 {
        &self.head[LISTS + list as usize]
    }

    /// Serialises charges for deferred code.
    pub(crate) fn loading(&self) -> Lock<'a> {
        Lock::at(&self.head[LOADING], self.pause)
    }

    /// Order of calls and ends of contexts.
    #[inline(always)]
    pub(crate) fn order(&self) -> Order<'a> {
        match self.head[ORDER..].first_chunk() {
            Some(words) => Order::over(words, self.barrier),
            None => unreachable!("the head was laid out for it"),
        }
    }

    /// Lets other threads run; `before` is the number of earlier pauses: see [`Pause`].
    pub(crate) fn pause(&self, before: u32) {
        (self.pause)(before);
    }

    pub(crate) fn entry(&self, device: DeviceSlot, units: Units) -> TableEntry {
        TableEntry { device, serial: self.table.next_serial(), units, detail: 0, link: 0 }
    }
}
