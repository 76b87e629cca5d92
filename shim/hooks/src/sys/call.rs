//! The system call that all others go through.

use libc::{c_int, c_long};

/// An error number, as in `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// One system call, which leaves `errno` as it was.
///
/// # Safety
/// The arguments must be valid for the call `number`.
pub(super) unsafe fn call(number: c_long, arguments: [c_long; 6]) -> Result<c_long, Errno> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the arguments are valid by this function's contract; surplus ones are ignored. The errno location is
    // this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = libc::syscall(number, a, b, c, d, e, f);
        let error = Errno(*errno);
        *errno = before;
        if result < 0 { Err(error) } else { Ok(result) }
    }
}
