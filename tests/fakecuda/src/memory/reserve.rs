//! Reserves of pools: what they pay for, and what they give up.

use crate::driver::{Driver, Table};
use crate::state::location::Site;
use crate::state::pool::Pool;
use crate::status::Outcome;

/// Pays for blocks of a device, where the site is of any.
pub(crate) fn charge_on<'a>(
    driver: &'a Driver,
    table: &Table,
    site: Site,
    device: usize,
) -> impl Fn(u64) -> Outcome + use<'a> {
    let gpu = table.gpu(device);
    move |bytes| if site == Site::Host { Ok(()) } else { driver.charge(gpu, bytes) }
}

pub(crate) fn trim_pool(
    driver: &Driver,
    table: &mut Table,
    handle: u64,
    keep: impl Fn(&Pool) -> u64,
) -> bool {
    let Some(pool) = table.pools.get_mut(&handle) else { return false };
    let (given, site) = (pool.trim(keep(pool)), pool.site);
    let mut any = false;
    for (device, bytes) in given.into_iter().filter(|_| site != Site::Host) {
        driver.refund(table.devices[device].gpu, bytes);
        any |= bytes > 0;
    }
    any
}

/// Gives up everything that rests on a device; true if that was anything.
pub(crate) fn trim_all(driver: &Driver, table: &mut Table, device: usize) -> bool {
    let of_device = |pool: &Pool| pool.accounts.contains_key(&device);
    let handles: Vec<u64> = table.pools.iter().filter(|(_, pool)| of_device(pool)).map(|(h, _)| *h).collect();
    handles.into_iter().fold(false, |any, handle| trim_pool(driver, table, handle, |_| 0) | any)
}

/// Gives up what rests above each pool's threshold.
pub(crate) fn trim_to_thresholds(driver: &Driver, table: &mut Table) {
    let resting: Vec<u64> =
        table.pools.iter().filter(|(_, pool)| pool.resting() > 0).map(|(h, _)| *h).collect();
    for handle in resting {
        trim_pool(driver, table, handle, |pool| pool.threshold);
    }
}

/// The same at a synchronisation.
pub(crate) fn trim_at_sync(driver: &Driver) {
    trim_to_thresholds(driver, &mut driver.table());
}
