//! Steps of a thread with memory that other processes of the slice hold, too.

use simgpu::{Blocks, Refusal, Shared};
use tranche_policy::{BLOCK_BYTES, ClaimDenied, EntryKind};
use tranche_shm::credit::Units;
use tranche_shm::message::ShareKey;

use crate::board::{Offer, Word};
use crate::body::{Hand, device};
use crate::broken::Broken;
use crate::connection::DaemonLine;

/// Bit in the ids of memory that another slice or process exported.
const OPENED: u64 = 1 << 50;

fn key(shared: Shared) -> ShareKey {
    ShareKey::of_bytes(&shared.serial().to_le_bytes())
}

impl Hand<'_> {
    pub(crate) fn lend_or_borrow(&mut self) {
        match self.chance.below(8) {
            0..2 => self.lend(),
            2..5 => self.borrow(),
            5 => self.return_one(),
            _ => self.free_lent(),
        }
    }

    /// Exports one of the thread's allocations, and offers it to other tenants.
    fn lend(&mut self) {
        let Some((address, bytes)) = self.heap.part_with_whole() else { return };
        let (body, blocks) = (self.body, bytes.div_ceil(BLOCK_BYTES));
        let Ok(shared) = body.process.share(body.gpu, Blocks(blocks)) else {
            return self.heap.held.push((address, bytes));
        };
        // From here on it is no longer this process's alone.
        body.holds_less(blocks);
        let waits = self.waits();
        let exported = body.ledger.export(EntryKind::Memory, address, key(shared), &DaemonLine);
        drop(waits);
        exported.expect("whole blocks cost nothing more");
        body.birth.board.count(Word::Exports);
        body.birth.board.offer(&mut self.chance, Offer { serial: shared.serial(), blocks });
        self.loans.lent.push((address, shared));
    }

    fn free_lent(&mut self) {
        if let Some((address, shared)) = self.loans.lent.pop() {
            let driver = || self.leave(shared);
            let _ = self.body.ledger.free(EntryKind::Memory, address, driver);
            self.tell();
        }
    }

    /// Opens memory that another process offers, if it still exists.
    fn borrow(&mut self) {
        let body = self.body;
        let Some(Offer { serial, blocks }) = body.birth.board.some_offer(&mut self.chance) else { return };
        let shared = Shared::new(body.gpu, serial);
        if self.loans.borrowed.contains(&shared) || self.loans.lent.iter().any(|(_, lent)| *lent == shared) {
            return;
        }
        let driver = || {
            body.process.join(shared)?;
            Ok::<_, Refusal>((OPENED | serial, Units::within(blocks * BLOCK_BYTES)))
        };
        let waits = self.waits();
        let undo = |_| body.process.leave(shared);
        let opened = body.ledger.import(EntryKind::Opened, device(), key(shared), &DaemonLine, driver, undo);
        drop(waits);
        match opened {
            Ok(_) => {
                body.birth.board.count(Word::Imports);
                self.loans.borrowed.push(shared);
            }
            Err(ClaimDenied::OutOfMemory) => self.refused(),
            Err(ClaimDenied::Driver(_)) => {} // its last holder has released it
        }
    }

    fn return_one(&mut self) {
        if let Some(shared) = self.loans.borrowed.pop() {
            let driver = || self.leave(shared);
            let waits = self.waits();
            let _ = self.body.ledger.drop_import(OPENED | shared.serial(), &DaemonLine, driver);
            drop(waits);
        }
    }

    fn leave(&self, shared: Shared) -> Result<(), Refusal> {
        if self.body.birth.broken != Some(Broken::KeptShare) {
            self.body.process.leave(shared);
        }
        Ok(())
    }

    /// Releases all lent memory, as the driver does at the end of the context that it was made in.
    pub(crate) fn leave_all_lent(&mut self) {
        for (_, shared) in std::mem::take(&mut self.loans.lent) {
            let _ = self.leave(shared);
        }
    }

    /// Notifies the daemon of shared memory that is no longer held.
    pub(crate) fn tell(&self) {
        let waits = self.waits();
        self.body.ledger.flush_shares(&DaemonLine);
        drop(waits);
    }

    /// Releases one lent and one borrowed piece, so that a full slice has room again.
    pub(crate) fn give_back_loans(&mut self) {
        self.free_lent();
        self.return_one();
    }
}
