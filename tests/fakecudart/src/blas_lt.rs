//! A stand-in for cuBLASLt: products take the time of their operations and write nothing.
#![allow(non_snake_case, reason = "names are those of the cuBLASLt API")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exports::exports;
use crate::missing::guarded;
use crate::status::{Outcome, Status};
use crate::wall::Out;
use crate::work::operations;

/// Elements of each matrix layout, and none of other descriptions: rows and columns.
static DESCRIBED: Mutex<BTreeMap<u64, (u64, u64)>> = Mutex::new(BTreeMap::new());

fn described() -> MutexGuard<'static, BTreeMap<u64, (u64, u64)>> {
    DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(out: Out<u64>, rows: u64, columns: u64) -> Outcome {
    out.check()?;
    let mut described = described();
    let next = described.keys().next_back().map_or(1 << 12, |last| last + 1);
    described.insert(next, (rows, columns));
    out.put(next)
}

fn known(of: u64) -> Outcome<(u64, u64)> {
    described().get(&of).copied().ok_or(Status::INVALID_HANDLE)
}

fn forget(of: u64) -> Outcome {
    described().remove(&of).map(|_| ()).ok_or(Status::INVALID_HANDLE)
}

/// The product that fills a layout from a left side.
///
/// Its inner length follows from the left side's elements.
fn product(left: u64, into: u64, stream: u64) -> Outcome {
    let ((rows, columns), (left_rows, left_columns)) = (known(into)?, known(left)?);
    let inner = left_rows.saturating_mul(left_columns) / rows.max(1);
    operations(stream, [rows, columns, inner].iter().fold(2_u64, |all, one| all.saturating_mul(*one)))
}

/// `cublasLtMatmulHeuristicResult_t`: an algorithm that needs no workspace, and success.
type Heuristic = [u64; 12];

// SAFETY: the name is one of the cuBLASLt API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    130_000
}

exports! {
    cublasLtMatmulDescCreate(out: Out<u64>, _compute: i32, _scale: i32) = describe(out, 0, 0);
    cublasLtMatmulDescDestroy(of: u64) = forget(of);
    cublasLtMatmulDescSetAttribute(of: u64, _attribute: i32, _value: u64, _bytes: usize) = known(of).map(|_| ());
    cublasLtMatrixLayoutCreate(out: Out<u64>, _type: i32, rows: u64, columns: u64, _leading: i64) =
        describe(out, rows, columns);
    cublasLtMatrixLayoutDestroy(of: u64) = forget(of);
    cublasLtMatrixLayoutSetAttribute(of: u64, _attribute: i32, _value: u64, _bytes: usize) = known(of).map(|_| ());
    cublasLtMatmulPreferenceCreate(out: Out<u64>) = describe(out, 0, 0);
    cublasLtMatmulPreferenceDestroy(of: u64) = forget(of);
    cublasLtMatmulPreferenceSetAttribute(of: u64, _attribute: i32, _value: u64, _bytes: usize) = known(of).map(|_| ());
    cublasLtMatmulAlgoGetHeuristic(
        _handle: u64, _product: u64, _left: u64, _right: u64, _add: u64, _into: u64, _preference: u64, room: i32,
        out: Out<Heuristic>, count: Out<i32>,
    ) = {
        if room < 1 {
            return Err(Status::INVALID_VALUE);
        }
        out.put([0; 12]).and_then(|()| count.put(1))
    };
    cublasLtMatmulAlgoInit(
        _handle: u64, _compute: i32, _scale: i32, _left: i32, _right: i32, _add: i32, _into: i32, _id: i32,
        out: Out<[u64; 8]>,
    ) = out.put([0; 8]);
    cublasLtMatmul(
        _handle: u64, product_of: u64, _alpha: u64, _a: u64, left: u64, _b: u64, _right: u64, _beta: u64, _c: u64,
        _add: u64, _d: u64, into: u64, _algorithm: u64, _workspace: u64, _bytes: usize, stream: u64,
    ) = known(product_of).and_then(|_| product(left, into, stream));
}
