//! Release of the charge of an entry that left the table, and of what depended on it.

use tranche_shm::credit::Units;

use crate::ledger::Ledger;
use crate::link::SHARED;
use crate::module::is_allowed;
use crate::table::{EntryKind, TableEntry};

impl Ledger<'_> {
    /// Releases the charge of an entry that left the table.
    #[inline(never)]
    pub(crate) fn forget(&self, kind: EntryKind, key: u64, entry: TableEntry) {
        self.forget_quickly(kind, key, entry);
    }

    /// As [`Ledger::forget`], compiled into its caller.
    #[inline(always)]
    pub(crate) fn forget_quickly(&self, kind: EntryKind, key: u64, entry: TableEntry) {
        if entry.units > Units::ZERO {
            self.tenant.release_quickly(entry.device, entry.units);
        }
        match kind {
            EntryKind::Memory | EntryKind::Leaving if entry.detail > 0 => {
                self.leave_blocks(entry.device, key, entry.detail);
            }
            EntryKind::Mapping => self.drop_mapping(entry),
            // It has no memory of its own, but memory may be mapped into it.
            EntryKind::Array if entry.units == Units::ZERO => self.unbind_all(key),
            EntryKind::Module if is_allowed(&entry) => self.return_allowance(entry.device),
            EntryKind::Copy => self.copy_gone(entry),
            _ => {}
        }
        match kind {
            EntryKind::Memory | EntryKind::Leaving if entry.link & SHARED != 0 => {
                self.forget_shared(EntryKind::Memory, key);
            }
            EntryKind::Physical if entry.link & SHARED != 0 => self.forget_shared(kind, key),
            _ => {}
        }
    }
}
