//! Memory with which a process cannot be checkpointed, or not brought back.

use simgpu::MigMode;

use crate::driver::{Driver, Table};
use crate::memory::ranges::Kind;
use crate::state::location::Site;
use crate::state::pool::Pool;
use crate::status::Status;

/// Course of a checkpoint that does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It does not return.
    Hangs,
    /// It fails with this, and leaves the process failed.
    Fails(Status),
}

/// The obstacle that a checkpoint meets first.
pub(super) fn to_checkpoint(driver: &Driver, table: &Table) -> Option<Obstacle> {
    if hangs(table) {
        return Some(Obstacle::Hangs);
    }
    let gpus = || table.contexts.values().map(|context| table.gpu(context.device));
    if gpus().any(|gpu| driver.node().is_lost(gpu)) {
        return Some(Obstacle::Fails(Status::Unknown));
    }
    // NVIDIA/cuda-checkpoint issue 42.
    if gpus().any(|gpu| driver.node().settings(gpu).mig == MigMode::Enabled) {
        return Some(Obstacle::Fails(Status::OutOfMemory));
    }
    // The README leaves managed memory out, and promises no good state after an error.
    is_managed(table).then_some(Obstacle::Fails(Status::NotSupported))
}

/// Tests for multicast objects and for legacy memory of other processes, imported or exported.
///
/// Both were seen to hang on 610.57.04, the latter outside of a job; memory of pools is taken to be alike.
fn hangs(table: &Table) -> bool {
    let is_foreign = |kind: Kind| matches!(kind, Kind::Ipc(_) | Kind::Lent(_) | Kind::LentLeaving(_));
    !table.multicasts.is_empty()
        || !table.pieces.exported.is_empty()
        || table.ranges.iter().any(|range| is_foreign(range.kind))
}

fn is_managed(table: &Table) -> bool {
    let is_used = |pool: &Pool| matches!(pool.site, Site::Managed(_)) && pool.used() > 0;
    table.ranges.iter().any(|range| range.kind == Kind::Managed) || table.pools.values().any(is_used)
}

/// The failure with memory that another process exported by descriptor.
///
/// The checkpoint succeeds, as seen on 610.57.04.
pub(super) fn to_restore(table: &Table) -> Option<Status> {
    table.physical.values().any(|physical| physical.imported).then_some(Status::InvalidValue)
}
