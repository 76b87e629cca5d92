//! Release of ranges, each as what it is.

use crate::driver::{Driver, Table, driver};
use crate::memory::heap::{BLOCK, whole_blocks};
use crate::memory::physical;
use crate::memory::ranges::Kind;
use crate::memory::reserve::trim_pool;
use crate::state::pool::{POOL_ADDRESSES, Pool};

/// Takes a range out and gives its blocks back, whatever it is.
pub(crate) fn drop_range(driver: &Driver, table: &mut Table, base: u64) {
    if let Some(range) = table.ranges.at_mut(base).filter(|range| range.kind == Kind::Graph) {
        range.kind = Kind::Unpaid;
        let (device, size) = (range.device, range.size);
        let pool = table.devices[device].graph_pool;
        return rest(table, pool, device, size);
    }
    let Some(range) = table.ranges.remove(base) else { return };
    let gpu = table.gpu(range.device);
    let device = &mut table.devices[range.device];
    let freed = match range.kind {
        Kind::Device | Kind::Leaving | Kind::Owned => device.heap.vacate(base, range.size),
        Kind::Low => device.low.vacate(base, range.size),
        Kind::Managed => whole_blocks(range.size).unwrap_or(0),
        Kind::Ipc(piece) | Kind::Lent(piece) | Kind::LentLeaving(piece) => {
            table.reserved.give(base, range.backing.size());
            return crate::memory::shared::leave(driver, table, piece);
        }
        Kind::Pool(pool) => {
            return vacate(driver, table, pool, range.device, base, range.size);
        }
        Kind::External(memory) => {
            table.reserved.give(base, range.size.next_multiple_of(BLOCK));
            return physical::unpin(driver, table, memory);
        }
        Kind::Graph | Kind::Unpaid | Kind::Virtual(_) | Kind::Pinned(_) | Kind::Registered(_) => 0,
    };
    crate::memory::shared::refund(driver, table, gpu, base - base % BLOCK, freed);
}

/// Ends memory that was freed in a stream, in its turn, unless its context ended before.
pub(crate) fn leave(base: u64, id: u64) {
    if let Ok(driver) = driver() {
        let mut table = driver.table();
        if table.ranges.at(base).is_some_and(|range| range.id == id) {
            drop_range(driver, &mut table, base);
        }
    }
}

/// Ends an allocation of a pool; its blocks rest.
fn vacate(driver: &Driver, table: &mut Table, handle: u64, device: usize, base: u64, size: u64) {
    let exported = crate::memory::shared::part(driver, table, base);
    if let Some(pool) = table.pools.get_mut(&handle) {
        let freed = pool.vacate(base, size);
        let account = pool.accounts.entry(device).or_default();
        // The pool does not keep what other processes may hold.
        match exported {
            true => account.reserved -= freed,
            false => account.resting += freed,
        }
    }
    end_if_unused(driver, table, handle);
}

/// A pool that was destroyed ends when nothing of it is in use.
pub(crate) fn end_if_unused(driver: &Driver, table: &mut Table, handle: u64) {
    let unused = |pool: &&Pool| pool.gone && pool.used() == 0;
    let Some(start) = table.pools.get(&handle).filter(unused).and_then(|pool| pool.reserved_at) else {
        return;
    };
    trim_pool(driver, table, handle, |_| 0);
    table.pools.remove(&handle);
    table.reserved.give(start, POOL_ADDRESSES);
}

/// Ends an allocation of a graph; its blocks rest and its address stays the node's.
fn rest(table: &mut Table, pool: u64, device: usize, size: u64) {
    if let Some(pool) = table.pools.get_mut(&pool) {
        pool.accounts.entry(device).or_default().resting += whole_blocks(size).unwrap_or(0);
        pool.graph_used -= size;
    }
}
