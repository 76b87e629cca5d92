//! A stand-in for cuBLAS: products take the time of their operations and write nothing.
//!
//! What a program imports beyond the functions below takes the least time there is, through [`fakecudart_work`].
#![allow(non_snake_case, reason = "names are those of the cuBLAS API")]

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::ready;
use crate::exports::exports;
use crate::missing::guarded;
use crate::status::{self, Outcome, Status};
use crate::wall::Out;
use crate::work::operations;

/// State of a handle.
#[derive(Clone, Copy, Default)]
struct Handle {
    stream: u64,
    pointer_mode: i32,
    math_mode: i32,
}

static HANDLES: Mutex<BTreeMap<u64, Handle>> = Mutex::new(BTreeMap::new());

fn handles() -> MutexGuard<'static, BTreeMap<u64, Handle>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle(of: u64) -> Outcome<Handle> {
    handles().get(&of).copied().ok_or(Status::INVALID_HANDLE)
}

fn change(of: u64, change: impl FnOnce(&mut Handle)) -> Outcome {
    handles().get_mut(&of).map(change).ok_or(Status::INVALID_HANDLE)
}

fn create(out: Out<u64>) -> Outcome {
    out.check()?;
    ready()?;
    let mut handles = handles();
    let next = handles.keys().next_back().map_or(1 << 12, |last| last + 1);
    handles.insert(next, Handle::default());
    out.put(next)
}

/// A product of an `m`×`k` and a `k`×`n` matrix, `batch` times.
fn product(of: u64, sides: [i32; 3], batch: i32) -> Outcome {
    let sides = sides.map(|side| u64::try_from(side).map_err(|_| Status::INVALID_VALUE));
    let batch = u64::try_from(batch).map_err(|_| Status::INVALID_VALUE)?;
    let [m, n, k] = sides;
    let all = [m?, n?, k?, batch].iter().fold(2_u64, |all, one| all.saturating_mul(*one));
    if all == 0 { handle(of).map(|_| ()) } else { operations(handle(of)?.stream, all) }
}

// SAFETY: the name is one of the cuBLAS API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(status: i32) -> *const c_char {
    status::sentence(status)
}

exports! {
    cublasCreate_v2(out: Out<u64>) = create(out);
    cublasDestroy_v2(of: u64) = handles().remove(&of).map(|_| ()).ok_or(Status::INVALID_HANDLE);
    cublasSetStream_v2(of: u64, stream: u64) = change(of, |handle| handle.stream = stream);
    cublasGetStream_v2(of: u64, out: Out<u64>) = handle(of).and_then(|handle| out.put(handle.stream));
    cublasSetWorkspace_v2(of: u64, _at: u64, _bytes: usize) = handle(of).map(|_| ());
    cublasSetPointerMode_v2(of: u64, mode: i32) = change(of, |handle| handle.pointer_mode = mode);
    cublasGetPointerMode_v2(of: u64, out: Out<i32>) = handle(of).and_then(|handle| out.put(handle.pointer_mode));
    cublasSetMathMode(of: u64, mode: i32) = change(of, |handle| handle.math_mode = mode);
    cublasGetMathMode(of: u64, out: Out<i32>) = handle(of).and_then(|handle| out.put(handle.math_mode));
    cublasSetSmCountTarget(of: u64, _count: i32) = handle(of).map(|_| ());
    cublasSgemm_v2(of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32) = product(of, [m, n, k], 1);
    cublasDgemm_v2(of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32) = product(of, [m, n, k], 1);
    cublasCgemm_v2(of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32) = product(of, [m, n, k], 1);
    cublasZgemm_v2(of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32) = product(of, [m, n, k], 1);
    cublasSgemmEx(of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32) = product(of, [m, n, k], 1);
    cublasGemmEx(of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32) = product(of, [m, n, k], 1);
    cublasSgemmStridedBatched(
        of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32, _alpha: u64, _left: u64, _ld1: i32, _step1: i64,
        _right: u64, _ld2: i32, _step2: i64, _beta: u64, _into: u64, _ld3: i32, _step3: i64, batch: i32,
    ) = product(of, [m, n, k], batch);
    cublasGemmStridedBatchedEx(
        of: u64, _a: i32, _b: i32, m: i32, n: i32, k: i32, _alpha: u64, _left: u64, _type1: i32, _ld1: i32,
        _step1: i64, _right: u64, _type2: i32, _ld2: i32, _step2: i64, _beta: u64, _into: u64, _type3: i32, _ld3: i32,
        _step3: i64, batch: i32,
    ) = product(of, [m, n, k], batch);
    fakecudart_work(of: u64) = operations(handle(of)?.stream, 1);
}
