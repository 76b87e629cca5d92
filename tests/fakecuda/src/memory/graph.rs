//! Memory of graphs' nodes.

use std::sync::Arc;

use crate::driver::Driver;
use crate::memory::backing::Backing;
use crate::memory::heap::{Placement, whole_blocks};
use crate::memory::place::add;
use crate::memory::ranges::Kind;
use crate::memory::release::drop_range;
use crate::memory::reserve::charge_on;
use crate::state::location::Site;
use crate::state::stream::GraphMemory;
use crate::status::{Outcome, Status};

/// Fixes the address of a graph's memory node; nothing is paid for yet.
pub(crate) fn reserve_graph_memory(driver: &Driver, size: u64, device: usize) -> Outcome<GraphMemory> {
    if size == 0 {
        return Err(Status::InvalidValue);
    }
    let mut table = driver.table();
    let handle = table.devices.get(device).ok_or(Status::InvalidDevice)?.graph_pool;
    let pool = table.pools.get_mut(&handle).ok_or(Status::Unknown)?;
    // Whole blocks, so that each node's memory is its own; the address is never given back.
    let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
    let base = pool.heap.reserve(length).ok_or(Status::OutOfMemory)?;
    let placement = Placement { base, backing: Arc::new(Backing::sparse(length)), offset: 0 };
    add(&mut table, placement, size, Kind::Unpaid, 0, device);
    Ok(GraphMemory { base, size, device })
}

/// Runs a graph's memory node: its address becomes memory, paid for from the graph pool's rest.
pub(crate) fn graph_alloc(driver: &Driver, memory: GraphMemory, context: u64) -> Outcome {
    let GraphMemory { base, size, device } = memory;
    let mut table = driver.table();
    table.ranges.at(base).filter(|range| range.kind == Kind::Unpaid).ok_or(Status::InvalidValue)?;
    let length = whole_blocks(size).ok_or(Status::OutOfMemory)?;
    let charge = charge_on(driver, &table, Site::Device(device), device);
    let handle = table.devices[device].graph_pool;
    let pool = table.pools.get_mut(&handle).ok_or(Status::Unknown)?;
    pool.pay(device, length, charge)?;
    pool.graph_used += size;
    pool.note();
    if let Some(range) = table.ranges.at_mut(base) {
        (range.kind, range.context) = (Kind::Graph, context);
    }
    Ok(())
}

/// Runs a graph's free node.
pub(crate) fn graph_free(driver: &Driver, address: u64) -> Outcome {
    let mut table = driver.table();
    let range = table.ranges.at(address).ok_or(Status::InvalidValue)?;
    if range.kind == Kind::Unpaid {
        return Err(Status::InvalidValue);
    }
    drop_range(driver, &mut table, address);
    Ok(())
}
