//! Waits for conditions, each with an end.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest time for a step on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(20);

/// Calls `look` until it returns a value, or its last complaint after `patience`.
pub fn until<T>(patience: Duration, mut look: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(complaint) if start.elapsed() > patience => return Err(complaint),
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Waits until `look` returns a value; after [`PATIENCE`], fails with `what` and the last complaint.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    match until(PATIENCE, look) {
        Ok(seen) => seen,
        Err(complaint) => panic!("{what}: still not so after {} s: {complaint}", PATIENCE.as_secs()),
    }
}

/// Checks for the time `span` that `look` succeeds, or fails with `what` and the complaint.
#[track_caller]
pub fn holds_for(what: &str, span: Duration, mut look: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while start.elapsed() < span {
        if let Err(complaint) = look() {
            panic!("{what}: no longer so after {} ms: {complaint}", start.elapsed().as_millis());
        }
        sleep(PAUSE);
    }
}
