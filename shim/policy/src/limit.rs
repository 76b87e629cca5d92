//! Limits of a context that the driver backs with device memory: stacks, the heap of `malloc` in kernels, the
//! buffer of `printf` in kernels.
//!
//! The calibrated reserve covers the defaults. What a program asks for beyond them is charged before the driver
//! hears of it, and stays charged until the context ends: a driver does not say when it lets such memory go.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::Daemon;
use crate::extent::Extent;
use crate::ledger::{Claim, Denied, Ledger, Owner};
use crate::table::{Entry, Full, Kind};

/// What a limit costs when it is `value`, which counts `each` times: stacks once per thread that can be
/// resident, the others once. Nothing on overflow.
pub const fn limit_cost(value: u64, default: u64, each: u64) -> Option<Extent> {
    match value.saturating_sub(default).checked_mul(each) {
        Some(bytes) => Extent::blocks(bytes),
        None => None,
    }
}

impl Ledger<'_> {
    /// The default of a limit in a context, as it was before the program first changed it; `now` is what the driver says.
    /// It is entered before the driver is called, so that a thread which asks the driver after another has changed the limit
    /// does not take that for the default.
    pub fn limit_default(
        &self,
        context: u64,
        limit: u32,
        (device, owner): (DeviceSlot, Owner),
        now: u64,
    ) -> Result<u64, Full> {
        let key = key(context, limit);
        let mine = |entry: &Entry| entry.link == owner.0;
        let fresh = Entry { detail: now, link: owner.0, ..self.entry(device, Units::ZERO) };
        let enter = |known: Option<Entry>| Some(known.filter(mine).unwrap_or(fresh));
        match self.table.change(Kind::Limit, key, enter)? {
            Some(known) if mine(&known) => Ok(known.detail),
            before => {
                before.into_iter().for_each(|gone| self.forget(Kind::Limit, key, gone));
                Ok(now)
            }
        }
    }

    /// Charges what the limit costs above what was charged for it already, and lets `driver` set it.
    pub fn set_limit<E>(
        &self,
        context: u64,
        (limit, default): (u32, u64),
        claim: Claim,
        daemon: &impl Daemon,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), Denied<E>> {
        let key = key(context, limit);
        let mine = |entry: &Entry| entry.link == claim.owner.0;
        let charged = self.table.find(Kind::Limit, key).filter(mine).map_or(Units::ZERO, |entry| entry.units);
        let wanted = claim.extent.worst();
        let reserved = self.tenant.charge(claim.device, wanted.saturating_sub(charged), daemon)?;
        driver().map_err(Denied::Driver)?;
        let fresh = Entry { detail: default, link: claim.owner.0, ..self.entry(claim.device, Units::ZERO) };
        let before = self.table.change(Kind::Limit, key, |entry| {
            let entry = entry.filter(mine).unwrap_or(fresh);
            Some(Entry { units: entry.units.max(wanted), ..entry })
        })?;
        match before {
            Some(before) if !mine(&before) => {
                self.forget(Kind::Limit, key, before);
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
