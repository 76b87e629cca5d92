//! A stand-in for cuFFT: transforms take the time of their operations and write nothing.
#![allow(non_snake_case, reason = "names are those of the cuFFT API")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exports::exports;
use crate::missing::guarded;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};
use crate::work::operations;

/// A transform: stream, and operations of one run.
#[derive(Clone, Copy, Default)]
struct Plan {
    stream: u64,
    operations: u64,
}

static PLANS: Mutex<BTreeMap<i32, Plan>> = Mutex::new(BTreeMap::new());

fn plans() -> MutexGuard<'static, BTreeMap<i32, Plan>> {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change(of: i32, change: impl FnOnce(&mut Plan)) -> Outcome {
    plans().get_mut(&of).map(change).ok_or(Status::INVALID_HANDLE)
}

fn create(out: Out<i32>) -> Outcome {
    out.check()?;
    let mut plans = plans();
    let next = plans.keys().next_back().map_or(1, |last| last + 1);
    plans.insert(next, Plan::default());
    out.put(next)
}

/// Operations of a transform: five for each element and each doubling of their number.
fn plan(of: i32, rank: i32, sides: In<i64>, batch: i64, workspace: Out<usize>) -> Outcome {
    let sides = sides.list(usize::try_from(rank).map_err(|_| Status::INVALID_VALUE)?)?;
    let elements = sides
        .iter()
        .chain([&batch])
        .try_fold(1_u64, |all, side| u64::try_from(*side).ok().and_then(|side| all.checked_mul(side)));
    let elements = elements.filter(|elements| *elements > 0).ok_or(Status::INVALID_VALUE)?;
    let all = elements.saturating_mul(5 * u64::from(elements.ilog2() + 1));
    change(of, |plan| plan.operations = all)?;
    workspace.put(0)
}

exports! {
    cufftCreate(out: Out<i32>) = create(out);
    cufftDestroy(of: i32) = plans().remove(&of).map(|_| ()).ok_or(Status::INVALID_HANDLE);
    cufftSetAutoAllocation(of: i32, _automatic: i32) = change(of, |_| ());
    cufftSetStream(of: i32, stream: u64) = change(of, |plan| plan.stream = stream);
    cufftSetWorkArea(of: i32, _at: u64) = change(of, |_| ());
    cufftXtMakePlanMany(
        of: i32, rank: i32, sides: In<i64>, _in_sides: u64, _in_step: i64, _in_batch: i64, _in_type: i32,
        _out_sides: u64, _out_step: i64, _out_batch: i64, _out_type: i32, batch: i64, workspace: Out<usize>,
        _compute: i32,
    ) = plan(of, rank, sides, batch, workspace);
    cufftXtExec(of: i32, _from: u64, _to: u64, _direction: i32) = {
        let plan = plans().get(&of).copied().ok_or(Status::INVALID_HANDLE)?;
        operations(plan.stream, plan.operations)
    };
}
