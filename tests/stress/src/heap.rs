//! Places of a thread's allocations: as a driver packs them, which the shim has to foresee.

use std::collections::BTreeMap;

use tranche_policy::BLOCK_BYTES;

/// Allocations of a thread, by address. Threads have addresses of their own, so that the packing of one of them
/// concerns no other.
#[derive(Debug)]
pub(crate) struct Heap {
    next: u64,
    /// Blocks with small allocations in them, and the number of these.
    shared: BTreeMap<u64, u64>,
    /// Addresses and sizes in bytes.
    pub(crate) held: Vec<(u64, u64)>,
}

impl Heap {
    /// An empty heap with the addresses of a thread.
    pub(crate) fn of(thread: usize) -> Self {
        Self { next: (1 << 40) + ((thread as u64) << 36), shared: BTreeMap::new(), held: Vec::new() }
    }

    /// Number of blocks that it takes of the device.
    pub(crate) fn blocks(&self) -> u64 {
        let whole = self.held.iter().filter(|(_, bytes)| *bytes >= BLOCK_BYTES);
        whole.map(|(_, bytes)| bytes.div_ceil(BLOCK_BYTES)).sum::<u64>() + self.shared.len() as u64
    }

    /// Removes all allocations at the end of their context.
    pub(crate) fn clear(&mut self) {
        self.shared.clear();
        self.held.clear();
    }

    /// Removes an allocation that has whole blocks to itself, if there is any.
    pub(crate) fn part_with_whole(&mut self) -> Option<(u64, u64)> {
        let at = self.held.iter().position(|(_, bytes)| *bytes >= BLOCK_BYTES)?;
        Some(self.held.swap_remove(at))
    }

    /// Address of an allocation, and the number of blocks that the driver needs for it.
    ///
    /// Small ones share blocks, and may lie over the edge of one, never over more than one that is new.
    pub(crate) fn place(&self, bytes: u64) -> (u64, u64) {
        let whole = bytes >= BLOCK_BYTES;
        let fresh = |next| {
            blocks(next, bytes).filter(|block| whole || !self.shared.contains_key(block)).count() as u64
        };
        let mut address = self.next;
        if whole || fresh(address) > 1 {
            address = address.next_multiple_of(BLOCK_BYTES);
        }
        (address, fresh(address))
    }

    pub(crate) fn enter(&mut self, address: u64, bytes: u64) {
        self.next = address + bytes;
        if bytes >= BLOCK_BYTES {
            self.next = self.next.next_multiple_of(BLOCK_BYTES);
        } else {
            blocks(address, bytes).for_each(|block| *self.shared.entry(block).or_default() += 1);
        }
        self.held.push((address, bytes));
    }

    /// Number of blocks that the driver gets back.
    pub(crate) fn leave(&mut self, address: u64, bytes: u64) -> u64 {
        if bytes >= BLOCK_BYTES {
            return bytes.div_ceil(BLOCK_BYTES);
        }
        for block in blocks(address, bytes) {
            *self.shared.entry(block).or_default() -= 1;
        }
        let before = self.shared.len();
        self.shared.retain(|_, live| *live > 0);
        (before - self.shared.len()) as u64
    }
}

fn blocks(address: u64, bytes: u64) -> std::ops::Range<u64> {
    address / BLOCK_BYTES..(address + bytes - 1) / BLOCK_BYTES + 1
}
