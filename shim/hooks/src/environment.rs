//! The program's environment, changed for the length of one driver call.

use core::ffi::{CStr, c_char};
use core::ptr;

unsafe extern "C" {
    /// The environment's list of entries, by libc.
    static environ: *const *mut c_char;
}

/// The entry of a variable, `NAME=text`, as it stands in the environment; null where there is none.
///
/// Not by `getenv`, which a program may define itself, with other results.
pub(crate) fn entry(name: &CStr) -> *mut c_char {
    // SAFETY: `environ` is null or a list of terminated entries that ends with a null. As with `getenv`, a program
    // that changes it in another thread at this instant has to lock both.
    unsafe {
        let mut place = ptr::read_volatile(&raw const environ);
        while !place.is_null() && !(*place).is_null() {
            let entry = CStr::from_ptr(*place).to_bytes();
            if entry.strip_prefix(name.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'=')) {
                return *place;
            }
            place = place.add(1);
        }
    }
    ptr::null_mut()
}

/// Puts an entry into the environment, in the place of the entry of the same variable if there is one.
///
/// # Safety
/// `entry` must be `NAME=text`, end with a zero and stay valid until it is replaced.
pub(crate) unsafe fn put(entry: *mut c_char) {
    // SAFETY: `entry` is a terminated `NAME=text` that stays valid, by this function's contract. libc allocates only
    // if there was no entry; without memory nothing changes.
    unsafe { libc::putenv(entry) };
}

/// Removes a variable from the environment.
pub(crate) fn remove(name: &CStr) {
    // SAFETY: `name` is a CStr, thus terminated, and no caller's holds a `=`.
    unsafe { libc::unsetenv(name.as_ptr()) };
}
