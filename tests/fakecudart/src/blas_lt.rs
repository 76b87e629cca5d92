//! A stand-in for cuBLASLt: products take the time of their operations and write nothing.
#![allow(non_snake_case, reason = "names are those of the cuBLASLt API")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exports::exports;
use crate::missing::guarded;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};
use crate::work::operations;

/// Attributes of a matrix layout (`cublasLtMatrixLayoutAttribute_t`).
const TYPE: i32 = 0;
const ROWS: i32 = 2;
const COLUMNS: i32 = 3;
const LEADING: i32 = 4;
const BATCH: i32 = 5;

/// Attributes of an object by their numbers, each as the bytes that were set.
type Description = BTreeMap<i32, Vec<u8>>;

static DESCRIBED: Mutex<BTreeMap<u64, Description>> = Mutex::new(BTreeMap::new());

fn described() -> MutexGuard<'static, BTreeMap<u64, Description>> {
    DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(out: Out<u64>, description: Description) -> Outcome {
    out.check()?;
    let mut described = described();
    let next = described.keys().next_back().map_or(1 << 12, |last| last + 1);
    described.insert(next, description);
    out.put(next)
}

fn layout(kind: i32, rows: u64, columns: u64, leading: i64) -> Description {
    let (rows, columns) = (rows.to_ne_bytes().to_vec(), columns.to_ne_bytes().to_vec());
    let (kind, leading) = (kind.to_ne_bytes().to_vec(), leading.to_ne_bytes().to_vec());
    let one = 1_i32.to_ne_bytes().to_vec();
    [(TYPE, kind), (ROWS, rows), (COLUMNS, columns), (LEADING, leading), (BATCH, one)].into()
}

fn known(of: u64) -> Outcome<Description> {
    described().get(&of).cloned().ok_or(Status::INVALID_HANDLE)
}

fn forget(of: u64) -> Outcome {
    described().remove(&of).map(|_| ()).ok_or(Status::INVALID_HANDLE)
}

fn set(of: u64, attribute: i32, value: In<u8>, bytes: usize) -> Outcome {
    let value = value.list(bytes)?;
    let mut described = described();
    described.get_mut(&of).ok_or(Status::INVALID_HANDLE)?.insert(attribute, value);
    Ok(())
}

/// Answers an attribute, which is zero before it is set; with no room, the number of its bytes.
fn get(of: u64, attribute: i32, out: Out<u8>, room: usize, written: Out<usize>) -> Outcome {
    let value = known(of)?.remove(&attribute).unwrap_or_else(|| vec![0; room]);
    if written.check().is_ok() {
        written.put(value.len())?;
    }
    match room {
        0 => written.check(),
        room if room < value.len() => Err(Status::INVALID_VALUE),
        _ => out.put_list(&value),
    }
}

/// A number of a layout, which is never negative.
fn number(of: &Description, attribute: i32) -> u64 {
    let bytes = of.get(&attribute).map_or(&[][..], Vec::as_slice);
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The product that fills a layout from a left side.
///
/// Its inner length follows from the left side's elements.
fn product(left: u64, into: u64, stream: u64) -> Outcome {
    let (into, left) = (known(into)?, known(left)?);
    let (rows, columns) = (number(&into, ROWS), number(&into, COLUMNS));
    let inner = number(&left, ROWS).saturating_mul(number(&left, COLUMNS)) / rows.max(1);
    let sides = [rows, columns, inner, number(&into, BATCH).max(1)];
    operations(stream, sides.iter().fold(2_u64, |all, one| all.saturating_mul(*one)))
}

/// `cublasLtMatmulHeuristicResult_t`: an algorithm that needs no workspace, and success.
type Heuristic = [u64; 12];

// SAFETY: the name is one of the cuBLASLt API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    130_000
}

exports! {
    cublasLtCreate(out: Out<u64>) = describe(out, Description::new());
    cublasLtDestroy(of: u64) = forget(of);
    cublasLtMatmulDescCreate(out: Out<u64>, compute: i32, scale: i32) =
        describe(out, [(0, compute.to_ne_bytes().to_vec()), (1, scale.to_ne_bytes().to_vec())].into());
    cublasLtMatmulDescDestroy(of: u64) = forget(of);
    cublasLtMatmulDescSetAttribute(of: u64, attribute: i32, value: In<u8>, bytes: usize) =
        set(of, attribute, value, bytes);
    cublasLtMatmulDescGetAttribute(of: u64, attribute: i32, out: Out<u8>, room: usize, written: Out<usize>) =
        get(of, attribute, out, room, written);
    cublasLtMatrixLayoutCreate(out: Out<u64>, kind: i32, rows: u64, columns: u64, leading: i64) =
        describe(out, layout(kind, rows, columns, leading));
    cublasLtMatrixLayoutDestroy(of: u64) = forget(of);
    cublasLtMatrixLayoutSetAttribute(of: u64, attribute: i32, value: In<u8>, bytes: usize) =
        set(of, attribute, value, bytes);
    cublasLtMatrixLayoutGetAttribute(of: u64, attribute: i32, out: Out<u8>, room: usize, written: Out<usize>) =
        get(of, attribute, out, room, written);
    cublasLtMatmulPreferenceCreate(out: Out<u64>) = describe(out, Description::new());
    cublasLtMatmulPreferenceDestroy(of: u64) = forget(of);
    cublasLtMatmulPreferenceSetAttribute(of: u64, attribute: i32, value: In<u8>, bytes: usize) =
        set(of, attribute, value, bytes);
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
