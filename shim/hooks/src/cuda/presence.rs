//! Calls with which programs begin to work. They wait while the slice is away, and pass otherwise.
//!
//! The driver would block them then, without a sign by which the daemon could bring the slice back.

use core::ffi::c_int;

use crate::launch::be_present;

macro_rules! passers {
    ($($name:ident: $($argument:ident: $of:ident),*;)*) => {$(
        pub(crate) unsafe fn $name<$($of),*>(real: unsafe extern "C" fn($($of),*) -> c_int, $($argument: $of),*) -> c_int {
            be_present();
            // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
            unsafe { real($($argument),*) }
        }
    )*};
}

passers! {
    one: a: A;
    two: a: A, b: B;
    three: a: A, b: B, c: C;
}
