//! A stand-in for cuDNN: handles and a version, with which a program starts that requires one.
//!
//! Its operations are not here: each answers an error.
#![allow(non_snake_case, reason = "names are those of the cuDNN API")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::ready;
use crate::exports::exports;
use crate::missing::guarded;
use crate::status::{Outcome, Status};
use crate::wall::Out;

/// Major and minor version and patch level: as new as any program of version 9 requires.
const VERSION: [i32; 3] = [9, 99, 0];

/// Stream of each handle.
static HANDLES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn handles() -> MutexGuard<'static, BTreeMap<u64, u64>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create(out: Out<u64>) -> Outcome {
    out.check()?;
    ready()?;
    let mut handles = handles();
    let next = handles.keys().next_back().map_or(1 << 12, |last| last + 1);
    handles.insert(next, 0);
    out.put(next)
}

// SAFETY: the name is one of the cuDNN API, which this library defines in its place.
#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    let [major, minor, patch] = VERSION;
    (major * 10_000 + minor * 100 + patch).unsigned_abs() as usize
}

exports! {
    cudnnGetProperty(part: i32, out: Out<i32>) = {
        let number = usize::try_from(part).ok().and_then(|part| VERSION.get(part).copied());
        out.put(number.ok_or(Status::INVALID_VALUE)?)
    };
    cudnnCreate(out: Out<u64>) = create(out);
    cudnnDestroy(of: u64) = handles().remove(&of).map(|_| ()).ok_or(Status::INVALID_HANDLE);
    cudnnSetStream(of: u64, stream: u64) =
        handles().get_mut(&of).map(|place| *place = stream).ok_or(Status::INVALID_HANDLE);
    cudnnGetStream(of: u64, out: Out<u64>) =
        handles().get(&of).copied().ok_or(Status::INVALID_HANDLE).and_then(|stream| out.put(stream));
}
