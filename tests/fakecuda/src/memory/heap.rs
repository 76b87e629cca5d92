//! Division of device memory: 2 MiB blocks, small allocations packed into shared ones.
//!
//! Allocations under 1 MiB are aligned to 512 bytes and share blocks; larger ones have whole blocks of their
//! own. A block is paid for before it is used and paid back the moment its last allocation goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::memory::backing::Backing;
use crate::memory::extents::Extents;
use crate::status::{Outcome, Status};

/// Granularity of the driver: 2 MiB.
pub(crate) const BLOCK: u64 = 2 << 20;
/// Allocations of this size and more get blocks of their own.
const LARGE: u64 = 1 << 20;
/// Alignment of the small ones.
const SMALL_ALIGN: u64 = 512;

/// A place in device memory.
#[derive(Clone)]
pub(crate) struct Placement {
    /// First address of the place.
    pub(crate) base: u64,
    /// Holder of its bytes.
    pub(crate) backing: Arc<Backing>,
    /// Offset of its begin in `backing`.
    pub(crate) offset: u64,
}

/// Blocks of one device, pool or address zone.
pub(crate) struct Heap {
    addresses: Extents,
    shared: BTreeMap<u64, Shared>,
    used: u64,
}

struct Shared {
    room: Extents,
    live: usize,
    backing: Arc<Backing>,
}

/// The blocks that an allocation of `size` bytes of its own needs, in bytes; `None` on overflow.
pub(crate) fn whole_blocks(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(BLOCK)
}

impl Heap {
    /// A heap over these device addresses.
    pub(crate) fn new(start: u64, length: u64) -> Self {
        Self { addresses: Extents::new(start, length), shared: BTreeMap::new(), used: 0 }
    }

    /// Bytes in live allocations.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Takes addresses of whole blocks out of use for good, unpaid.
    pub(crate) fn reserve(&mut self, length: u64) -> Option<u64> {
        self.addresses.take(length, BLOCK)
    }

    /// Finds a place for `size` bytes; `charge` pays for each new stretch of blocks, or refuses it.
    pub(crate) fn place(&mut self, size: u64, charge: impl FnOnce(u64) -> Outcome) -> Outcome<Placement> {
        let placement =
            if size < LARGE { self.place_small(size, charge) } else { self.place_large(size, charge) }?;
        self.used += size;
        Ok(placement)
    }

    fn place_large(&mut self, size: u64, charge: impl FnOnce(u64) -> Outcome) -> Outcome<Placement> {
        let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
        let base = self.new_blocks(length, charge)?;
        Ok(Placement { base, backing: Arc::new(Backing::sparse(length)), offset: 0 })
    }

    fn place_small(&mut self, size: u64, charge: impl FnOnce(u64) -> Outcome) -> Outcome<Placement> {
        let length = size.next_multiple_of(SMALL_ALIGN);
        let found = self.shared.iter_mut().find_map(|(block, shared)| Some((*block, shared.take(length)?)));
        let (block, base) = match found {
            Some(found) => found,
            None => {
                let block = self.new_blocks(BLOCK, charge)?;
                let mut shared = Shared {
                    room: Extents::new(block, BLOCK),
                    live: 0,
                    backing: Arc::new(Backing::sparse(BLOCK)),
                };
                let base = shared.take(length).expect("a fresh block holds any small allocation");
                self.shared.insert(block, shared);
                (block, base)
            }
        };
        let backing = self.shared[&block].backing.clone();
        Ok(Placement { base, backing, offset: base - block })
    }

    fn new_blocks(&mut self, length: u64, charge: impl FnOnce(u64) -> Outcome) -> Outcome<u64> {
        let base = self.addresses.take(length, BLOCK).ok_or(Status::OutOfMemory)?;
        charge(length).inspect_err(|_| self.addresses.give(base, length))?;
        Ok(base)
    }

    /// Ends the allocation at `base`, and returns the bytes of blocks that this set free.
    pub(crate) fn vacate(&mut self, base: u64, size: u64) -> u64 {
        self.used -= size;
        if size >= LARGE {
            let length = whole_blocks(size).expect("it was placed, so it did not overflow");
            self.addresses.give(base, length);
            return length;
        }
        let block = base - base % BLOCK;
        let shared = self.shared.get_mut(&block).expect("a small allocation lies in a shared block");
        shared.room.give(base, size.next_multiple_of(SMALL_ALIGN));
        shared.live -= 1;
        if shared.live > 0 {
            return 0;
        }
        self.shared.remove(&block);
        self.addresses.give(block, BLOCK);
        BLOCK
    }
}

impl Shared {
    fn take(&mut self, length: u64) -> Option<u64> {
        let base = self.room.take(length, SMALL_ALIGN)?;
        self.live += 1;
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Heap};
    use crate::status::Status;

    const START: u64 = 1 << 40;

    #[test]
    fn small_allocations_share_a_block_and_the_last_one_frees_it() {
        let mut heap = Heap::new(START, 1 << 30);
        let mut paid = 0;
        let a = heap
            .place(100, |bytes| {
                paid += bytes;
                Ok(())
            })
            .unwrap();
        let b = heap
            .place(513, |bytes| {
                paid += bytes;
                Ok(())
            })
            .unwrap();
        assert_eq!((paid, a.base, b.base), (BLOCK, START, START + 512));
        assert_eq!(heap.vacate(a.base, 100), 0);
        assert_eq!(heap.vacate(b.base, 513), BLOCK);
    }

    #[test]
    fn a_large_allocation_has_whole_aligned_blocks_of_its_own() {
        let mut heap = Heap::new(START, 1 << 30);
        heap.place(100, |_| Ok(())).unwrap();
        let mut paid = 0;
        let large = heap
            .place((1 << 20) + (2 << 20), |bytes| {
                paid += bytes;
                Ok(())
            })
            .unwrap();
        assert_eq!((paid, large.base % BLOCK), (2 * BLOCK, 0));
        assert_eq!(heap.vacate(large.base, 3 << 20), 2 * BLOCK);
    }

    #[test]
    fn a_refused_charge_leaves_nothing_behind() {
        let mut heap = Heap::new(START, 2 * BLOCK);
        assert_eq!(heap.place(2 * BLOCK, |_| Err(Status::OutOfMemory)).err(), Some(Status::OutOfMemory));
        assert!(heap.place(2 * BLOCK, |_| Ok(())).is_ok());
        assert_eq!(heap.used(), 2 * BLOCK);
    }
}
