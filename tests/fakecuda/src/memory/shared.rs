//! Memory that other processes may hold too.
//!
//! Recorded is how often this process holds each piece, and which of its blocks are exported.

use simgpu::{Blocks, Gpu, Shared};

use crate::driver::{Driver, Table, status};
use crate::status::Outcome;

/// Makes memory of this process a piece that others can hold, too; this process holds it once.
pub(crate) fn share(driver: &Driver, table: &mut Table, gpu: Gpu, bytes: u64) -> Outcome<Shared> {
    let piece = driver.process.share(gpu, Blocks::holding(bytes)).map_err(status)?;
    table.pieces.holds.insert(piece, 1);
    Ok(piece)
}

/// Adds one hold of a piece.
pub(crate) fn join(driver: &Driver, table: &mut Table, piece: Shared) -> Outcome {
    driver.process.join(piece).map_err(status)?;
    *table.pieces.holds.entry(piece).or_default() += 1;
    Ok(())
}

/// Releases one hold of a piece.
pub(crate) fn leave(driver: &Driver, table: &mut Table, piece: Shared) {
    let Some(holds) = table.pieces.holds.get_mut(&piece) else { return };
    *holds -= 1;
    if *holds == 0 {
        table.pieces.holds.remove(&piece);
        driver.process.leave(piece);
    }
}

/// The piece that the blocks from this address on are, made at the first call.
pub(crate) fn export(
    driver: &Driver,
    table: &mut Table,
    gpu: Gpu,
    block: u64,
    bytes: u64,
) -> Outcome<Shared> {
    if let Some(piece) = table.pieces.exported.get(&block) {
        return Ok(*piece);
    }
    let piece = share(driver, table, gpu, bytes)?;
    table.pieces.exported.insert(block, piece);
    Ok(piece)
}

/// Returns blocks, or releases them where others may hold them, too.
pub(crate) fn refund(driver: &Driver, table: &mut Table, gpu: Gpu, block: u64, bytes: u64) {
    if bytes == 0 {
        return;
    }
    match table.pieces.exported.remove(&block) {
        Some(piece) => leave(driver, table, piece),
        None => driver.refund(gpu, bytes),
    }
}

/// Releases an exported block, if it is one.
pub(crate) fn part(driver: &Driver, table: &mut Table, block: u64) -> bool {
    let exported = table.pieces.exported.remove(&block);
    exported.into_iter().for_each(|piece| leave(driver, table, piece));
    exported.is_some()
}
