//! Limits of a context that the driver backs with device memory: stacks, device heap, `printf` buffer.
//!
//! The calibrated reserve covers the defaults. A limit above its default is charged before the driver is called, and
//! stays charged until the context ends: a driver does not report when it frees such memory.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::DaemonLink;
use crate::extent::Extent;
use crate::ledger::{Claim, ClaimDenied, Ledger, Owner};
use crate::table::{EntryKind, Full, TableEntry};

/// Cost of a limit of `value`, which counts `each` times; `None` on overflow.
///
/// Stacks count once per thread that can be resident, other limits once.
pub const fn limit_cost(value: u64, default: u64, each: u64) -> Option<Extent> {
    match value.saturating_sub(default).checked_mul(each) {
        Some(bytes) => Extent::blocks(bytes),
        None => None,
    }
}

impl Ledger<'_> {
    /// Default of a limit in a context, before the program changed it; `now` reads it from the driver.
    ///
    /// It is entered before the driver is called, so that a thread that reads the limit after another has changed it
    /// does not take that for the default.
    pub fn limit_default(
        &self,
        context: u64,
        limit: u32,
        (device, owner): (DeviceSlot, Owner),
        now: u64,
    ) -> Result<u64, Full> {
        let key = key(context, limit);
        let mine = |entry: &TableEntry| entry.link == owner.0;
        let fresh = TableEntry { detail: now, link: owner.0, ..self.entry(device, Units::ZERO) };
        let enter = |known: Option<TableEntry>| Some(known.filter(mine).unwrap_or(fresh));
        match self.table.change(EntryKind::Limit, key, enter)? {
            Some(known) if mine(&known) => Ok(known.detail),
            before => {
                before.into_iter().for_each(|gone| self.forget(EntryKind::Limit, key, gone));
                Ok(now)
            }
        }
    }

    /// Charges the cost of the limit above its charge so far, and lets `driver` set it.
    pub fn set_limit<E>(
        &self,
        context: u64,
        (limit, default): (u32, u64),
        claim: Claim,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), ClaimDenied<E>> {
        let key = key(context, limit);
        let mine = |entry: &TableEntry| entry.link == claim.owner.0;
        let charged =
            self.table.find(EntryKind::Limit, key).filter(mine).map_or(Units::ZERO, |entry| entry.units);
        let wanted = claim.extent.worst();
        let reserved = self.tenant.charge(claim.device, wanted.saturating_sub(charged), daemon)?;
        driver().map_err(ClaimDenied::Driver)?;
        let fresh =
            TableEntry { detail: default, link: claim.owner.0, ..self.entry(claim.device, Units::ZERO) };
        let before = self.table.change(EntryKind::Limit, key, |entry| {
            let entry = entry.filter(mine).unwrap_or(fresh);
            Some(TableEntry { units: entry.units.max(wanted), ..entry })
        })?;
        match before {
            Some(before) if !mine(&before) => {
                self.forget(EntryKind::Limit, key, before);
                reserved.keep(wanted);
            }
            before => reserved.keep(wanted.saturating_sub(before.map_or(Units::ZERO, |entry| entry.units))),
        }
        Ok(())
    }
}

const fn key(context: u64, limit: u32) -> u64 {
    context ^ (limit as u64) << 56
}
