//! Steps of a thread with a memory pool, which keeps its blocks until it is trimmed.

use std::sync::atomic::Ordering::SeqCst;

use simgpu::Refusal;
use tranche_policy::{BLOCK_BYTES, Claim, ClaimDenied, Extent, Owner};

use crate::board::Word;
use crate::body::{Body, Hand, device};
use crate::connection::DaemonLine;

/// Handles of pools, one for each thread.
const FIRST_POOL: u64 = 1 << 52;

impl Body {
    /// Bytes that a pool keeps, as the driver reports them.
    fn keeps(&self, pool: u64) -> Option<u64> {
        let kept = self.pools.get((pool - FIRST_POOL) as usize)?;
        Some(kept.load(SeqCst) * BLOCK_BYTES)
    }
}

impl Hand<'_> {
    fn handle(&self) -> u64 {
        FIRST_POOL + self.thread as u64
    }

    pub(crate) fn use_pool(&mut self) {
        match self.chance.below(4) {
            0 if !self.pool.live.is_empty() => self.free_to_pool(),
            1 => self.trim(),
            _ => self.allocate_from_pool(),
        }
    }

    fn allocate_from_pool(&mut self) {
        let bytes = 1 + self.chance.below(8 * BLOCK_BYTES);
        let (body, kept) = (self.body, &self.body.pools[self.thread]);
        let grows = self.pool.needs(bytes).saturating_sub(kept.load(SeqCst));
        let pointer = (1 << 48) + ((self.thread as u64) << 44) + self.pool.next;
        let extent = Extent::blocks(bytes).expect("it is far less than 16 TiB");
        let claim = Claim { device: device(), extent, owner: Owner::NOBODY };
        let waits = self.waits();
        let driver = || {
            waits.pause();
            body.take(grows)?;
            kept.fetch_add(grows, SeqCst);
            body.check();
            waits.resume();
            Ok::<_, Refusal>(pointer)
        };
        let keeps = |pool| body.keeps(pool);
        let got = body.ledger.allocate_from_pool(self.handle(), claim, &DaemonLine, &keeps, driver, |_| {});
        drop(waits);
        match got {
            Ok(_) => {
                body.birth.board.count(Word::Pooled);
                self.pool.next += bytes;
                self.pool.live.push((pointer, bytes));
            }
            Err(ClaimDenied::Driver(_)) => body.birth.board.count(Word::DriverRefusals),
            Err(ClaimDenied::OutOfMemory) => {
                self.refused();
                self.trim();
            }
        }
    }

    fn free_to_pool(&mut self) {
        let at = self.chance.below(self.pool.live.len() as u64) as usize;
        let (pointer, _) = self.pool.live.swap_remove(at);
        let keeps = |pool| self.body.keeps(pool);
        let _ = self.body.ledger.free_to_pool(pointer, &keeps, || Ok::<(), Refusal>(()));
    }

    /// Releases blocks of the pool without allocations; the shim reads all pools of the process.
    fn trim(&mut self) {
        let (body, kept) = (self.body, &self.body.pools[self.thread]);
        let trim = |pool| {
            let idle = kept.load(SeqCst).saturating_sub(self.pool.needs(0));
            if pool == self.handle() && idle > 0 {
                // In this order: a thread that reads `kept` in between must not get less than the driver holds, or the
                // rest stays uncharged for a while.
                body.give(idle);
                kept.fetch_sub(idle, SeqCst);
            }
        };
        body.ledger.settle_pools(&|pool| body.keeps(pool), trim);
    }

    /// Frees all allocations of the pool, and trims it.
    pub(crate) fn drain_pool(&mut self) {
        while !self.pool.live.is_empty() {
            self.free_to_pool();
        }
        self.trim();
    }
}
