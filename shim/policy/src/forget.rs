//! Release of the charge of an entry that left the table, and of what depended on it.

use tranche_shm::credit::Units;

use crate::ledger::Ledger;
use crate::link::SHARED;
use crate::module::is_allowed;
use crate::table::{Entry, Kind};

impl Ledger<'_> {
    /// Releases the charge of an entry that left the table.
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
            // It has no memory of its own, but memory may be mapped into it.
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
