//! Calls with which programs begin to work. They wait while the slice is away, and pass otherwise.
//!
//! The driver would block them then, without a sign by which the daemon could bring the slice back.

use core::ffi::c_int;

use crate::launch::be_present;

/// Passes a call once the slice is present.
pub(crate) fn pass(real: impl FnOnce() -> c_int) -> c_int {
    be_present();
    real()
}
