//! Pools: blocks that are paid for, and what of them is in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::memory::backing::Backing;
use crate::memory::heap::{BLOCK, Heap, Placement, whole_blocks};
use crate::state::location::{Location, Site};
use crate::status::{Outcome, Status};

/// Addresses of one explicit pool.
pub(crate) const POOL_ADDRESSES: u64 = 1 << 38;

/// A pool of stream-ordered memory.
pub(crate) struct Pool {
    pub(crate) location: Location,
    pub(crate) site: Site,
    pub(crate) heap: Heap,
    /// Begin of its addresses, if it took them from the reservation line.
    pub(crate) reserved_at: Option<u64>,
    /// Blocks that it has of each device.
    pub(crate) accounts: BTreeMap<usize, Account>,
    /// Bytes in live allocations that have addresses of the host.
    pub(crate) mapped_used: u64,
    /// It grows by multiples of this.
    pub(crate) step: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used_high: u64,
    /// Bytes used by graphs, whose addresses the heap does not manage at run time.
    pub(crate) graph_used: u64,
    pub(crate) threshold: u64,
    pub(crate) reuse: [i32; 3],
    /// Destroyed: it ends with the last of its allocations.
    pub(crate) gone: bool,
    /// Other processes may open it: each allocation has whole blocks to itself.
    pub(crate) shareable: bool,
}

/// Blocks that a pool has of one device, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Account {
    /// Bytes of blocks paid for and unused.
    pub(crate) resting: u64,
    /// Bytes of all blocks paid for.
    pub(crate) reserved: u64,
}

impl Account {
    /// Pays for blocks, from what rests first, and grows by whole steps.
    ///
    /// Where there is no room for a step, it grows by what is needed.
    fn pay(&mut self, bytes: u64, step: u64, charge: impl Fn(u64) -> Outcome) -> Outcome {
        let new = bytes - bytes.min(self.resting);
        let mut grown = new.checked_next_multiple_of(step).ok_or(Status::OutOfMemory)?;
        if grown > 0 && charge(grown).is_err() {
            grown = new;
            charge(grown)?;
        }
        self.reserved += grown;
        self.resting = self.resting + grown - bytes;
        Ok(())
    }
}

impl Pool {
    /// A pool over these addresses, for plain memory of a device.
    pub(crate) fn new(device: usize, start: u64, length: u64) -> Self {
        Self::at(Location::on(device as i32), Site::Device(device), start, length)
    }

    pub(crate) fn at(location: Location, site: Site, start: u64, length: u64) -> Self {
        Self {
            location,
            site,
            heap: Heap::new(start, length),
            reserved_at: None,
            accounts: BTreeMap::new(),
            mapped_used: 0,
            step: crate::personality::own().pool_step_mib << 20,
            reserved_high: 0,
            used_high: 0,
            graph_used: 0,
            threshold: 0,
            reuse: [1; 3],
            gone: false,
            shareable: false,
        }
    }

    /// The pool behind graphs' memory nodes: keeps what it has until it is trimmed.
    pub(crate) fn graphs(device: usize, start: u64, length: u64) -> Self {
        Self { threshold: u64::MAX, step: BLOCK, ..Self::new(device, start, length) }
    }

    /// Tests if other processes may open it.
    pub(crate) fn is_shareable(&self) -> bool {
        self.shareable && !self.gone
    }

    /// The device that an allocation is counted on, for a stream of a device.
    pub(crate) const fn device_for(&self, stream: usize) -> usize {
        match self.site {
            Site::Device(device) | Site::Managed(Some(device)) => device,
            Site::Host | Site::Managed(None) => stream,
        }
    }

    /// Bytes of the heap that an allocation of this size takes.
    fn size_of(&self, size: u64) -> Option<u64> {
        if self.shareable { whole_blocks(size) } else { Some(size) }
    }

    pub(crate) fn used(&self) -> u64 {
        self.heap.used() + self.mapped_used + self.graph_used
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.accounts.values().map(|account| account.reserved).sum()
    }

    pub(crate) fn resting(&self) -> u64 {
        self.accounts.values().map(|account| account.resting).sum()
    }

    pub(crate) fn note(&mut self) {
        self.reserved_high = self.reserved_high.max(self.reserved());
        self.used_high = self.used_high.max(self.used());
    }

    pub(crate) fn pay(&mut self, device: usize, bytes: u64, charge: impl Fn(u64) -> Outcome) -> Outcome {
        self.accounts.entry(device).or_default().pay(bytes, self.step, charge)
    }

    pub(crate) fn place(
        &mut self,
        device: usize,
        size: u64,
        charge: impl Fn(u64) -> Outcome,
    ) -> Outcome<Placement> {
        let placement = match self.site {
            Site::Device(_) => {
                let size = self.size_of(size).ok_or(Status::OutOfMemory)?;
                let (account, step) = (self.accounts.entry(device).or_default(), self.step);
                self.heap.place(size, |bytes| account.pay(bytes, step, charge))?
            }
            // One address for host and devices, and whole blocks.
            Site::Host | Site::Managed(_) => {
                let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
                let backing = Arc::new(Backing::mapped(length)?);
                let base = backing.host(0, length)?.address();
                self.pay(device, length, charge)?;
                self.mapped_used += size;
                Placement { base, backing, offset: 0 }
            }
        };
        self.note();
        Ok(placement)
    }

    /// Ends an allocation; returns the bytes of blocks that this set free.
    pub(crate) fn vacate(&mut self, base: u64, size: u64) -> u64 {
        match self.site {
            Site::Device(_) => self.heap.vacate(base, self.size_of(size).unwrap_or(size)),
            Site::Host | Site::Managed(_) => {
                self.mapped_used -= size;
                whole_blocks(size).unwrap_or(0)
            }
        }
    }

    /// Gives up resting blocks, by whole steps, until at most `keep` bytes are reserved.
    ///
    /// Returns the bytes given up of each device.
    pub(crate) fn trim(&mut self, keep: u64) -> Vec<(usize, u64)> {
        let mut excess = self.reserved().saturating_sub(keep).next_multiple_of(BLOCK);
        let mut all = Vec::new();
        for (device, account) in &mut self.accounts {
            let given = excess.min(account.resting);
            let whole = if given == account.reserved { given } else { given - given % self.step };
            excess -= whole;
            account.resting -= whole;
            account.reserved -= whole;
            all.push((*device, whole));
        }
        all
    }
}

/// The default pool and the current one of a location of CUDA 13.
#[derive(Clone, Copy)]
pub(crate) struct LocationPools {
    pub(crate) default: u64,
    pub(crate) current: u64,
}
