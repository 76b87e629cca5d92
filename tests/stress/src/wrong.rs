//! Protocols that are wrong on purpose, to show that a run detects them.

use std::time::Duration;

use simgpu::Blocks;
use tranche_policy::{BLOCK_BYTES, ChargeRefused};
use tranche_shm::credit::{Credit, Units};

use crate::body::{Hand, device};
use crate::connection::DaemonLine;

pub use crate::broken::Broken;

impl Hand<'_> {
    pub(crate) fn allocate_driver_first(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let blocks = bytes / BLOCK_BYTES;
        if self.body.take(blocks).is_err() {
            return;
        }
        self.body.check();
        let units = Units::within(bytes);
        match self.body.ledger.tenant().charge(device(), units, &DaemonLine) {
            Ok(reservation) => {
                reservation.keep(units);
                self.take_note(bytes);
            }
            Err(ChargeRefused) => self.body.give(blocks),
        }
    }

    pub(crate) fn allocate_with_lost_updates(&mut self, bytes: u64) {
        let units = Units::within(bytes.next_multiple_of(BLOCK_BYTES));
        let tenant = self.body.ledger.tenant();
        let word = tenant.usage.credit(tenant.slot, device());
        let seen = word.load();
        if seen.unused() < units {
            drop(tenant.charge(device(), units, &DaemonLine));
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
        word.reset(Credit { used: seen.used.saturating_add(units), ..seen });
        if self.body.take(units.bytes() / BLOCK_BYTES).is_ok() {
            self.take_note(units.bytes());
        }
    }

    fn take_note(&mut self, bytes: u64) {
        let (address, _) = self.heap.place(bytes);
        self.heap.enter(address, bytes);
    }

    /// Returns blocks whose charge is in no ledger.
    pub(crate) fn free_unknown(&self, blocks: Blocks) {
        self.body.give(blocks.0);
        let units = Units::within(blocks.0 * BLOCK_BYTES);
        self.body.ledger.tenant().release(device(), units);
    }
}
